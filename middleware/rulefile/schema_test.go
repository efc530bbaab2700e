package rulefile_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v3"

	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/internal/view"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// schema returns the schema that is checked in, and a function that asks it about a
// value.
func schema(t testing.TB) (*jsonschema.Schema, func(value any) error) {
	t.Helper()
	text, err := os.ReadFile("rules.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	s := new(jsonschema.Schema)
	if err := json.Unmarshal(text, s); err != nil {
		t.Fatal(err)
	}
	resolved, err := s.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		t.Fatal(err)
	}
	return s, resolved.Validate
}

// valueOf reads a document as a JSON value, as editors do that know the schema.
func valueOf(text []byte) (value any, err error) {
	var read any
	if err := yaml.Unmarshal(text, &read); err != nil {
		return nil, err
	}
	again, err := json.Marshal(read)
	if err != nil {
		return nil, err
	}
	return value, json.Unmarshal(again, &value)
}

// The pattern of a limit lists the algorithms.
func TestSchemaHasEveryAlgorithm(t *testing.T) {
	s, _ := schema(t)
	pattern := s.Defs["limit"].Pattern
	for _, row := range step.Table {
		if !regexp.MustCompile(`\b` + row.Name + `\b`).MatchString(pattern) {
			t.Errorf("the pattern has no %s: %s", row.Name, pattern)
		}
	}
}

// The fields of a document are those of Rule, but for functions, in the schema too.
func TestSchemaHasTheFieldsOfRule(t *testing.T) {
	s, _ := schema(t)
	rule := s.Defs["rule"]
	var want []string
	for field := range reflect.TypeFor[ratelimit.Rule]().Fields() {
		if field.Type.Kind() != reflect.Func && field.Name != "Limits" { // which limit is, too
			want = append(want, view.Snake(field.Name))
		}
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(rule.Properties)); !slices.Equal(got, want) {
		t.Errorf("the schema has %q; Rule has %q", got, want)
	}
	_, err := loader().Parse("f", []byte(`{version: 1, rules: [{}]}`))
	for _, field := range rule.Required {
		if !strings.Contains(err.Error(), "rules[0]."+field+": required") {
			t.Errorf("%s is required by the schema; the loader says\n%v", field, err)
		}
	}
	if got := strings.Count(err.Error(), "required"); got != len(rule.Required) {
		t.Errorf("%d fields are required by the loader:\n%v", got, err)
	}
}

// texts are values for every field, in JSON: for each form of each field some that
// have it, and some that nearly have it.
var texts = []string{
	`null`, `true`, `false`, `0`, `1`, `-1`, `2`, `0.5`, `1.5`, `-0.5`, `90`, `199`, `200`, `401`, `599`, `600`, `1001`, `1e300`,
	`""`, `" "`, `"x"`, `"login"`, `"per ip"`, `"a.b-c_D9"`, `"ä"`, `"true"`, `"1"`, `"0.5"`, `"` + strings.Repeat("a", 64) + `"`, `"` + strings.Repeat("a", 65) + `"`,
	`"/"`, `"/a"`, `"POST /a"`, `"a/b"`, `"POST"`, `"POST a"`, `"a b /c"`, `"/` + strings.Repeat("a", 1000) + `"`,
	`"ip"`, `"IP"`, `"everyone"`, `"user"`, `"tenant"`, `"nobody"`, `"header:X-User"`, `"header:x_user"`, `"header:"`, `"header:X User"`, `"header:authorization"`,
	`"header:Cookie"`, `"header:COOKIES"`, `"header:Proxy-Authorization"`, `"header:x-API-Key"`, `"header:X-Forwarded-For"`, `"header:host"`, `"header:Forwarded-For"`, `"apikey:Authorization"`, `"apikey:"`, `"cookie:a"`, `"cookie:"`, `"cookie:a b"`, `"apikey:Cookie"`, `"apikey:DPoP"`, `"Cookie:a"`, `"Header:X"`, `"ip,user"`,
	`"100/1m"`, `"100 / 1m"`, `" 100/min "`, `"100/1m token_bucket"`, `"100/1m burst 20"`, `"100/1m burst 20 gcra"`, `"100/1m gcra burst 20"`, `"100/1h30m"`,
	`"100/1.5h"`, `"100/.5h"`, `"100/30d"`, `"100/1.5d"`, `"100/day"`, `"100/days"`, `"100/250µs"`, `"100/250μs"`, `"100/-1m"`, `"+100/1m"`, `"100/+1m"`, `"100/1m leaky"`,
	`"100/1m\tgcra"`, `"100/1m\u00a0gcra"`, `"100/"`, `"/1m"`, `"100"`, `"100/1 m"`, `"100/1m burst"`, `"100/1m burs 20"`, `"100/5000ns"`, `"100/1s"`, `"0/1m"`, `"100/1ns"`, `"100/0s"`, `"99999999999/1m"`,
	`"100/1m leaky_bucket"`, `"100/1m burst 0"`, `"100/1m sliding_log"`, `"unlimited"`, `"Unlimited"`,
	`"1m"`, `"90s"`, `"30d"`, `"1h30m"`, `"1.5h"`, `"-1m"`, `"+1m"`, `"1"`, `"0s"`, `"500ns"`, `"minute"`, `"1 m"`, `"999999d"`,
	`"local"`, `"open"`, `"closed"`, `"Closed"`, `"off"`,
	`"90%"`, `"90 %"`, `"90  %"`, `"12.5%"`, `"100%"`, `"100.0%"`, `"100.1%"`, `"101%"`, `"007%"`, `"07%"`, `".5%"`, `"5.%"`, `"-1%"`, `"%"`, `"90"`,
	`[]`, `[null]`, `[1]`, `[401]`, `[401, 403]`, `[401, 401]`, `[401, "403"]`, `["4xx", 500]`, `["400-499", "!404"]`, `["!304"]`, `["!5xx", "!304"]`, `["!304", "!304"]`, `["4xx", "4xx"]`, `["4xx", 401]`, `["4xx", "!5xx"]`, `["499-400"]`, `["4xx-5xx"]`, `["4XX"]`, `["1xx"]`, `["6xx"]`, `["!"]`, `["! 304"]`, `["400-"]`, `[199]`, `[600]`, `[401.5]`, `[[401]]`, `["x"]`, `["/a"]`, `["/a", 1]`, `["/a", "/a"]`, `["a"]`,
	`["/a/*"]`, `["ip"]`, `["ip", "user"]`, `["ip", "ip"]`, `["ip", ["user"]]`, `["header:X", "apikey:Y"]`, `["header:Cookie"]`, `["nobody"]`, `[{}]`,
	`{}`, `{"x-a": 1}`, `{"pro": "100/1m"}`, `{"pro": "unlimited", "internal": "5/1m"}`, `{"pro": null}`, `{"pro": 5}`, `{"gold": "100/1m"}`, `{"": "100/1m"}`, `{"pro": "5/1m x"}`,
	`{"/a": 1}`, `{"POST /a": 2, "/b": 3}`, `{"/a": 0}`, `{"/a": 1.5}`, `{"/a": "1"}`, `{"/a": null}`, `{"a": 1}`, `{"/a/*": 1}`, `{"/a": 1001}`, `{"/a/{x}": 1, "/a/{y}": 2}`,
	`[{"client": "192.0.2.1", "limit": "5/1m"}]`, `[{"client": ["192.0.2.1"], "limit": "unlimited", "note": "", "x-by": 1}]`, `[{"client": "192.0.2.1", "limit": "5/1m", "until": "2026-12-31T23:00:00Z"}]`,
	`[{"client": "192.0.2.1", "limit": "5/1m", "until": "2026-12-31T23:00:00.5+01:00"}]`, `[{"client": "192.0.2.1", "limit": "5/1m", "until": "2026-12-31@Europe/Berlin"}]`,
	`[{"client": "192.0.2.1", "limit": "5/1m", "until": "2026-12-31"}]`, `[{"client": "192.0.2.1", "limit": "5/1m", "until": "2026-12-31T23:00:00"}]`, `[{"client": "192.0.2.1", "limit": "5/1m", "until": "2026-12-31 23:00:00Z"}]`,
	`[{"client": "192.0.2.1", "limit": "5/1m", "until": "2026-12-31@Berlin"}]`, `[{"client": "192.0.2.1", "limit": "5/1m", "until": "2026-12-41@UTC"}]`, `[{"client": "192.0.2.1", "limit": "5/1m", "until": "2026-12-31@"}]`,
	`[{"client": "nobody", "limit": "5/1m"}]`, `[{"client": ["192.0.2.1", "x"], "limit": "5/1m"}]`, `[{"client": "", "limit": "5/1m"}]`, `[{"client": 1, "limit": "5/1m"}]`, `[{"client": [], "limit": "5/1m"}]`,
	`[{"client": "192.0.2.1"}]`, `[{"limit": "5/1m"}]`, `[{"client": "192.0.2.1", "limit": "Unlimited"}]`, `[{"client": "192.0.2.1", "limit": "5/1m", "tier": "x"}]`, `{"client": "192.0.2.1", "limit": "5/1m"}`,
	`{"after": 10, "for": "15m"}`, `{"after": 10, "within": "1m", "for": "15m"}`, `{"after": 10, "within": "1m", "for": "15m", "x-why": [1]}`, `{"after": 10}`, `{"for": "15m"}`,
	`{"after": 0, "for": "15m"}`, `{"after": "10", "for": "15m"}`, `{"after": 10, "for": 15}`, `{"after": 10, "for": "15"}`, `{"after": 10, "within": null, "for": "15m"}`,
	`{"after": 10, "for": "15m", "until": 1}`, `{"after": 10, "for": "0s"}`, `{"after": 10, "within": "0s", "for": "1m"}`, `{"after": 1.5, "for": "1m"}`, `{"after": 1, "for": "5000ns"}`,
}

// beyond is what a schema cannot know: the names that a program has, what limits
// and patterns mean, and what goes together.
var beyond = map[string]bool{}

func init() {
	for field, values := range map[string][]string{
		"key": {`"x"`, `"login"`, `"a.b-c_D9"`, `"true"`, `"1"`, `"0.5"`, `"` + strings.Repeat("a", 64) + `"`, `"POST"`, `"IP"`, `"nobody"`, `"100"`, `"unlimited"`, `"Unlimited"`, `"1m"`, `"90s"`, `"30d"`, `"1h30m"`, `"1.5h"`, `"-1m"`, `"0s"`, `"500ns"`, `"minute"`, `"999999d"`, `"local"`, `"open"`, `"closed"`, `"Closed"`, `"off"`, `"90"`, `["x"]`, `["a"]`, `["ip", "ip"]`, `["nobody"]`,
			`["4xx", "4xx"]`, `["499-400"]`, `["4xx-5xx"]`, `["4XX"]`, `["1xx"]`, `["6xx"]`, `["400-"]`},
		"match": {`["/a/*"]`},
		"limit": {`"0/1m"`, `"100/1ns"`, `"100/0s"`, `"99999999999/1m"`, `"100/1m leaky_bucket"`, `"100/1m burst 0"`, `"100/250µs"`, `"100/250μs"`, `"100/5000ns"`},
		"tiers": {`{"gold": "100/1m"}`},
		"cost":  {`1001`, `1e300`},
		"costs": {`{"/a/*": 1}`, `{"/a": 1001}`, `{"/a/{x}": 1, "/a/{y}": 2}`},
		"overrides": {`[{"client": "nobody", "limit": "5/1m"}]`, `[{"client": ["192.0.2.1", "x"], "limit": "5/1m"}]`,
			`[{"client": "192.0.2.1", "limit": "5/1m", "until": "2026-12-31@Berlin"}]`, `[{"client": "192.0.2.1", "limit": "5/1m", "until": "2026-12-41@UTC"}]`},
		"sync":        {`"1m"`, `"90s"`, `"1h30m"`, `"1.5h"`, `"30d"`, `"0s"`, `"500ns"`, `"999999d"`},
		"retry_after": {`"1h30m"`, `"1.5h"`, `"30d"`, `"0s"`, `"500ns"`, `"999999d"`},
		"note":        {`"100/1m\tgcra"`, `"100/1m\u00a0gcra"`},
		"charge_on":   {`["4xx", 401]`, `["4xx", "!5xx"]`, `["499-400"]`},
		"ban":         {`{"after": 10, "for": "0s"}`, `{"after": 10, "within": "0s", "for": "1m"}`, `{"after": 1, "for": "5000ns"}`},
	} {
		for _, value := range values {
			beyond[field+": "+value] = true
		}
	}
}

// The schema and the loader say the same about every value in every field, but for
// what is listed above.
func TestSchemaEqualsTheLoader(t *testing.T) {
	s, validate := schema(t)
	documents := make(map[string]string)
	for _, field := range append(slices.Sorted(maps.Keys(s.Defs["rule"].Properties)), "x-note", "unknown") {
		for _, value := range texts {
			rule := map[string]string{"name": `"r"`, "key": `"ip"`, "limit": `"1000/1m"`}
			switch field {
			case "enforce":
				rule["shadow"] = "true"
			case "retry_after":
				rule["limit"] = `"2 in flight"`
			}
			rule[field] = value
			var members []string
			for name, value := range rule {
				members = append(members, fmt.Sprintf("%q: %s", name, value))
			}
			documents[field+": "+value] = `{"version": 1, "rules": [{` + strings.Join(members, ", ") + `}]}`
		}
	}
	for _, value := range texts {
		const rules = `"rules": [{"name": "r", "key": "ip", "limit": "1000/1m"}]`
		documents["version: "+value] = fmt.Sprintf(`{"version": %s, %s}`, value, rules)
		documents["rules: "+value] = fmt.Sprintf(`{"version": 1, "rules": %s}`, value)
		documents["rule: "+value] = fmt.Sprintf(`{"version": 1, "rules": [%s]}`, value)
		documents["x-note at the top: "+value] = fmt.Sprintf(`{"version": 1, %s, "x-note": %s}`, rules, value)
		documents["unknown at the top: "+value] = fmt.Sprintf(`{"version": 1, %s, "unknown": %s}`, rules, value)
		documents["everything: "+value] = value
	}
	both, neither := 0, 0
	for name, text := range documents {
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		_, parseErr := loader().Parse("f", []byte(text))
		schemaErr := validate(value)
		switch {
		case beyond[name]:
			if schemaErr != nil || parseErr == nil {
				t.Errorf("%s: is listed as what only the loader refuses; the schema says %v, the loader %v", name, schemaErr, parseErr)
			}
		case schemaErr == nil && parseErr == nil:
			both++
		case schemaErr != nil && parseErr != nil:
			neither++
		default:
			t.Errorf("%s: the schema says %v, the loader %v", name, schemaErr, parseErr)
		}
	}
	if both < 300 || neither < 1500 {
		t.Errorf("%d documents are accepted and %d refused by both", both, neither)
	}
}

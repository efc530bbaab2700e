package headers

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"
)

// A policyLeft is a member of a RateLimit field, as the parser reads it.
type policyLeft struct {
	name           string
	units, seconds int64
}

func parseRateLimit(lines []string) (policies []policyLeft, ok bool) {
	p, ok := parserOf(lines)
	if !ok {
		return nil, false
	}
	for p.rest != "" {
		m, ok := p.item('r', 't')
		if !ok || !p.comma() {
			return nil, false
		}
		policies = append(policies, policyLeft{m.name, m.units, m.seconds})
	}
	return policies, true
}

func TestRateLimitFieldWellFormed(t *testing.T) {
	for field, want := range map[string][]policyLeft{
		``:                               {},
		`  `:                             {},
		`"default";r=50;t=30`:            {{"default", 50, 30}},
		`"default";r=50`:                 {{"default", 50, -1}},
		`"default"; r=50; t=30`:          {{"default", 50, 30}}, // express-rate-limit writes it so
		`"a";r=1, "b";r=0;t=9`:           {{"a", 1, -1}, {"b", 0, 9}},
		"  \"a\";r=1 \t,\t\"b\";r=2  ":   {{"a", 1, -1}, {"b", 2, -1}},
		`"a";r=1,"a";r=2`:                {{"a", 1, -1}, {"a", 2, -1}},
		`"a";r=1;r=2;t=3;t=4`:            {{"a", 2, 4}}, // the last counts
		`"a";r;r=2;t="x";t=4`:            {{"a", 2, 4}},
		`"";r=0`:                         {{"", 0, -1}},
		`"a \"quoted\", \\ one;r=9";r=1`: {{`a "quoted", \ one;r=9`, 1, -1}},
		`"a";r=999999999999999;t=000000000000007`: {{"a", 999999999999999, 7}},
		`"a";r=-0`: {{"a", 0, -1}},

		// What the draft does not define is ignored, whatever its type.
		`"a";pk=:sdfjLJUOUH==:;r=1`:                                {{"a", 1, -1}},
		`"a";pk=::;r=1`:                                            {{"a", 1, -1}},
		`"a";pk=:Zg:;r=1`:                                          {{"a", 1, -1}}, // padding may be missing
		`"a";acme-burst=-1.125;*x.y_2;b=?0;c=?1;r=1`:               {{"a", 1, -1}},
		`"a";d=@-1659578233;s="r=5";k=r/5;l=*!#$%&'*+-.^_|~:r;r=1`: {{"a", 1, -1}},
		`"a";s=%"f%c3%bc%c3%bc";r=1`:                               {{"a", 1, -1}},
		`"a";s=123456789012.123;r=1`:                               {{"a", 1, -1}},
	} {
		if got, ok := parseRateLimit([]string{field}); !ok || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v; want %v", field, got, ok, want)
		}
	}

	lines := []string{`"a";r=1;t=2`, `"b";r=3,"c";r=4`}
	want := []policyLeft{{"a", 1, 2}, {"b", 3, -1}, {"c", 4, -1}}
	if got, ok := parseRateLimit(lines); !ok || !slices.Equal(got, want) {
		t.Errorf("two lines: got %v, %v; want %v", got, ok, want)
	}
}

func TestRateLimitFieldMalformed(t *testing.T) {
	for reason, fields := range map[string][]string{
		"no r":                {`"a"`, `"a";t=1`, `"a";q=1`},
		"r is no Integer":     {`"a";r`, `"a";r="1"`, `"a";r=1.0`, `"a";r=?1`, `"a";r=@1`, `"a";r=one`, `"a";r=:MQ==:`, `"a";r=1;r`},
		"t is no Integer":     {`"a";r=1;t`, `"a";r=1;t="1"`, `"a";r=1;t=1.5`, `"a";r=1;t=1;t`},
		"negative":            {`"a";r=-1`, `"a";r=1;t=-1`},
		"too long":            {`"a";r=1000000000000000`, `"a";r=1;x=1234567890123.1`, `"a";r=1;x=1.1234`},
		"no name":             {`;r=1`, `default;r=1`, `1;r=1`, `?1;r=1`, `:YQ==:;r=1`, `@1;r=1`, `%"a";r=1`, `1.5;r=1`},
		"an inner list":       {`("a");r=1`, `("a" "b");r=1`},
		"other generations":   {`limit=100, remaining=50, reset=5`, `100`},
		"commas":              {`,`, `"a";r=1,`, `"a";r=1, `, `"a";r=1,,"b";r=1`, `,"a";r=1`, `"a";r=1 "b";r=1`},
		"whitespace":          {"\t\"a\";r=1", `"a" ;r=1`, `"a";r =1`, `"a";r= 1`, "\"a\";\tr=1", "\"a\";r=1\n"},
		"an unfinished value": {`"`, `"a`, `"a\`, `"a\"`, `"a";`, `"a";r=`, `"a";r=-`, `"a";r=1.`, `"a";r=1;x=:`, `"a";r=1;x=:YQ==`, `"a";r=1;x=?`, `"a";r=1;x=@`, `"a";r=1;x=%`, `"a";r=1;x=%"`, `"a";r=1;x=%"a`, `"a";r=1;x=%"%`, `"a";r=1;x=%"%c`, `"a";r=1;x=%"%c3"`},
		"a bad value":         {`"\a";r=1`, "\"\x7f\";r=1", "\"\x1f\";r=1", `"ü";r=1`, `ü;r=1`, `"a";r=1;x=?2`, `"a";r=1;x=@1.5`, `"a";r=1;x=:?:`, `"a";r=1;x=:a=b:`, `"a";r=1;x=:a:`, `"a";r=1;x=%"%C3%BC"`, `"a";r=1;x=%"%zz"`, `"a";r=1;x=%"ü"`, `"a";r=1;x=.5`, `"a";r=1;x=+5`, `"a";r=1;x=--5`, `"a";r=1;x=$`},
		"a bad key":           {`"a";R=1`, `"a";r=1;1=1`, `"a";r=1;-x`, `"a";r=1;;x`, `"a";r=1;=1`},
	} {
		for _, field := range fields {
			if got, ok := parseRateLimit([]string{field}); ok {
				t.Errorf("%s: %q is taken for %v", reason, field, got)
			}
		}
	}
	if got, ok := parseRateLimit([]string{`"a";r=1`, ``}); ok {
		t.Errorf("an empty second line is taken for %v", got)
	}
}

// Whatever comes, the parser agrees with a general one for RFC 9651.
func FuzzRateLimitField(f *testing.F) {
	for _, seed := range []string{
		`"default";r=50;t=30`, `"a";r=1, b;r=0;t=9;pk=:Zg==:`, `"\"\\";r=1;x=-1.5;y=?0;z;*=@5;d=%"%c3%bc"`,
		`("a";r=1 b);t=2`, `"a";r=999999999999999,`, `limit=100, remaining=50, reset=5`,
		strings.Repeat(`"a";r=1,`, 100), strings.Repeat(`\"`, 100), strings.Repeat(";", 100),
	} {
		f.Add(seed, seed)
		f.Add(seed, `"b";r=1`)
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		for _, lines := range [][]string{{first}, {first, second}} {
			if size(lines) > maxField {
				continue
			}
			want, wantOK := referenceRateLimit(lines)
			got, ok := parseRateLimit(lines)
			if ok && !wantOK && unpadded(lines) {
				continue
			}
			if ok != wantOK || !slices.Equal(got, want) {
				t.Errorf("%q: got %v, %v; want %v, %v", lines, got, ok, want, wantOK)
			}
			longest, found := int64(0), false
			for _, policy := range got {
				if policy.units == 0 && policy.seconds != absent {
					longest, found = max(longest, policy.seconds), true
				}
			}
			if wait, ok := longestExhausted(lines); ok != found || wait != seconds(float64(longest)) {
				t.Errorf("%q: wait %v, %v; want %d s, %v", lines, wait, ok, longest, found)
			}
		}
	})
}

// referenceRateLimit is parseRateLimit by a general library.
func referenceRateLimit(lines []string) ([]policyLeft, bool) {
	list, err := httpsfv.UnmarshalList([]string{strings.Join(lines, ",")})
	if err != nil {
		return nil, false
	}
	var policies []policyLeft
	for _, member := range list {
		item, ok := member.(httpsfv.Item)
		if !ok {
			return nil, false
		}
		name, ok := item.Value.(string)
		if !ok {
			return nil, false
		}
		policy := policyLeft{name, absent, absent}
		for key, to := range map[string]*int64{"r": &policy.units, "t": &policy.seconds} {
			if value, ok := item.Params.Get(key); ok {
				if *to, ok = value.(int64); !ok || *to < 0 {
					return nil, false
				}
			}
		}
		if policy.units == absent {
			return nil, false
		}
		policies = append(policies, policy)
	}
	return policies, true
}

// unpadded reports whether there may be base64 that only the library refuses:
// RFC 9651 asks parsers to take what is not padded properly.
func unpadded(lines []string) bool {
	for part := range strings.SplitSeq(strings.Join(lines, ", "), ":") {
		if _, err := base64.StdEncoding.DecodeString(part); err != nil {
			if _, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(part, "=")); err == nil {
				return true
			}
		}
	}
	return false
}

package rulefile_test

import (
	"strings"
	"testing"

	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// A document of any bytes is read without a panic. If it is accepted, then
// ValidateRules and the schema accept it too. If not, each mistake is one line with a
// place.
func FuzzParse(f *testing.F) {
	for _, folder := range []string{"good", "bad"} {
		for _, text := range files(f, folder) {
			f.Add(text)
		}
	}
	for _, value := range texts {
		f.Add([]byte(`{version: 1, rules: [{name: r, key: ip, limit: 5/1m, x-a: ` + value + `}]}`))
	}
	evil := `"a\nlevel=INFO msg=\"all is well\"\e[31m\u202e\0"` // which would forge a line in a log, or move a terminal's cursor
	for _, text := range []string{
		"{version: 1, rules: [{name: @}]}", "{version: 1, rules: [{@: 1}]}", "{@: 1}", "{version: @}", "{version: 1, rules: @}",
		"{version: 1, rules: [@]}", "{version: 1, rules: [{name: r, key: @}]}", "{version: 1, rules: [{name: r, key: [@, @]}]}",
		"{version: 1, rules: [{name: r, key: ip, limit: @}]}", "{version: 1, rules: [{name: r, key: ip, limit: 5/1m, match: [@]}]}",
		"{version: 1, rules: [{name: r, key: ip, limit: 5/1m, tiers: {@: @, pro: @}}]}", "{version: 1, rules: [{name: r, key: ip, limit: 5/1m, costs: {@: @}}]}",
		"{version: 1, rules: [{name: r, key: ip, limit: 5/1m, cost: @}]}", "{version: 1, rules: [{name: r, key: ip, limit: 5/1m, charge_on: [@]}]}",
		"{version: 1, rules: [{name: r, key: ip, limit: 5/1m, ban: {@: 1, after: @, for: @}}]}",
		"{version: 1, rules: [{name: r, key: ip, limit: 5/1m, fail: @, shadow: @, enforce: @, hidden: @}]}",
		"{version: 1, rules: [{name: r, key: ip, limit: 5/1m, x-a: &a 1, x-b: !<@> 1, x-c: {@: 1, @: 2}}]}",
	} {
		f.Add([]byte(strings.ReplaceAll(text, "@", evil)))
	}
	_, validate := schema(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		rules, err := anyTier().Parse("f", text)
		if err != nil {
			if rules != nil {
				t.Errorf("rules beside an error: %v", rules)
			}
			for line := range strings.Lines(err.Error()) {
				if !strings.HasPrefix(line, "f:") || strings.ContainsAny(line, "\x00\x1b\r\u202e") {
					t.Errorf("%q", line)
				}
			}
			return
		}
		if err := ratelimit.ValidateRules(rules); err != nil {
			t.Errorf("accepted, and not valid: %v", err)
		}
		if value, err := valueOf(text); err == nil { // notes may be no JSON
			if err := validate(value); err != nil {
				t.Errorf("accepted, and not by the schema: %v", err)
			}
		}
	})
}

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
	_, validate := schema(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		rules, err := anyTier().Parse("f", text)
		if err != nil {
			if rules != nil {
				t.Errorf("rules beside an error: %v", rules)
			}
			for line := range strings.Lines(err.Error()) {
				if !strings.HasPrefix(line, "f:") || strings.ContainsAny(line, "\x00\x1b\r") {
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

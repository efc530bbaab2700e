package keyfunc_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/seed75154129/ratelimit/keyfunc"
)

// The page on trust has, for each place servers stand at, a line of Go and the
// same as text: the text must be readable and say what the line does.
func TestTextsOfTheTrustModel(t *testing.T) {
	page, err := os.ReadFile("../docs/trust-model.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| [^|]* \\| .*keyfunc\\.Proxies\\{(.*?)\\}\\.IP.* \\| `([^`|]*)` \\|$").FindAllStringSubmatch(string(page), -1)
	if len(rows) < 8 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, row := range rows {
		fields, text := row[1], row[2]
		var p keyfunc.Proxies
		if err := p.UnmarshalText([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		for field, set := range map[string]bool{
			"Trusted:": len(p.Trusted) > 0, "Unix:": p.Unix, "Hops:": p.Hops > 0, "Header:": p.Header != "",
		} {
			if strings.Contains(fields, field) != set {
				t.Errorf("%s and %s differ in %s", fields, text, field)
			}
		}
	}
}

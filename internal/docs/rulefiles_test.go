package docs

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/seed75154129/ratelimit/keyfunc"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

// Every rule file that a page shows is a good one.
func TestRuleFilesOfThePagesAreGood(t *testing.T) {
	user := keyfunc.Context(func(context.Context) (string, bool) { return "", false })
	loader := &rulefile.Loader{Keys: map[string]keyfunc.Key{"user": user, "tenant": user, "route": keyfunc.Route(func(r *http.Request) string { return r.Pattern })}}
	seen := 0
	for _, p := range pages(t) {
		for _, b := range p.blocks() {
			if b.language != "yaml" || !strings.Contains(b.text, "version: 1") {
				continue
			}
			seen++
			if _, err := loader.Parse(p.path, []byte(b.text)); err != nil {
				t.Errorf("%s:%d: %v", p.path, b.line, err)
			}
		}
	}
	if seen < 2 {
		t.Errorf("%d rule files seen", seen)
	}
}

package rulefile_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/seed75154129/ratelimit/internal/view"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// The document in the package's comment is a good one, and docs/rules.md has a row for
// each field.
func TestDocumentsInTheDocs(t *testing.T) {
	comment, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var document strings.Builder
	for line := range strings.Lines(string(comment)) {
		if text, ok := strings.CutPrefix(line, "//\t"); ok {
			document.WriteString(text)
		}
	}
	if rules, err := loader().Parse("doc.go", []byte(document.String())); err != nil || len(rules) != 2 {
		t.Errorf("%d rules, %v", len(rules), err)
	}

	page, err := os.ReadFile("../../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	for field := range reflect.TypeFor[ratelimit.Rule]().Fields() {
		if field.Type.Kind() != reflect.Func && field.Name != "Limits" && !strings.Contains(string(page), "\n| `"+view.Snake(field.Name)+"` | ") {
			t.Errorf("%s has no row", view.Snake(field.Name))
		}
	}
}

// What docs/rule-files.md quotes is what is said.
func TestMistakesInTheDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/rule-files.md")
	if err != nil {
		t.Fatal(err)
	}
	const bad = "version: 1\nrules:\n  - name: login\n    # each with its place\n    chargeOn: [401]\n    key: ip\n    limit: 5-S\n    match: [POST /auth/login]\n    shadow: 90%\n"
	_, err = loader().Parse("rules.yaml", []byte(bad))
	if err == nil || !strings.Contains(string(text), "\n```\n"+err.Error()+"\n```\n") {
		t.Errorf("docs/rule-files.md does not quote\n%v", err)
	}
}

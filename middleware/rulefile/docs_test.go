package rulefile_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

var block = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// The documents in docs/rules.md, and in the package's comment, are good ones.
func TestDocumentsInTheDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	blocks := block.FindAllStringSubmatch(page, -1)
	if len(blocks) < 2 {
		t.Fatalf("%d documents", len(blocks))
	}
	for _, b := range blocks {
		if _, err := loader().Parse("docs/rules.md", []byte(b[1])); err != nil {
			t.Errorf("%s\n%v", b[1], err)
		}
	}
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

	for field := range reflect.TypeFor[ratelimit.Rule]().Fields() {
		if field.Type.Kind() != reflect.Func && !strings.Contains(page, "\n| `"+snake(field.Name)+"` | ") {
			t.Errorf("%s has no row", snake(field.Name))
		}
	}
}

// What docs/rules.md quotes is what is said.
func TestMistakesInTheDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	const bad = "version: 1\nrules:\n  - name: login\n    # each with its place\n    patern: [POST /auth/login]\n    key: ip\n    limit: 5-S\n    charge_on: [401]\n    shadow: 90%\n"
	_, err = loader().Parse("rules.yaml", []byte(bad))
	if err == nil || !strings.Contains(string(text), "\n```\n"+err.Error()+"\n```\n") {
		t.Errorf("docs/rules.md does not quote\n%v", err)
	}
	if names, _ := filepath.Glob(filepath.Join(corpus, "bad", "*.yaml")); len(names) < 20 {
		t.Errorf("%d bad documents", len(names))
	}
}

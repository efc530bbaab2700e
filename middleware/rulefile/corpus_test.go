package rulefile_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/seed75154129/ratelimit/internal/view"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

var update = flag.Bool("update", false, "write the golden files anew")

const corpus = "../../testdata/rules"

// loader is that of a program with names of its own.
func loader() *rulefile.Loader {
	user := func(context.Context) (string, bool) { return "alice", true }
	return &rulefile.Loader{
		Keys: map[string]keyfunc.Key{
			"tenant": keyfunc.Optional(keyfunc.Context(user)), "user": keyfunc.Context(user), "route": keyfunc.Mux(http.NewServeMux()),
		},
		Tiers: []string{"pro", "enterprise", "internal", "on", "no", "1:30", "007", "per cent %"},
	}
}

// files returns the documents of a folder, by name.
func files(t testing.TB, folder string) map[string][]byte {
	t.Helper()
	found := make(map[string][]byte)
	for _, ending := range []string{"yaml", "json"} {
		paths, _ := filepath.Glob(filepath.Join(corpus, folder, "*."+ending))
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			found[filepath.Base(path)] = text
		}
	}
	if len(found) < 5 {
		t.Fatalf("%d documents in %s", len(found), folder)
	}
	return found
}

// golden compares a text with the file beside a document.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; look at what -update writes", err)
	}
	if got != string(want) {
		t.Errorf("%s:\n%s\nwant\n%s", path, got, want)
	}
}

// Each bad document has all its mistakes reported at once, where they are and with
// how to mend them.
func TestBadDocuments(t *testing.T) {
	bad := files(t, "bad")
	if len(bad) < 20 {
		t.Errorf("%d documents", len(bad))
	}
	for name, text := range bad {
		rules, err := loader().Parse(name, text)
		if err == nil || rules != nil {
			t.Errorf("%s is accepted: %v", name, rules)
			continue
		}
		for line := range strings.Lines(err.Error()) {
			if !strings.HasPrefix(line, name+":") {
				t.Errorf("%s: a mistake without a place, or in two lines: %s", name, line)
			}
		}
		golden(t, filepath.Join(corpus, "bad", strings.TrimSuffix(name, ".yaml")+".txt"), err.Error()+"\n")
	}
}

// Each good document is understood as the file beside it says. All fields are in all_fields.yaml.
func TestGoodDocuments(t *testing.T) {
	for name, text := range files(t, "good") {
		rules, err := loader().Parse(name, text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		golden(t, filepath.Join(corpus, "good", strings.TrimSuffix(strings.TrimSuffix(name, ".yaml"), ".json")+".txt"), understood(rules))
	}
	all, err := os.ReadFile(filepath.Join(corpus, "good", "all_fields.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for field := range reflect.TypeFor[ratelimit.Rule]().Fields() {
		if field.Type.Kind() != reflect.Func && !bytes.Contains(all, []byte("\n"+field.Name+": ")) && field.Name != "Name" {
			t.Errorf("no document has %s", field.Name)
		}
	}
}

// understood lists the fields of rules that are not zero.
func understood(rules []ratelimit.Rule) string {
	var b strings.Builder
	for i := range rules {
		for field, value := range reflect.ValueOf(&rules[i]).Elem().Fields() {
			if !value.IsZero() {
				fmt.Fprintf(&b, "%s: %v\n", field.Name, value)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func anyTier() *rulefile.Loader {
	l := loader()
	l.Tiers = nil
	return l
}

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

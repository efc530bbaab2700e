package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)\n```")

// Each block of docs/recipes.md is a piece of a file that make test compiles and
// runs, and nothing of these files is missing in the page.
func TestRecipesAreWhatIsTested(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/recipes.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "testdata/recipes/*.go"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	sources := make(map[string]string)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sources[file] = string(text)
	}
	blocks := goBlock.FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 20 {
		t.Fatalf("%d blocks", len(blocks))
	}
	shown := ""
	for _, b := range blocks {
		shown += "\n" + b[1] + "\n"
		found := false
		for _, source := range sources {
			found = found || strings.Contains(source, "\n"+b[1]+"\n")
		}
		if !found {
			t.Errorf("in no file of testdata/recipes:\n%s", b[1])
		}
	}
	for file, source := range sources {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, source, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.IMPORT {
				continue
			}
			if text := source[set.Position(d.Pos()).Offset:set.Position(d.End()).Offset]; !strings.Contains(shown, "\n"+text+"\n") {
				t.Errorf("%s: docs/recipes.md does not show\n%s", filepath.Base(file), text)
			}
		}
	}
}

var (
	anchor = regexp.MustCompile(`\]\(#([^)]*)\)`)
	title  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	symbol = regexp.MustCompile(`[^a-z0-9 -]`)
)

// The list at the top of docs/recipes.md leads to its sections, and leaves none out.
func TestTheListOfRecipes(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/recipes.md"))
	if err != nil {
		t.Fatal(err)
	}
	prose := goBlock.ReplaceAllString(string(page), "")
	sections := make(map[string]bool)
	for _, m := range title.FindAllStringSubmatch(prose, -1)[1:] {
		sections[strings.ReplaceAll(symbol.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = false
	}
	for _, m := range anchor.FindAllStringSubmatch(prose, -1) {
		if _, ok := sections[m[1]]; !ok {
			t.Errorf("no section #%s", m[1])
		}
		sections[m[1]] = true
	}
	for name, listed := range sections {
		if !listed {
			t.Errorf("#%s is not in the list", name)
		}
	}
}

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recipes returns docs/recipes.md.
func recipes(t *testing.T) page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/recipes.md"))
	if err != nil {
		t.Fatal(err)
	}
	return newPage("docs/recipes.md", string(text))
}

// What is compiled and run for docs/recipes.md is shown there, all of it.
func TestRecipesAreShown(t *testing.T) {
	var shown strings.Builder
	for _, b := range recipes(t).blocks() {
		shown.WriteString("\n" + b.text)
	}
	files, err := filepath.Glob(filepath.Join(root, "testdata/recipes/*.go"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
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
			if text := source[set.Position(d.Pos()).Offset:set.Position(d.End()).Offset]; !strings.Contains(shown.String(), "\n"+string(text)+"\n") {
				t.Errorf("%s: docs/recipes.md does not show\n%s", filepath.Base(file), text)
			}
		}
	}
}

// The list at the top of docs/recipes.md leaves no recipe out.
func TestEveryRecipeIsListed(t *testing.T) {
	text := strings.Join(recipes(t).prose(), "\n")
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "## "); ok && !strings.Contains(text, "](#"+anchor(name)+")") {
			t.Errorf("%s is not in the list", name)
		}
	}
}

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

// pageOf returns a page of docs.
func pageOf(t *testing.T, name string) page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return newPage("docs/"+name, string(text))
}

// What is compiled and run for docs/recipes.md, docs/plans.md and docs/migrating.md is shown
// there, or named.
func TestRecipesAreShown(t *testing.T) {
	var shown strings.Builder
	var named strings.Builder
	for _, name := range []string{"recipes.md", "plans.md", "migrating.md"} {
		p := pageOf(t, name)
		named.WriteString(strings.Join(p.lines, "\n"))
		for _, b := range p.blocks() {
			shown.WriteString("\n" + b.text)
		}
	}
	file := filepath.Join(root, "testdata/recipes/plans.yaml")
	if rules, err := os.ReadFile(file); err != nil || !strings.Contains(shown.String(), "\n"+string(rules)) {
		t.Errorf("%s: docs/plans.md does not show it: %v", filepath.Base(file), err)
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
			if names := namesOf(d); len(names) == 1 && strings.Contains(named.String(), "`"+names[0][strings.LastIndex(names[0], ".")+1:]+"`") {
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
	text := strings.Join(pageOf(t, "recipes.md").prose(), "\n")
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "## "); ok && !strings.Contains(text, "](#"+anchor(name)+")") {
			t.Errorf("%s is not in the list", name)
		}
	}
}

// Package docs holds the documentation to what the code is.
package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// The packages whose exports are a promise.
var promised = []string{"algorithms", "algorithms/limitertest", "failmode", "headers", "keyfunc", "middleware", "middleware/metrics", "middleware/rulefile", "shed"}

// An export is a decision: docs/architecture.md lists every one by its subject.
// Fields and the methods of interfaces are not counted.
func TestEveryExportIsListed(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	listed, counts := lists(string(text))
	for _, pkg := range promised {
		names := exports(t, filepath.Join(root, pkg))
		for _, name := range names {
			if !slices.Contains(listed[pkg], name) {
				t.Errorf("%s.%s is exported and not listed", pkg, name)
			}
		}
		for _, name := range listed[pkg] {
			if !slices.Contains(names, name) {
				t.Errorf("%s.%s is listed and not exported", pkg, name)
			}
		}
		if len(listed[pkg]) != counts[pkg] || len(slices.Compact(slices.Sorted(slices.Values(listed[pkg])))) != counts[pkg] {
			t.Errorf("%s: %d listed, some maybe twice; the heading says %d, and there are %d", pkg, len(listed[pkg]), counts[pkg], len(names))
		}
	}
	for pkg := range maps.Keys(listed) {
		if !slices.Contains(promised, pkg) {
			t.Errorf("%s is listed and no package whose exports are a promise", pkg)
		}
	}
}

var (
	heading = regexp.MustCompile("^#### `([a-z/]+)` \\((\\d+)\\)$")
	quoted  = regexp.MustCompile("`([A-Za-z.0-9]+)`")
)

// lists returns the names and the number that the page has for each package.
func lists(page string) (names map[string][]string, counts map[string]int) {
	names, counts = make(map[string][]string), make(map[string]int)
	pkg := ""
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if m := heading.FindStringSubmatch(line); m != nil {
			pkg = m[1]
			counts[pkg], _ = strconv.Atoi(m[2])
		} else if strings.HasPrefix(line, "#") {
			pkg = ""
		} else if pkg != "" && strings.HasPrefix(line, "|") {
			_, row, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
			for _, m := range quoted.FindAllStringSubmatch(row, -1) {
				names[pkg] = append(names[pkg], m[1])
			}
		}
	}
	return names, counts
}

// exports returns what a package exports: functions, types and their methods,
// constants and variables.
func exports(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d files, %v", dir, len(files), err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			names = append(names, declared(decl)...)
		}
	}
	return slices.DeleteFunc(names, func(name string) bool {
		for part := range strings.SplitSeq(name, ".") {
			if !ast.IsExported(part) {
				return true
			}
		}
		return false
	})
}

func declared(decl ast.Decl) (names []string) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		name := d.Name.Name
		if d.Recv != nil {
			name = receiver(d.Recv.List[0].Type) + "." + name
		}
		return []string{name}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
			case *ast.ValueSpec:
				for _, name := range s.Names {
					names = append(names, name.Name)
				}
			}
		}
	}
	return names
}

func receiver(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// declared matches a link from a name in code to a file of Go or Lua.
var declared = regexp.MustCompile("\\[`([A-Za-z]\\w*(?:\\.[A-Za-z]\\w*)?)`\\]\\(([^)#:]+\\.(?:go|lua))\\)")

// A page that links a name such as `Guard.Take` to a file names what that file declares.
func TestLinksToCodeNameWhatIsThere(t *testing.T) {
	seen := 0
	for _, p := range pages(t) {
		for _, m := range declared.FindAllStringSubmatch(strings.Join(p.lines, "\n"), -1) {
			if name, file := m[1], path.Join(path.Dir(p.path), m[2]); name != path.Base(file) {
				seen++
				if !declares(t, file, name) {
					t.Errorf("%s: %s declares no %s", p.path, file, name)
				}
			}
		}
	}
	if seen < 30 {
		t.Errorf("%d names seen", seen)
	}
	for name, want := range map[string]bool{"page": true, "page.links": true, "links": false, "declared": true, "undeclared": false} {
		if got := declares(t, "internal/docs/links_test.go", name) || declares(t, "internal/docs/pages_test.go", name) || declares(t, "internal/docs/declared_test.go", name); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// declares reports whether a file has a function, a method with its receiver's name, a type
// or a variable of this name.
func declares(t *testing.T, file, name string) bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	if err != nil {
		t.Error(err)
		return false
	}
	if path.Ext(file) == ".lua" {
		return strings.Contains(string(text), "\nlocal function "+name+"(")
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
	if err != nil {
		t.Error(err)
		return false
	}
	for _, decl := range parsed.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			full := d.Name.Name
			if d.Recv != nil {
				full = receiver(d.Recv.List[0].Type) + "." + full
			}
			if full == name {
				return true
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					if s.Name.Name == name {
						return true
					}
				case *ast.ValueSpec:
					for _, n := range s.Names {
						if n.Name == name {
							return true
						}
					}
				}
			}
		}
	}
	return false
}

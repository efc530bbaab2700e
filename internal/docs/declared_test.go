package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// declared matches a link from a name in code to a file of Go or Lua.
var declared = regexp.MustCompile("\\[`([A-Za-z]\\w*(?:\\.[A-Za-z]\\w*)?)`\\]\\(([^)#:]+\\.(?:go|lua))\\)")

// A page that links a name such as `Guard.Take` to a file names what that file declares.
func TestLinksToCodeNameWhatIsThere(t *testing.T) {
	declares := map[string][]string{}
	for _, f := range files(t) {
		if ext := path.Ext(f.path); ext == ".go" || ext == ".lua" {
			declares[f.path] = declaredIn(t, f)
		}
	}
	seen := 0
	for _, p := range pages(t) {
		for _, m := range declared.FindAllStringSubmatch(strings.Join(p.lines, "\n"), -1) {
			if name, file := m[1], path.Join(path.Dir(p.path), m[2]); name != path.Base(file) {
				seen++
				if !slices.Contains(declares[file], name) {
					t.Errorf("%s: %s declares no %s", p.path, file, name)
				}
			}
		}
	}
	if seen < 30 {
		t.Errorf("%d names seen", seen)
	}
}

var luaFunction = regexp.MustCompile(`(?m)^local function (\w+)\(`)

// declaredIn returns the functions, methods with their receivers' names, types and variables
// of a file of Go, or the functions of one of Lua.
func declaredIn(t *testing.T, f file) (names []string) {
	t.Helper()
	if path.Ext(f.path) == ".lua" {
		for _, m := range luaFunction.FindAllStringSubmatch(f.text, -1) {
			names = append(names, m[1])
		}
		return names
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), f.path, f.text, parser.SkipObjectResolution)
	if err != nil {
		t.Error(err)
		return nil
	}
	for _, decl := range parsed.Decls {
		names = append(names, namesOf(decl)...)
	}
	return names
}

// namesOf returns what a declaration names.
func namesOf(decl ast.Decl) (names []string) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv != nil {
			return []string{receiver(d.Recv.List[0].Type) + "." + d.Name.Name}
		}
		return []string{d.Name.Name}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
			case *ast.ValueSpec:
				for _, n := range s.Names {
					names = append(names, n.Name)
				}
			}
		}
	}
	return names
}

package docs

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// parsed returns a package's files, with its tests or without.
func parsed(t *testing.T, set *token.FileSet, pkg string, tests bool) []*ast.File {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, pkg, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %d files, %v", pkg, len(names), err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") && !tests {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// Everything that a user can name says what it is: functions, methods, types,
// constants, variables, fields of structs and methods of interfaces. A
// constant may leave it to the comment of its group.
func TestEveryExportIsDocumented(t *testing.T) {
	for _, pkg := range promised(t) {
		set := token.NewFileSet()
		for _, file := range parsed(t, set, pkg, false) {
			for _, name := range undocumented(file) {
				t.Errorf("%s.%s has no comment", pkg, name)
			}
		}
	}
}

func undocumented(file *ast.File) (names []string) {
	miss := func(name string, comments ...*ast.CommentGroup) {
		for _, c := range comments {
			if strings.TrimSpace(c.Text()) != "" {
				return
			}
		}
		for part := range strings.SplitSeq(name, ".") {
			if !ast.IsExported(part) {
				return
			}
		}
		names = append(names, name)
	}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				name = receiver(d.Recv.List[0].Type) + "." + name
			}
			miss(name, d.Doc)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					for _, name := range s.Names {
						miss(name.Name, d.Doc, s.Doc, s.Comment)
					}
				case *ast.TypeSpec:
					miss(s.Name.Name, d.Doc, s.Doc, s.Comment)
					var members *ast.FieldList
					switch kind := s.Type.(type) {
					case *ast.StructType:
						members = kind.Fields
					case *ast.InterfaceType:
						members = kind.Methods
					default:
						continue
					}
					for _, member := range members.List {
						for _, name := range member.Names {
							miss(s.Name.Name+"."+name.Name, member.Doc, member.Comment)
						}
					}
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

// Every package has examples that run, each with a comment. Those of limitertest are
// tests: it is for tests. Whether an example's name is that of an export, vet says.
func TestEveryPackageHasExamples(t *testing.T) {
	for _, pkg := range promised(t) {
		examples := doc.Examples(parsed(t, token.NewFileSet(), pkg, true)...)
		if len(examples) == 0 || pkg != "algorithms/limitertest" && !slices.ContainsFunc(examples, func(e *doc.Example) bool { return e.Output != "" }) {
			t.Errorf("%s: %d examples, or none that runs", pkg, len(examples))
		}
		for _, e := range examples {
			if e.Doc == "" {
				t.Errorf("%s: Example%s does not say what it shows", pkg, e.Name)
			}
		}
	}
}

package docs

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
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

func TestUndocumentedIsFound(t *testing.T) {
	const text = `package p

func A() {}

// B is.
func B() {}

type C struct {
	D int
	E int // is
	f int
}

type G interface{ H() }

// Group.
const (
	I = 1
)

var J = 1

type k struct{ L int }

func (k) M() {}
`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(undocumented(file), " "); got != "A C C.D G G.H J" {
		t.Error(got)
	}
}

// Every package has examples that run, each attached to what it shows, so
// pkg.go.dev has them where people look. Those of limitertest are tests: it is
// for tests.
func TestEveryPackageHasExamples(t *testing.T) {
	for _, pkg := range promised(t) {
		set := token.NewFileSet()
		p, err := doc.NewFromFiles(set, parsed(t, set, pkg, true), module+pkg)
		if err != nil {
			t.Fatal(err)
		}
		attached := append([]*doc.Example(nil), p.Examples...)
		add := func(examples []*doc.Example) { attached = append(attached, examples...) }
		for _, f := range p.Funcs {
			add(f.Examples)
		}
		for _, typ := range p.Types {
			add(typ.Examples)
			for _, f := range typ.Funcs {
				add(f.Examples)
			}
			for _, m := range typ.Methods {
				add(m.Examples)
			}
		}
		written, run := 0, 0
		for _, file := range parsed(t, set, pkg, true) {
			for _, decl := range file.Decls {
				if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Example") {
					written++
				}
			}
		}
		for _, e := range attached {
			if e.Output != "" {
				run++
			}
			if e.Doc == "" {
				t.Errorf("%s: Example%s does not say what it shows", pkg, e.Name)
			}
		}
		if len(attached) != written {
			t.Errorf("%s: %d examples are attached to something, of %d", pkg, len(attached), written)
		}
		if written == 0 || run == 0 && pkg != "algorithms/limitertest" {
			t.Errorf("%s: %d examples, %d of them run", pkg, written, run)
		}
	}
}

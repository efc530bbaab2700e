// Package docs holds the documentation to what the code is.
package docs

import (
	"cmp"
	"flag"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	root   = "../.."
	module = "github.com/seed75154129/ratelimit/"
)

var update = flag.Bool("update", false, "write docs/api.txt")

// promised returns the packages whose exports are a promise: all that another
// module can import, but for the examples.
func promised(t *testing.T) (packages []string) {
	t.Helper()
	for path := range strings.FieldsSeq(goList(t, "{{if ne .Name `main`}}{{if .GoFiles}}{{.ImportPath}}{{end}}{{end}}", "./...")) {
		path = cmp.Or(strings.TrimPrefix(path+"/", module), "./")
		path = strings.TrimSuffix(path, "/")
		if !strings.HasPrefix(path, "internal/") && !strings.Contains(path, "/internal/") && !strings.HasPrefix(path, "examples/") {
			packages = append(packages, path)
		}
	}
	if len(packages) < 8 {
		t.Fatalf("%d packages found: %q", len(packages), packages)
	}
	return packages
}

func goList(t *testing.T, format string, args ...string) string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", append([]string{"list", "-f", format}, args...)...)
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatalf("%s: %v", list, err)
	}
	return string(out)
}

// An export is a decision: docs/api.txt has a line for each exported function,
// type, method, field, constant and variable, in the form of Go's own api/*.txt.
func TestTheAPIIsListed(t *testing.T) {
	var lines []string
	load := compiled(t)
	for _, name := range promised(t) {
		pkg, err := load.Import(strings.TrimSuffix(module+strings.TrimPrefix(name, "."), "/"))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range api(pkg) {
			lines = append(lines, "pkg "+strings.Replace(name, ".", "ratelimit", 1)+", "+line)
		}
	}
	slices.Sort(lines)
	file := filepath.Join(root, "docs/api.txt")
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	listed := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	for _, line := range lines {
		if strings.Contains(line, "Internal") {
			t.Errorf("for this module only: %s", line)
		}
		if !slices.Contains(listed, line) {
			t.Errorf("not in docs/api.txt: %s", line)
		}
	}
	for _, line := range listed {
		if !slices.Contains(lines, line) {
			t.Errorf("only in docs/api.txt: %s", line)
		}
	}
	if !slices.IsSorted(listed) || len(listed) != len(lines) {
		t.Errorf("docs/api.txt has %d lines instead of %d, or they are not sorted", len(listed), len(lines))
	}
	if t.Failed() {
		t.Log("if the API is meant to change: go test ./internal/docs -run TestTheAPIIsListed -update")
	}
}

// compiled imports packages as the compiler has exported them.
func compiled(t *testing.T) types.Importer {
	t.Helper()
	files := make(map[string]string)
	for line := range strings.Lines(goList(t, "{{.ImportPath}} {{.Export}}", "-export", "-deps", "./...")) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
}

// api returns what a package exports, a line for each name.
func api(pkg *types.Package) (lines []string) {
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	qualifier := func(of *types.Package) string {
		if of == pkg {
			return ""
		}
		return of.Name()
	}
	text := func(typ types.Type) string { return types.TypeString(typ, qualifier) }
	signature := func(f *types.Func) string { return f.Name() + strings.TrimPrefix(text(f.Type()), "func") }
	for _, name := range pkg.Scope().Names() {
		object := pkg.Scope().Lookup(name)
		if !object.Exported() {
			continue
		}
		switch o := object.(type) {
		case *types.Const:
			add("const %s %s = %s", name, text(o.Type()), o.Val().ExactString())
		case *types.Var:
			add("var %s %s", name, text(o.Type()))
		case *types.Func:
			add("func %s", signature(o))
		case *types.TypeName:
			named, ok := o.Type().(*types.Named)
			if !ok || o.IsAlias() {
				add("type %s = %s", name, text(types.Unalias(o.Type())))
				continue
			}
			switch under := named.Underlying().(type) {
			case *types.Struct:
				add("type %s struct", name)
				for field := range under.Fields() {
					if field.Embedded() && field.Exported() {
						add("type %s struct, embedded %s", name, text(field.Type()))
					} else if field.Exported() {
						add("type %s struct, %s %s", name, field.Name(), text(field.Type()))
					}
				}
			case *types.Interface:
				add("type %s interface", name)
				for method := range under.Methods() {
					add("type %s interface, %s", name, signature(method))
				}
			default:
				add("type %s %s", name, text(under))
			}
			for method := range named.Methods() {
				if method.Exported() {
					add("method (%s) %s", text(method.Signature().Recv().Type()), signature(method))
				}
			}
		}
	}
	return lines
}

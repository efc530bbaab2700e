package docs

import (
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const started = "docs/getting-started.md"

// Every Go block is compiled as shown, by make test: it is a whole file that the build
// compiles, or consecutive lines of one. Such lines lack their imports, so their
// section links the file. There is no third kind. [TestEachStepCompiles] builds those of
// getting-started.md, which are the files of one program.
func TestEveryGoBlockIsCompiled(t *testing.T) {
	sources := compiledSources(t)
	seen := 0
	for _, p := range pages(t) {
		for _, b := range p.blocks() {
			if b.language != "go" || p.path == started {
				continue
			}
			seen++
			if err := checkBlock(p, b, sources); err != nil {
				t.Errorf("%s:%d: %v", p.path, b.line, err)
			}
		}
	}
	if seen < 15 {
		t.Errorf("%d blocks seen", seen)
	}
}

func TestWrongBlocksAreFound(t *testing.T) {
	const file = "package p\n\nimport \"fmt\"\n\nfunc f() {\n\tfmt.Println(1) // one\n\tfmt.Println(2)\n\t_ = `\nx := 1\n`\n\t/*\n\ty := 2\n\t*/\n}\n"
	sources := []source{{"testdata/programs/p/p.go", scan([]byte(file))}}
	for name, test := range map[string]struct {
		block, link string
		ok          bool
	}{
		"whole file":              {file, "", true},
		"lines, with a link":      {"fmt.Println(1) // one\nfmt.Println(2)\n", "[file](../testdata/programs/p/p.go)", true},
		"without a link":          {"fmt.Println(2)\n", "", false},
		"a link to another":       {"fmt.Println(2)\n", "[file](../testdata/programs/q/q.go)", false},
		"another comment":         {"fmt.Println(1) // two\nfmt.Println(2)\n", "[file](../testdata/programs/p/p.go)", false},
		"no comment":              {"fmt.Println(1)\nfmt.Println(2)\n", "[file](../testdata/programs/p/p.go)", false},
		"lines left out":          {"func f() {\n\tfmt.Println(2)\n", "[file](../testdata/programs/p/p.go)", false},
		"an ellipsis":             {"fmt.Println(1) // one\n…\n", "[file](../testdata/programs/p/p.go)", false},
		"a part of a line":        {"Println(2)\n", "[file](../testdata/programs/p/p.go)", false},
		"the beginning of a line": {"fmt.Println(2\n", "[file](../testdata/programs/p/p.go)", false},
		"only in a string":        {"x := 1\n", "[file](../testdata/programs/p/p.go)", false},
		"only in a comment":       {"y := 2\n", "[file](../testdata/programs/p/p.go)", false},
		"nothing":                 {"\n", "[file](../testdata/programs/p/p.go)", false},
		"a comment alone":         {"// one\n", "[file](../testdata/programs/p/p.go)", false},
		"most of a file":          {strings.TrimSuffix(file, "}\n"), "[file](../testdata/programs/p/p.go)", false},
	} {
		p := newPage("docs/page.md", "# Title\n\n```go\n"+test.block+"```\n\n"+test.link+"\n\n## Next\n\nnone\n")
		blocks := p.blocks()
		if len(blocks) != 1 || blocks[0].language != "go" {
			t.Fatalf("%s: %d blocks", name, len(blocks))
		}
		if err := checkBlock(p, blocks[0], sources); (err == nil) != test.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A source is a file that the build compiles.
type source struct {
	path   string // from the root, with slashes
	tokens []lexeme
}

// A lexeme is a token of Go, or a comment, and its line.
type lexeme struct {
	text string
	line int
	end  int
}

// compiledSources returns the files that pages may show: the programs made for
// them, the recipes, the examples, and the packages' examples. Files that a build constraint
// excludes are not among them.
func compiledSources(t *testing.T) []source {
	t.Helper()
	var sources []source
	for _, dir := range []string{".", "testdata/programs", "testdata/recipes", "examples/tracing"} {
		const files = `{{$d := .Dir}}{{range .GoFiles}}{{$d}}/{{.}}
{{end}}{{range .TestGoFiles}}{{$d}}/{{.}}
{{end}}{{range .XTestGoFiles}}{{$d}}/{{.}}
{{end}}`
		list := exec.CommandContext(t.Context(), "go", "list", "-f", files, "./...")
		list.Dir = filepath.Join(root, dir)
		out, err := list.Output()
		if err != nil {
			t.Fatalf("%s: %v", list, err)
		}
		top, err := filepath.Abs(root)
		if err != nil {
			t.Fatal(err)
		}
		for file := range strings.FieldsSeq(string(out)) {
			relative, err := filepath.Rel(top, file)
			if err != nil {
				t.Fatal(err)
			}
			name := filepath.ToSlash(relative)
			if !strings.HasPrefix(name, "testdata/") && !strings.HasPrefix(name, "examples/") && !strings.Contains(path.Base(name), "example") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sources = append(sources, source{name, scan(text)})
		}
	}
	if len(sources) < 10 {
		t.Fatalf("%d sources found", len(sources))
	}
	return sources
}

// scan returns the tokens and comments of Go, without the semicolons that are
// not written.
func scan(text []byte) []lexeme {
	var s scanner.Scanner
	set := token.NewFileSet()
	file := set.AddFile("", -1, len(text))
	s.Init(file, text, nil, scanner.ScanComments)
	var found []lexeme
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return found
		}
		if tok == token.SEMICOLON && literal == "\n" {
			continue
		}
		if literal == "" || tok.IsOperator() {
			literal = tok.String()
		}
		line := file.Line(pos)
		found = append(found, lexeme{literal, line, line + strings.Count(literal, "\n")})
	}
}

func checkBlock(p page, b block, sources []source) error {
	tokens := scan([]byte(b.text))
	if !slices.ContainsFunc(tokens, func(l lexeme) bool { return !strings.HasPrefix(l.text, "//") && !strings.HasPrefix(l.text, "/*") }) {
		return errors.New("no Go in it")
	}
	whole := slices.ContainsFunc(tokens, func(l lexeme) bool { return l.text == "package" })
	var found []string
	for _, s := range sources {
		at := s.index(tokens)
		if at < 0 || whole && len(tokens) != len(s.tokens) {
			continue
		}
		if whole || strings.Contains(b.section, "("+p.relative(s.path)) {
			return nil
		}
		found = append(found, p.relative(s.path))
	}
	if found != nil {
		return fmt.Errorf("the section links none of the files that have these lines: %s", strings.Join(found, ", "))
	}
	if whole {
		return errors.New("no compiled file of testdata, the examples and example_test.go is this one")
	}
	return errors.New("no compiled file of testdata, the examples and example_test.go has these lines, one after another")
}

// index returns where whole lines of the source have the tokens, -1 if nowhere.
func (s source) index(tokens []lexeme) int {
	for i := range s.tokens {
		end := i + len(tokens)
		if end > len(s.tokens) {
			break
		}
		if i > 0 && s.tokens[i-1].end == s.tokens[i].line || end < len(s.tokens) && s.tokens[end-1].end == s.tokens[end].line {
			continue
		}
		if slices.EqualFunc(tokens, s.tokens[i:end], func(a, b lexeme) bool { return a.text == b.text }) {
			return i
		}
	}
	return -1
}

// relative returns the link from the page to a file.
func (p page) relative(file string) string {
	link, err := filepath.Rel(filepath.FromSlash(path.Dir(p.path)), filepath.FromSlash(file))
	if err != nil {
		return file
	}
	return filepath.ToSlash(link)
}

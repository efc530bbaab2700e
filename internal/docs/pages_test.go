package docs

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A file is one of the repository.
type file struct {
	path string // from the root, with slashes
	text string
}

// files returns the repository's files, but for those of tools.
func files(t *testing.T) []file {
	t.Helper()
	found, err := readAll()
	if err != nil {
		t.Fatal(err)
	}
	return found
}

var readAll = sync.OnceValues(func() (found []file, err error) {
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(name, ".") && name != ".github" || name == "bin" || name == "node_modules"):
			return filepath.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		found = append(found, file{filepath.ToSlash(relative), string(text)})
		return err
	})
	return found, err
})

// A page is a Markdown file of the repository.
type page struct {
	path  string // from the root, with slashes
	lines []string
}

// pages returns every page of the repository.
func pages(t *testing.T) []page {
	t.Helper()
	var found []page
	for _, f := range files(t) {
		if path.Ext(f.path) == ".md" && !strings.HasPrefix(f.path, ".") {
			found = append(found, newPage(f.path, f.text))
		}
	}
	if len(found) < 10 {
		t.Fatalf("%d pages found", len(found))
	}
	return found
}

func newPage(path, text string) page { return page{path: path, lines: strings.Split(text, "\n")} }

// A block is the text between two fences.
type block struct {
	line     int // of the opening fence, from 1
	language string
	text     string
	section  string // the Markdown from the heading of level 1 or 2 before to that behind
}

// blocks returns the page's fenced blocks. One that is not closed ends with
// the page.
func (p page) blocks() []block {
	var found []block
	open := false
	begins := 0 // where the section begins, and of which blocks it is
	first := 0
	closeSection := func(end int) {
		for i := first; i < len(found); i++ {
			found[i].section = strings.Join(p.lines[begins:end], "\n")
		}
		begins, first = end, len(found)
	}
	for i, line := range p.lines {
		fence, language := strings.HasPrefix(strings.TrimSpace(line), "```"), strings.Trim(line, "` ")
		switch {
		case fence && !open:
			found = append(found, block{line: i + 1, language: language})
			open = true
		case fence:
			open = false
		case open:
			found[len(found)-1].text += line + "\n"
		case strings.HasPrefix(line, "# ") || strings.HasPrefix(line, "## "):
			closeSection(i)
		}
	}
	closeSection(len(p.lines))
	return found
}

// prose returns the page's lines with those of fenced blocks and inline code
// emptied, so that nothing in code is taken for Markdown.
func (p page) prose() []string {
	lines := make([]string, len(p.lines))
	open := false
	for i, line := range p.lines {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			open = !open
		} else if !open {
			lines[i] = inlineCode.ReplaceAllString(line, "")
		}
	}
	return lines
}

// A shape is one that what readers copy must not have.
type shape struct {
	seen    *regexp.Regexp // what may have it
	least   int            // times that
	wrong   func(text string) []string
	samples map[string]int // texts, and how often they are wrong
	mend    string
	without []string // folders
}

// wantNone looks for a shape in what readers see and copy: pages, rule files and Go, but for
// tests that are no examples, and CHANGELOG.md.
func wantNone(t *testing.T, of shape) {
	t.Helper()
	for text, wrong := range of.samples {
		if got := of.wrong(text); len(got) != wrong {
			t.Errorf("%q: %q", text, got)
		}
	}
	seen := 0
	for _, f := range files(t) {
		test := strings.HasSuffix(f.path, "_test.go") && !strings.HasPrefix(path.Base(f.path), "example")
		in := func(folder string) bool { return strings.HasPrefix(f.path, folder+"/") }
		if test || f.path == "CHANGELOG.md" || strings.HasPrefix(f.path, ".") || slices.ContainsFunc(of.without, in) || !slices.Contains([]string{".md", ".go", ".yaml", ".json"}, path.Ext(f.path)) {
			continue
		}
		seen += len(of.seen.FindAllString(f.text, -1))
		for _, wrong := range of.wrong(f.text) {
			t.Errorf("%s: %s: %s", f.path, wrong, of.mend)
		}
	}
	if seen < of.least {
		t.Errorf("%d seen, want %d", seen, of.least)
	}
}

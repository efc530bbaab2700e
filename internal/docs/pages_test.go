package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A page is a Markdown file of the repository.
type page struct {
	path  string // from the root, with slashes
	lines []string
}

// pages returns every page of the repository.
func pages(t *testing.T) []page {
	t.Helper()
	var found []page
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "bin" || name == "node_modules"):
			return filepath.SkipDir
		case entry.IsDir() || filepath.Ext(name) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		found = append(found, newPage(filepath.ToSlash(relative), string(text)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
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

// forEachText visits what readers see and copy: pages, rule files and Go, but for tests that
// are no examples, CHANGELOG.md, and folders whose paths end in one of without.
func forEachText(t *testing.T, visit func(name, text string), without ...string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name := filepath.ToSlash(path)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || slices.ContainsFunc(without, func(end string) bool { return strings.HasSuffix(name, end) })):
			return filepath.SkipDir
		case entry.IsDir() || strings.HasSuffix(name, "_test.go") && !strings.HasPrefix(entry.Name(), "example") || entry.Name() == "CHANGELOG.md":
			return nil
		}
		switch filepath.Ext(name) {
		case ".md", ".go", ".yaml", ".json":
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			visit(name, string(text))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

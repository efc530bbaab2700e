package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var generated = regexp.MustCompile(`(?s)<!-- [^>]+ -->.*?<!-- / -->`)

// words counts the words of a page, code included and what tools write left out. A word
// has a letter or a digit.
func words(text string) (count int) {
	isSpace := func(r rune) bool { return r == '|' || r == ' ' || r == '\n' || r == '\t' }
	for word := range strings.FieldsFuncSeq(generated.ReplaceAllString(text, ""), isSpace) {
		if strings.ContainsFunc(word, func(r rune) bool { return r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' }) {
			count++
		}
	}
	return count
}

// most is how many words README.md and docs may have together. Lower it when pages become
// shorter.
const most = 24_000

// What there is to read does not grow by accident.
func TestPagesAreShort(t *testing.T) {
	sum := 0
	for _, p := range pages(t) {
		if p.path == "README.md" || strings.HasPrefix(p.path, "docs/") {
			sum += words(strings.Join(p.lines, "\n"))
		}
	}
	if sum > most {
		t.Errorf("README.md and docs have %d words; at most %d: say it shorter, or leave out what readers can do without", sum, most)
	}
}

// A package's doc.go fits a screen and a half: what a caller needs first, then how it works.
func TestPackageCommentsAreShort(t *testing.T) {
	for _, pkg := range promised(t) {
		text, err := os.ReadFile(filepath.Join(root, pkg, "doc.go"))
		if os.IsNotExist(err) { // it stands in the only file
			continue
		}
		if lines := strings.Count(string(text), "\n"); err != nil || lines > 60 {
			t.Errorf("%s/doc.go has %d lines, at most 60; %v", pkg, lines, err)
		}
	}
}

func TestWordsAreCounted(t *testing.T) {
	for text, want := range map[string]int{
		"":                                  0,
		"# One two\n\n- three – four":       4,
		"| a | b |\n|---|---|\n| c d | | |": 4,
		"`x := 1` }":                        2,
		"one <!-- name -->two three<!-- / --> four": 2,
		"<!-- table -->\n\n| a |\n\n<!-- / -->\nb":  1,
	} {
		if got := words(text); got != want {
			t.Errorf("%q: %d words, want %d", text, got, want)
		}
	}
}

package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const (
	bounds    = "docs/words.txt"
	usersHave = 18_510 // words, in all pages of the file
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

// A page for users is not longer than docs/words.txt allows, and all together are not
// longer than what a user reads.
func TestPagesAreShort(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, bounds))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]page{}
	for _, p := range pages(t) {
		seen[p.path] = p
	}
	sum := 0
	var long []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) != 2 {
			t.Fatalf("%s: %q is not a page and a number", bounds, line)
		}
		most, err := strconv.Atoi(fields[1])
		p, ok := seen[fields[0]]
		if err != nil || !ok {
			t.Errorf("%s: %q: %v", bounds, line, err)
			continue
		}
		sum += most
		if got := words(strings.Join(p.lines, "\n")); got > most {
			long = append(long, fmt.Sprintf("%s has %d words; %s allows %d", p.path, got, bounds, most))
		}
	}
	for _, what := range long {
		t.Errorf("%s: shorten it, or raise its bound: %d words of the sum are left", what, usersHave-sum)
	}
	if sum > usersHave {
		t.Errorf("%s allows %d words in all; at most %d", bounds, sum, usersHave)
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

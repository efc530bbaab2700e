package docs

import (
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

var (
	inlineCode = regexp.MustCompile("`[^`]*`")
	link       = regexp.MustCompile(`\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)\)`) // also of an image
	reference  = regexp.MustCompile(`(?m)^\[([^\]]+)\]:\s*(\S+)`)
	referring  = regexp.MustCompile(`\]\[([^\]]*)\]`)
	anchorTag  = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
)

// Every link to a file or a heading of the repository leads there.
func TestLinksLeadSomewhere(t *testing.T) {
	all := make(map[string]page)
	for _, p := range pages(t) {
		all[p.path] = p
	}
	seen := 0
	for _, p := range all {
		seen += len(p.links())
		for _, wrong := range append(p.wrongLinks(all), p.wrongReferences()...) {
			t.Errorf("%s: %s", p.path, wrong)
		}
	}
	if seen < 50 {
		t.Errorf("%d links seen", seen)
	}
}

func TestWrongLinksAreFound(t *testing.T) {
	const other = "# Other\n\n## Retry-After, `t` and [draft 11](x)\n\n## Twice\n\n## Twice\n\n```\n# no heading\n```\n"
	all := map[string]page{"docs/other.md": newPage("docs/other.md", other)}
	for text, wrong := range map[string]int{
		"[a](architecture.md)":                      0,
		"[a](nothing.md)":                           1,
		"[a](../README.md)":                         0,
		"[a](../../README.md)":                      1,
		"[a](/README.md)":                           1,
		"[a](other.md#other)":                       0,
		"[a](other.md#retry-after-t-and-draft-11)":  0,
		"[a](other.md#twice-1)":                     0,
		"[a](other.md#twice-2)":                     1,
		"[a](other.md#no-heading)":                  1,
		"[a](#here), [b](#there)":                   1,
		"![a](accuracy/steady.svg)":                 0,
		"![a](accuracy/unsteady.svg)":               1,
		"`[a](nothing.md)`":                         0,
		"```\n[a](nothing.md)\n```":                 0,
		"[a]: nothing.md":                           1,
		"[a](../testdata/programs/p01)":             0,
		"[a](https://example.com/a_(b))":            0,
		"[a](https:///nowhere), [b](http://%zz.de)": 2,
		"[![a](nothing.svg)](nothing.md)":           2,
	} {
		p := newPage("docs/page.md", "# Here\n\n"+text+"\n")
		if got := p.wrongLinks(all); len(got) != wrong {
			t.Errorf("%q: %q", text, got)
		}
	}
}

func (p page) links() []string {
	var found []string
	text := strings.Join(p.prose(), "\n")
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	for _, m := range reference.FindAllStringSubmatch(text, -1) {
		found = append(found, m[2])
	}
	return found
}

// wrongReferences lists the names that are referred to and not defined, or the
// other way about.
func (p page) wrongReferences() (wrong []string) {
	text := strings.Join(p.prose(), "\n")
	defined := make(map[string]bool) // and used
	for _, m := range reference.FindAllStringSubmatch(text, -1) {
		defined[m[1]] = false
	}
	for _, m := range referring.FindAllStringSubmatch(text, -1) {
		if _, ok := defined[m[1]]; !ok {
			wrong = append(wrong, "["+m[1]+"] is not defined")
		}
		defined[m[1]] = true
	}
	for name, used := range defined {
		if !used {
			wrong = append(wrong, "["+name+"] is not used")
		}
	}
	return wrong
}

func TestWrongReferencesAreFound(t *testing.T) {
	p := newPage("docs/page.md", "[a][x] [b][y] `[c][z]`\n\n[x]: https://example.com\n[w]: https://example.com\n")
	if got := p.wrongReferences(); len(got) != 2 {
		t.Errorf("%q", got)
	}
}

// wrongLinks says what is wrong with the page's links.
func (p page) wrongLinks(all map[string]page) (wrong []string) {
	for _, to := range p.links() {
		target, err := url.Parse(to)
		switch {
		case err != nil:
			wrong = append(wrong, err.Error())
			continue
		case target.Scheme == "http" || target.Scheme == "https":
			if target.Host == "" {
				wrong = append(wrong, strconv.Quote(to)+" has no host")
			}
			continue
		case target.Scheme != "" || strings.HasPrefix(target.Path, "/"):
			wrong = append(wrong, strconv.Quote(to)+" is neither relative nor of the web")
			continue
		}
		file, linked := p.path, p
		if target.Path != "" {
			file = path.Join(path.Dir(p.path), target.Path)
			linked = all[file]
		}
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(file))); strings.HasPrefix(file, "..") || err != nil && linked.path == "" && target.Path != "" {
			wrong = append(wrong, strconv.Quote(to)+": no such file")
			continue
		}
		if target.Fragment != "" && path.Ext(file) == ".md" && !linked.anchors()[target.Fragment] {
			wrong = append(wrong, strconv.Quote(to)+": no such heading")
		}
	}
	return wrong
}

// anchors returns the anchors that GitHub gives the page's headings.
func (p page) anchors() map[string]bool {
	anchors := make(map[string]bool)
	open := false
	for _, line := range p.lines {
		for _, m := range anchorTag.FindAllStringSubmatch(line, -1) {
			anchors[m[1]] = true
		}
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			open = !open
		}
		title := strings.TrimLeft(line, "#")
		if open || title == line || !strings.HasPrefix(title, " ") {
			continue
		}
		name := anchor(title)
		for i := 1; anchors[name]; i++ {
			name = anchor(title) + "-" + strconv.Itoa(i)
		}
		anchors[name] = true
	}
	return anchors
}

var linkText = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// anchor returns what GitHub makes of a heading: small letters, digits, hyphens
// and underscores, and hyphens for spaces.
func anchor(title string) string {
	title = linkText.ReplaceAllString(strings.TrimSpace(title), "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, title)
}

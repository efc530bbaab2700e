package rulefile_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"
)

const good = "version: 1\nrules:\n  - name: r\n    key: ip\n    limit: 5/1m\n"

// What editors of other systems write is read.
func TestOtherEditors(t *testing.T) {
	for name, text := range map[string]string{
		"a byte order mark":           "\ufeff" + good,
		"CRLF":                        strings.ReplaceAll(good, "\n", "\r\n"),
		"both":                        "\ufeff" + strings.ReplaceAll(good, "\n", "\r\n"),
		"no newline at the end":       strings.TrimSuffix(good, "\n"),
		"the start of a document":     "---\n" + good,
		"the end of a document":       good + "...\n",
		"comments after the end":      good + "...\n# that was all\n",
		"blank lines":                 "\n\n" + good + "\n  \n\n",
		"comments that are not ASCII": "# für alle 🙂, ⚠️\u00a0важно\n" + good,
	} {
		if rules, err := loader().Parse("f", []byte(text)); err != nil || len(rules) != 1 || rules[0].Limit.Rate != 5 {
			t.Errorf("%s: %v, %v", name, rules, err)
		}
	}
	// Places are those that such an editor shows.
	_, err := loader().Parse("f", []byte("\ufeffversion: 1\r\nrules:\r\n- {name: 'ü ö', key: ip, limit: 5}\r\n"))
	if err == nil || !strings.HasPrefix(err.Error(), "f:3:10: rules[0].name: 'ü' in \"ü ö\";") || !strings.Contains(err.Error(), "\nf:3:33: rules[0].limit: ") {
		t.Error(err)
	}
}

// What programs write as JSON may have escapes that YAML lacks: PHP escapes slashes, and
// Python writes characters as two halves.
func TestEscapesOfJSON(t *testing.T) {
	const note = `\/ \\/ \"\\\" \ud83d\ude00 \\ud83d\\ude00 \u00e9`
	text := `{"version":1,"rules":[{"name":"a","key":"ip","limit":"9\/1m","match":["POST \/login"],` +
		`"overrides":[{"client":"192.0.2.1","limit":"99\/1m","note":"` + note + `"}]}]}`
	rules, err := loader().Parse("rules.json", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var want string
	if err := json.Unmarshal([]byte(`"`+note+`"`), &want); err != nil {
		t.Fatal(err)
	}
	if got := rules[0].Overrides[0].Note; got != want || rules[0].Match[0] != "POST /login" {
		t.Errorf("got %q %q, want %q", rules[0].Match, got, want)
	}
	if _, err := loader().Parse("rules.json", []byte(strings.Replace(text, `\ude00`, "", 1))); err == nil {
		t.Error("half a character is no mistake")
	}
	if _, err := loader().Parse("rules.yaml", []byte(`{version: 1, rules: [{name: a, key: ip, limit: "9\/1m"}]}`)); err == nil {
		t.Error("YAML has another escape")
	}
}

func TestWhatIsNoText(t *testing.T) {
	wide := []byte{0xff, 0xfe}
	for _, unit := range utf16.Encode([]rune(good)) {
		wide = append(wide, byte(unit), byte(unit>>8))
	}
	for want, text := range map[string]string{
		"f:1:1: byte 0xff is not UTF-8":                              string(wide),
		"f:4:2: byte 0xfc is not UTF-8":                              "version: 1\r\n\n\n#\xfc\n",
		"f:4:4: byte 0xe2 is not UTF-8":                              "version: 1\n\r\n\n#ü \xe2\x82",
		"f:2:5: control character U+0000":                            "#\n    \x00",
		"f:1:3: control character U+001B":                            "# \x1b[2J\nlevel=ERROR",
		"f:1:2: control character U+007F":                            "#\x7f",
		"f:1:2: control character U+0085":                            "#\u0085",
		"f:1:11: a carriage return without a line feed":              strings.ReplaceAll(good, "\n", "\r"),
		"f:5:16: a carriage return without a line feed":              good[:len(good)-1] + "\r",
		"f:5:18: a carriage return without a line feed":              good[:len(good)-1] + " #\r    hidden: true\n",
		"f:5:19: line separator U+2028":                              good[:len(good)-1] + " # \u2028    hidden: true\n",
		"f:5:19: line separator U+2029":                              good[:len(good)-1] + " # \u2029    hidden: true\n",
		`f:1:1: no document`:                                         "",
		`f:1:1: no document: write "version: 1"`:                     " \n\n# nothing\n",
		`f:2:1: must have the fields version and rules, got nothing`: "---\n",
		`f:1:1: must have the fields version and rules, got "PK"`:    "PK",
		"f:6:1: a second document":                                   good + "---\n",
		"f:7:1: a second document":                                   good + "...\n---\n# nothing",
		"f:7:1: did not find expected":                               good + "...\nversion: 2\n",
		"f: larger than 1048576 bytes":                               good + "#" + strings.Repeat("x", 1<<20),
		"f:2:8: rules: is empty; write a list of rules, each starting with -\nf:3:38: x-a" + strings.Repeat("[0]", 32) + ": nested more than 32": "version: 1\nrules: []\nx-a: " + strings.Repeat("[", 40) + strings.Repeat("]", 40),
		"f:1:1: exceeded max depth of 10000":                                 strings.Repeat("[", 20000),
		"f:3:1: found incompatible YAML document; remove the line":           "%YAML 1.2\n---\n" + good,
		"f:1:29: rules[0].name: must have at most 1000 characters, got 1001": "{version: 1, rules: [{name: " + strings.Repeat("ü", 1001) + ", key: ip, limit: 5/1m}]}",
	} {
		rules, err := loader().Parse("f", []byte(text))
		if err == nil || rules != nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.60q: %v; want %s", text, err, want)
		}
	}
}

// What editors and reviews do not show, or show somewhere else, is nowhere in a
// document, not even in a comment.
func TestNothingIsInvisible(t *testing.T) {
	for _, r := range "\u00ad\u034f\u061c\u115f\u1160\u180e\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2064\u2066\u2067\u2068\u2069\u3164\ufeff\uffa0\U000e0001\U000e0061" {
		_, err := loader().Parse("f", []byte("# ü"+string(r)+"\n"+good))
		if want := fmt.Sprintf("f:1:4: character %U, which is invisible", r); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
}

// A document may be as large as allowed and as bad as can be: what is said about it
// fits on a few pages. Reading it takes no second; if that grew with the square of
// the size, it would outlast the time that all tests have.
func TestBadDocumentsCostLittle(t *testing.T) {
	const size = 1 << 18
	for name, text := range map[string]string{
		"a flat list":       "[" + strings.Repeat("a,", size/2-1) + "]",
		"empty rules":       "version: 1\nrules:\n" + strings.Repeat("- {}\n", size/5-10),
		"bad rules":         "version: 1\nrules:\n" + strings.Repeat("- {x: 1}\n", size/9-10),
		"rules of one name": "version: 1\nrules:\n" + strings.Repeat("- {name: a, key: ip, limit: 5/1m}\n", size/34-10),
		"a duplicate key":   strings.Repeat("a: 1\n", size/5),
		"anchors":           strings.Repeat("- &a 1\n", size/7),
		"deep mappings":     strings.Repeat("{a: ", 9000),
		"many patterns":     "{version: 1, rules: [{name: r, key: ip, limit: 5/1m, match: [" + strings.Repeat("/*, ", size/4-30) + "]}]}",
		"many costs":        "{version: 1, rules: [{name: r, key: ip, limit: 5/1m, costs: {" + numbered(15_000, "/{a}/%d/{b}: 1,") + "}}]}",
		"many parts":        "{version: 1, rules: [{name: r, limit: 5/1m, key: [" + numbered(15_000, "header:X-%d, ") + "]}]}",
		"many rules":        "version: 1\nrules:\n" + numbered(6000, "- {name: r%d, key: ip, limit: 5/1m}\n"),
		"many good ones":    "{version: 1, rules: [{name: r, key: ip, limit: 5/1m, match: [" + numbered(25_000, "/%d, ") + "]}]}",
		"patterns of rules": "version: 1\nrules:\n" + numbered(200, "- {name: r%d, key: ip, limit: 5/1m, match: ["+strings.Repeat("/a/b,", 230)+"]}\n"),
		"long texts":        "{version: 1, rules: [{name: " + strings.Repeat("x", size/2) + ", " + strings.Repeat("y", size/2-100) + ": 1}]}",
		"comments":          strings.Repeat("#\n", size/2),
		"brackets":          strings.Repeat("[", size),
		"one quote":         "'" + strings.Repeat("\n", size-1),
	} {
		_, err := loader().Parse("f", []byte(text))
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		if size := len(err.Error()); size > 300_000 {
			t.Errorf("%s: %d bytes of errors", name, size)
		}
	}
}

func numbered(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

func TestManyMistakes(t *testing.T) {
	text := "version: 1\nrules:\n" + strings.Repeat("- {name: r}\n", 1000)
	_, err := loader().Parse("f", []byte(text))
	if got := strings.Count(err.Error(), "\n"); got != 100 || !strings.HasSuffix(err.Error(), "\nf: and 1900 more") {
		t.Errorf("%d lines, the last is %s", got+1, err.Error()[strings.LastIndex(err.Error(), "\n"):])
	}
}

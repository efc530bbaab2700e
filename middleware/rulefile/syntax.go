package rulefile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

var (
	located = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)
	unknown = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
	blocks  = regexp.MustCompile(`^did not find expected (key|'-' indicator|<document start>)`) // messages about a whole line
)

// mends are the remedies for the parser's most frequent messages.
var mends = []struct{ problem, mend string }{
	{"incompatible YAML document", "remove the line that starts with %YAML"},
	{"expected ',' or", `put { and } inside a list in quotes, as in ["GET /u/{id}"], and close each bracket`},
	{"tab character", "indent with spaces"},
	{"mapping values are not allowed", `put text that has ": " in it in quotes, or mend the indentation`},
	{"did not find expected", "mend the indentation: the fields of a rule start in one column"},
	{"could not find expected ':'", "write field: value"},
	{"cannot start any token", "put text that starts with @, `, %, or a tab in quotes"},
	{"unexpected end of stream", "close the quote"},
	{"unknown escape character", `write \\ for a backslash, or use single quotes`},
}

// syntaxError returns the place of the parser's error, and a text with a remedy.
//
// The parser names a line without a column, and not always the right one. For a
// mistake in a list in brackets it is the line before the list. For a mistake in the
// indentation it is the first line of the block. The position up to which the parser
// has read is never before the mistake, and mostly at most a word behind it.
func syntaxError(text []byte, err error) (spot, error) {
	m := located.FindStringSubmatch(err.Error())
	if m == nil {
		m = []string{"", "", err.Error()}
	}
	problem := m[2]
	if anchor := unknown.FindStringSubmatch(problem); anchor != nil {
		return placeAt(text, bytes.Index(text, []byte("*"+anchor[1]))),
			errors.New("aliases are not used in rule files; write the value out")
	}
	read := consumed(text)
	line, _ := strconv.Atoi(m[1])
	switch {
	case strings.Contains(problem, "expected ',' or"):
		line++
	case strings.Contains(problem, "did not find expected"):
		line = 0
	case strings.Contains(problem, "tab character"):
		read = bytes.LastIndexByte(text[:read], '\t') + 1
		line = placeAt(text, read).line
	}
	at := placeAt(text, wordBefore(text, read))
	if line = min(cmp.Or(line, at.line), lines(text)); line != at.line || blocks.MatchString(problem) {
		at = firstOf(text, line)
	}
	indented := bytes.TrimLeft(bytes.Split(text, []byte("\n"))[at.line-1], " ")
	if bytes.HasPrefix(indented, []byte("\t")) && !strings.Contains(problem, "tab character") { // the parser may say "bad token"
		problem = "found a tab character"
	}
	for _, m := range mends {
		if strings.Contains(problem, m.problem) {
			problem += "; " + m.mend
			break
		}
	}
	return at, errors.New(problem)
}

// consumed returns how many bytes the parser reads before it finds the mistake.
func consumed(text []byte) int {
	r := &byByte{text: text}
	decoder := yaml.NewDecoder(r)
	for {
		if _, err := next(decoder); err != nil {
			return r.read
		}
	}
}

// next returns the next document. The parser has panicked on bad input before
// (CVE-2022-28948), and a watched file must not end the program.
func next(decoder *yaml.Decoder) (doc *yaml.Node, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("yaml: %v", v)
		}
	}()
	doc = new(yaml.Node)
	err = decoder.Decode(doc)
	return doc, err
}

type byByte struct {
	text []byte
	read int
}

func (r *byByte) Read(p []byte) (int, error) {
	if r.read == len(r.text) {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), 1)], r.text[r.read:])
	r.read += n
	return n, nil
}

// wordBefore returns the index of the last word that begins before an index.
func wordBefore(text []byte, end int) int {
	head := bytes.TrimRight(text[:end], " \t\r\n")
	return bytes.LastIndexAny(head, " \t\r\n") + 1
}

func lines(text []byte) int { return bytes.Count(bytes.TrimRight(text, "\r\n"), []byte("\n")) + 1 }

// firstOf returns the place where the text of a line begins.
func firstOf(text []byte, line int) spot {
	i := 0
	for range line - 1 {
		i += bytes.IndexByte(text[i:], '\n') + 1
	}
	rest := text[i:]
	return placeAt(text, i+len(rest)-len(bytes.TrimLeft(rest, " \t")))
}

func placeAt(text []byte, i int) spot {
	head := text[:max(i, 0)]
	return spot{
		line:   bytes.Count(head, []byte("\n")) + 1,
		column: utf8.RuneCount(head[bytes.LastIndexByte(head, '\n')+1:]) + 1,
	}
}

package accuracy

import (
	"fmt"
	"regexp"
	"strings"
)

// A place is where a document shows a figure:
//
//	<!-- name -->what it is now<!-- / -->
//
// Tables stand on lines of their own.
var place = regexp.MustCompile(`(?s)<!-- (\S+) -->(.*?)<!-- / -->`)

// startsLine is a place inside a paragraph that begins a line: Markdown would
// end the paragraph there.
var startsLine = regexp.MustCompile(`(?m)^ *<!-- \S+ -->\S.*$`)

// fill puts the figures into a document's places.
func (f figures) fill(document string) string {
	return place.ReplaceAllStringFunc(document, func(old string) string {
		part := place.FindStringSubmatch(old)
		if text, ok := f[part[1]]; ok {
			return fmt.Sprintf("<!-- %s -->%s<!-- / -->", part[1], framed(text))
		}
		return old
	})
}

// stale lists the document's places that show something else than the figures
// say.
func (f figures) stale(document string) []string {
	var names []string
	for _, part := range place.FindAllStringSubmatch(document, -1) {
		if text, ok := f[part[1]]; ok && part[2] != framed(text) {
			names = append(names, part[1])
		}
	}
	return names
}

// places lists the names of a document's places.
func places(document string) []string {
	var names []string
	for _, part := range place.FindAllStringSubmatch(document, -1) {
		names = append(names, part[1])
	}
	return names
}

func framed(text string) string {
	if strings.HasSuffix(text, "\n") {
		return "\n\n" + text + "\n"
	}
	return text
}

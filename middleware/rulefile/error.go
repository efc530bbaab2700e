package rulefile

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrConflict says that the document in force is not the version that the publisher read.
var ErrConflict = errors.New("rulefile: the document was replaced by another publisher")

// An Error is one mistake in a document. [Loader.Load] joins them, in the order of
// the document.
type Error struct {
	Name         string // of the document
	Line, Column int    // from 1; 0 if the mistake has no place
	Path         string // such as "rules[1].limit"; "" is the whole document
	Err          error  // what is wrong, and what to write
}

// Error returns name:line:column: path: err.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(printable(e.Name))
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", e.Line, e.Column)
	}
	if e.Path != "" {
		b.WriteString(": " + e.Path)
	}
	return b.String() + ": " + e.Err.Error()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// A problem is an error about a document as a whole. The same problem always has the
// same text.
type problem string

func (p problem) Error() string { return string(p) }

// printable returns s, quoted if it could forge a line in a log.
func printable(s string) string {
	if quoted := strconv.Quote(s); quoted[1:len(quoted)-1] != s {
		return quoted
	}
	return s
}

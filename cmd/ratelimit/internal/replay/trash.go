package replay

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	shown    = 100 // bytes of a bad line
	examples = 3   // bad lines of a kind
)

// A trash counts the lines that are not replayed, and keeps the first of each kind.
type trash struct {
	counts map[string]int64
	first  map[string][]example
	by     time.Duration // the most that a line was too late
}

type example struct {
	source string
	line   int64
	text   string
}

const (
	kindLate   = "out of order by more than a minute"
	kindJumped = "an hour or more ahead of the lines around it"
)

func (t *trash) bad(source string, line int64, text string, err error) {
	t.add(err.Error(), source, line, text)
}

func (t *trash) late(source string, r *numbered, by time.Duration) {
	t.add(kindLate, source, r.line, r.at.UTC().Format(time.RFC3339))
	t.by = max(t.by, by)
}

func (t *trash) jumped(source string, r *numbered) {
	t.add(kindJumped, source, r.line, r.at.UTC().Format(time.RFC3339))
}

func (t *trash) add(kind, source string, line int64, text string) {
	if t.counts == nil {
		t.counts, t.first = make(map[string]int64), make(map[string][]example)
	}
	t.counts[kind]++
	if first := t.first[kind]; len(first) < examples {
		t.first[kind] = append(first, example{source, line, strings.Clone(text[:min(len(text), shown+1)])})
	}
}

// total is how many lines are not replayed.
func (t *trash) total() (n int64) {
	for count := range maps.Values(t.counts) {
		n += count
	}
	return n
}

// String returns a line for each kind, the most frequent first, each with its
// first lines. They are quoted, so that they cannot move a terminal's cursor.
func (t *trash) String() string {
	var b strings.Builder
	kinds := slices.SortedFunc(maps.Keys(t.counts), func(x, y string) int {
		return cmp.Or(cmp.Compare(t.counts[y], t.counts[x]), strings.Compare(x, y))
	})
	for _, kind := range kinds {
		fmt.Fprintf(&b, "  %s × %s\n", count(t.counts[kind]), kind)
		for _, e := range t.first[kind] {
			more := ""
			if len(e.text) > shown {
				e.text, more = e.text[:shown], "…"
			}
			fmt.Fprintf(&b, "    %s:%d: %q%s\n", e.source, e.line, e.text, more)
		}
	}
	return b.String()
}

// Package topk counts how often keys are added, in bounded memory, and lists those that
// were added most.
package topk

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	maxEntries = 256              // keys counted at a time
	window     = 10 * time.Minute // after which counting starts again
)

// An Entry is a key of a rule and how often it was added. Count is never too low, and at
// most Error too high.
type Entry struct {
	Rule, Key    string
	Count, Error int64
}

// A Counter counts keys in the current window and keeps the counts of the window before.
// The zero value is ready. It is safe for concurrent use.
type Counter struct {
	mu        sync.Mutex
	window    int64 // its number
	now, last sketch
}

// Add counts a key once. The time is any monotonic one, such as the time since the
// process began.
func (c *Counter) Add(now time.Duration, rule, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rotate(now)
	c.now.add(pair{rule, key})
}

// rotate begins a new window when the current one has ended.
func (c *Counter) rotate(now time.Duration) {
	n := int64(now / window)
	if n <= c.window { // below, if another call was quicker
		return
	}
	if n == c.window+1 {
		c.last = c.now
	} else {
		c.last = sketch{}
	}
	c.now, c.window = sketch{}, n
}

// List returns the keys of the two windows, those with the highest counts first. Every
// key with more than one in 256 of all additions is among them, and no Error is larger
// than one in 256 of all additions.
func (c *Counter) List(now time.Duration) []Entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rotate(now)
	top := make([]Entry, 0, len(c.now.ids)+len(c.last.ids))
	for i, id := range slices.Concat(c.now.ids, c.last.ids) {
		if _, both := c.now.at[id]; both && i >= len(c.now.ids) {
			continue
		}
		count, over := c.now.count(id)
		before, overBefore := c.last.count(id)
		top = append(top, Entry{id.rule, id.key, count + before, over + overBefore})
	}
	slices.SortFunc(top, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Error, b.Error),
			strings.Compare(a.Rule, b.Rule), strings.Compare(a.Key, b.Key))
	})
	return top
}

type pair struct{ rule, key string }

// A sketch counts by the space-saving algorithm (Metwally, Agrawal, El Abbadi: "Efficient
// Computation of Frequent and Top-k Elements in Data Streams", 2005). The zero value is
// ready.
type sketch struct {
	at     map[pair]int // index into the others
	ids    []pair
	counts []int64
	errors []int64
	low    int64 // no count is lower
	from   int   // where the search for a count of low continues
}

func (s *sketch) add(id pair) {
	if i, ok := s.at[id]; ok {
		s.counts[i]++
		return
	}
	id.key = strings.Clone(id.key) // may be part of a large request
	if len(s.ids) < maxEntries {
		if s.at == nil {
			s.at = make(map[pair]int, maxEntries)
		}
		s.at[id] = len(s.ids)
		s.ids, s.counts, s.errors = append(s.ids, id), append(s.counts, 1), append(s.errors, 0)
		return
	}
	i := s.least()
	delete(s.at, s.ids[i])
	s.at[id], s.ids[i] = i, id
	s.errors[i] = s.counts[i]
	s.counts[i]++
}

// least returns the index of a lowest count. Counts only rise, and in a flood most are
// equal, so that the search mostly ends at its first step.
func (s *sketch) least() int {
	for {
		for range s.counts {
			if s.counts[s.from] == s.low {
				return s.from
			}
			s.from = (s.from + 1) % len(s.counts)
		}
		s.low = slices.Min(s.counts)
	}
}

// count returns how often a key was added at most, and how far that may be above
// the truth. A missing key may have been replaced.
func (s *sketch) count(id pair) (n, over int64) {
	if i, ok := s.at[id]; ok {
		return s.counts[i], s.errors[i]
	}
	if len(s.ids) < maxEntries {
		return 0, 0
	}
	floor := s.counts[s.least()]
	return floor, floor
}

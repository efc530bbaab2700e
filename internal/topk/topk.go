// Package topk counts how often keys are added, in bounded memory, and lists those that
// were added most.
package topk

import (
	"cmp"
	"hash/maphash"
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
	hash := maphash.Comparable(seed, pair{rule, key})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rotate(now)
	c.now.add(hash, rule, key)
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
	top := make([]Entry, 0, len(c.now.cells)+len(c.last.cells))
	for i, it := range slices.Concat(c.now.cells, c.last.cells) {
		if _, both := c.now.at[it.hash]; both && i >= len(c.now.cells) {
			continue
		}
		count, over := c.now.count(it.hash)
		before, overBefore := c.last.count(it.hash)
		top = append(top, Entry{it.rule, string(it.key), count + before, over + overBefore})
	}
	slices.SortFunc(top, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Error, b.Error),
			strings.Compare(a.Rule, b.Rule), strings.Compare(a.Key, b.Key))
	})
	return top
}

type pair struct{ rule, key string }

// seed is secret: clients choose keys.
var seed = maphash.MakeSeed()

// A sketch counts by the space-saving algorithm (Metwally, Agrawal, El Abbadi: "Efficient
// Computation of Frequent and Top-k Elements in Data Streams", 2005). The zero value is
// ready.
type sketch struct {
	at    map[uint64]int // index of a cell, by hash
	cells []cell
	low   int64 // no count is lower
	from  int   // where the search for a count of low continues
}

// A cell counts one key.
type cell struct {
	hash         uint64 // of the pair
	rule         string
	key          []byte // a copy, whose memory further keys use: in a flood of keys, each is new here
	count, error int64
}

func (s *sketch) add(hash uint64, rule, key string) {
	if i, ok := s.at[hash]; ok {
		s.cells[i].count++
		return
	}
	if s.at == nil {
		s.at = make(map[uint64]int, maxEntries)
	}
	i := len(s.cells)
	if i < maxEntries {
		s.cells = append(s.cells, cell{})
	} else {
		i = s.least()
		delete(s.at, s.cells[i].hash)
	}
	s.at[hash] = i
	c := &s.cells[i]
	c.hash, c.rule, c.key, c.error = hash, rule, append(c.key[:0], key...), c.count
	c.count++
}

// least returns the index of a lowest count. Counts only rise, and in a flood most are
// equal, so that the search mostly ends at its first step.
func (s *sketch) least() int {
	for {
		for range s.cells {
			if s.cells[s.from].count == s.low {
				return s.from
			}
			s.from = (s.from + 1) % len(s.cells)
		}
		s.low = slices.MinFunc(s.cells, func(a, b cell) int { return cmp.Compare(a.count, b.count) }).count
	}
}

// count returns how often a key was added at most, and how far that may be above
// the truth. A missing key may have been replaced.
func (s *sketch) count(hash uint64) (n, over int64) {
	if i, ok := s.at[hash]; ok {
		return s.cells[i].count, s.cells[i].error
	}
	if len(s.cells) < maxEntries {
		return 0, 0
	}
	floor := s.cells[s.least()].count
	return floor, floor
}

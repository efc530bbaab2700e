package topk

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	topEntries = 256              // keys counted at a time
	topWindow  = 10 * time.Minute // after which counting starts anew
)

// A DeniedKey is a key that was denied often.
type DeniedKey struct {
	Rule  string // the rule's Name
	Key   string // hashed as in the log, unless Config.LogKeys; "" for requests without a key
	Count int64  // denials; at most Error too many, never too few
	Error int64  // how far Count may be above the truth
}

// TopDenied returns the n keys that were denied most in the last ten to twenty
// minutes, those with the most denials first. Denials by a rule in shadow do not
// count, and neither do those of [failmode.Closed], which say nothing about the
// client.
//
// The memory is bounded: 256 keys are counted at a time, by the space-saving
// algorithm (Metwally, Agrawal, El Abbadi: "Efficient Computation of Frequent and
// Top-k Elements in Data Streams", 2005). Every key with more than one in 256 of
// the denials is returned, and no Error is larger than one in 256 of them.
func (m *Middleware) TopDenied(n int) []DeniedKey {
	m.mustBeMade()
	top := m.top.list(time.Since(m.start))
	top = top[:min(max(n, 0), len(top))]
	for i := range top {
		top[i].Key = m.shown(top[i].Key)
	}
	return top
}

// topDenied counts denials in the current window, and keeps the one before.
type topDenied struct {
	mu        sync.Mutex
	window    int64 // since the middleware's start
	now, last heavy
}

func (t *topDenied) add(now time.Duration, rule, key string) {
	key = bounded(key)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn(now)
	t.now.add(deniedID{rule, key})
}

// turn begins a new window when the current one is over.
func (t *topDenied) turn(now time.Duration) {
	window := int64(now / topWindow)
	if window <= t.window { // below, if another denial was quicker
		return
	}
	if window == t.window+1 {
		t.last = t.now
	} else {
		t.last = heavy{}
	}
	t.now, t.window = heavy{}, window
}

func (t *topDenied) list(now time.Duration) []DeniedKey {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn(now)
	top := make([]DeniedKey, 0, len(t.now.ids)+len(t.last.ids))
	for i, id := range t.now.ids {
		count, over := t.last.count(id)
		top = append(top, DeniedKey{id.rule, id.key, t.now.counts[i] + count, t.now.errors[i] + over})
	}
	for i, id := range t.last.ids {
		if _, both := t.now.at[id]; !both {
			count, over := t.now.count(id)
			top = append(top, DeniedKey{id.rule, id.key, t.last.counts[i] + count, t.last.errors[i] + over})
		}
	}
	slices.SortFunc(top, func(a, b DeniedKey) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Error, b.Error),
			strings.Compare(a.Rule, b.Rule), strings.Compare(a.Key, b.Key))
	})
	return top
}

type deniedID struct{ rule, key string }

// heavy is a space-saving sketch. Its zero value is ready.
type heavy struct {
	at     map[deniedID]int // index into the others
	ids    []deniedID
	counts []int64
	errors []int64
	low    int64 // no count is lower
	from   int   // where the search for a count of low goes on
}

func (h *heavy) add(id deniedID) {
	if i, ok := h.at[id]; ok {
		h.counts[i]++
		return
	}
	id.key = strings.Clone(id.key) // may be part of a large request
	if len(h.ids) < topEntries {
		if h.at == nil {
			h.at = make(map[deniedID]int, topEntries)
		}
		h.at[id] = len(h.ids)
		h.ids, h.counts, h.errors = append(h.ids, id), append(h.counts, 1), append(h.errors, 0)
		return
	}
	i := h.least()
	delete(h.at, h.ids[i])
	h.at[id], h.ids[i] = i, id
	h.errors[i] = h.counts[i]
	h.counts[i]++
}

// least returns the index of a lowest count. Counts only rise, and in a flood most
// are alike: the next one is mostly the next.
func (h *heavy) least() int {
	for {
		for range h.counts {
			if h.counts[h.from] == h.low {
				return h.from
			}
			h.from = (h.from + 1) % len(h.counts)
		}
		h.low = slices.Min(h.counts)
	}
}

// count returns how often a key was added at most, and how far that may be above
// the truth. A key that is missing may have been pushed out.
func (h *heavy) count(id deniedID) (n, over int64) {
	if i, ok := h.at[id]; ok {
		return h.counts[i], h.errors[i]
	}
	if len(h.ids) < topEntries {
		return 0, 0
	}
	floor := h.counts[h.least()]
	return floor, floor
}

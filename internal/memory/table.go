package memory

import "github.com/seed75154129/ratelimit/internal/step"

// A table has the entries of a shard. It is one allocation without pointers, so that a
// look-up touches one or two cache lines and the garbage collector does not scan it. Entries
// are found by linear probing;
// see Knuth, "The Art of Computer Programming", volume 3, section 6.4, algorithms L and R.
// The zero value is ready.
type table struct {
	entries []entry // a power of two; one without a countID is free
	shift   uint    // 64 less the bits of an index
	used    int
	moves   uint64 // how often entries were moved, which makes pointers to them invalid
	hand    int    // where the next sweep begins
	logs    map[countID][]step.LogEntry
}

// A countID identifies a count, or a ban, by 128 bits of hash with secret seeds of
// this process. It is never zero. Keys may be long, and clients choose them.
type countID [2]uint64

type entry struct {
	countID
	until   int64 // Unix µs from which on it equals a key never seen
	a, b, c int64 // of the state
}

const fewestEntries = 8

// home is where the search for an ID begins.
func (t *table) home(id countID) int { return int(id[0] >> t.shift) }

func (t *table) next(i int) int { return (i + 1) & (len(t.entries) - 1) }

// find returns the entry of an ID, or nil. It is valid until the next add or remove.
func (t *table) find(id countID) *entry {
	if i := t.index(id); i >= 0 {
		return &t.entries[i]
	}
	return nil
}

// index returns where the entry of an ID is; -1 if there is none.
func (t *table) index(id countID) int {
	if t.used == 0 {
		return -1
	}
	for i := t.home(id); ; i = t.next(i) {
		switch t.entries[i].countID {
		case id:
			return i
		case countID{}:
			return -1
		}
	}
}

// add returns a new entry for an ID that has none.
func (t *table) add(id countID) *entry {
	if (t.used+1)*4 > len(t.entries)*3 {
		t.grow()
	}
	t.used++
	return t.place(entry{countID: id})
}

func (t *table) place(e entry) *entry {
	i := t.home(e.countID)
	for t.entries[i].countID != (countID{}) {
		i = t.next(i)
	}
	t.entries[i] = e
	return &t.entries[i]
}

func (t *table) grow() {
	old := t.entries
	t.moves++
	if len(old) == 0 {
		t.entries, t.shift = make([]entry, fewestEntries), 64-3
		return
	}
	t.entries = make([]entry, 2*len(old))
	t.shift--
	for _, e := range old {
		if e.countID != (countID{}) {
			t.place(e)
		}
	}
}

func (t *table) remove(id countID) {
	if i := t.index(id); i >= 0 {
		t.removeAt(i)
	}
}

// removeAt removes an entry, and moves those that would not be found behind the gap.
func (t *table) removeAt(gap int) {
	delete(t.logs, t.entries[gap].countID)
	t.used--
	t.moves++
	last := len(t.entries) - 1
	for i := t.next(gap); t.entries[i].countID != (countID{}); i = t.next(i) {
		if home := t.home(t.entries[i].countID); (i-home)&last >= (i-gap)&last {
			t.entries[gap] = t.entries[i]
			gap = i
		}
	}
	t.entries[gap] = entry{}
}

// sweep goes on with the next n entries, and removes those that equal keys never seen.
func (t *table) sweep(now int64, n int) (removed uint64) {
	for range min(8*n, len(t.entries)) { // some places are free
		switch e := &t.entries[t.hand]; {
		case e.countID == countID{}:
			t.hand = t.next(t.hand)
			continue
		case e.until <= now:
			t.removeAt(t.hand) // which may move another entry here
			removed++
		default:
			t.hand = t.next(t.hand)
		}
		if n--; n == 0 {
			return removed
		}
	}
	return removed
}

func (t *table) state(e *entry, p *step.Params) step.State {
	s := step.State{A: e.a, B: e.b, C: e.c}
	if p.Log {
		s.Log = t.logs[e.countID]
	}
	return s
}

func (t *table) set(e *entry, s step.State, until int64, p *step.Params) {
	e.a, e.b, e.c, e.until = s.A, s.B, s.C, until
	if !p.Log {
		return
	}
	if t.logs == nil {
		t.logs = make(map[countID][]step.LogEntry)
	}
	t.logs[e.countID] = s.Log
}

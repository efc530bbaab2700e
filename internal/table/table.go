// Package table has tables of counts in this process: in bounded memory, by hashes of their
// names.
package table

// A Table has a V for each count, until a time. It is one allocation, so that a look-up
// touches one or two cache lines and, if V has no pointers, the garbage collector does not
// scan it. Entries are found by linear probing; see Knuth, "The Art of Computer
// Programming", volume 3, section 6.4, algorithms L and R. The zero value is ready. A Table
// is not safe for concurrent use.
type Table[V any] struct {
	Removed func(ID) // called for each entry that is removed; nil calls nothing

	entries []Entry[V] // a power of two; one without an ID is free
	shift   uint       // 64 less the bits of an index
	used    int
	moves   uint64 // how often entries were moved, which makes pointers to them invalid
	hand    int    // where the next sweep begins
}

// An Entry is one count in a Table.
type Entry[V any] struct {
	ID
	Until int64 // from when on nothing need be remembered
	Value V
}

const (
	fewest        = 8 // entries
	sweptPerEntry = 2 // entries that are looked at with each new one
	sweptWhenFull = 8 // the same while the table is full
)

// Len is the number of entries.
func (t *Table[V]) Len() int { return t.used }

// Moves changes when entries move. Pointers to them are valid until then.
func (t *Table[V]) Moves() uint64 { return t.moves }

// home is where the search for an ID begins.
func (t *Table[V]) home(id ID) int { return int(id[0] >> t.shift) }

func (t *Table[V]) next(i int) int { return (i + 1) & (len(t.entries) - 1) }

// Find returns the entry of an ID, or nil.
func (t *Table[V]) Find(id ID) *Entry[V] {
	if i := t.index(id); i >= 0 {
		return &t.entries[i]
	}
	return nil
}

// index returns where the entry of an ID is; -1 if there is none.
func (t *Table[V]) index(id ID) int {
	if t.used == 0 {
		return -1
	}
	for i := t.home(id); ; i = t.next(i) {
		switch t.entries[i].ID {
		case id:
			return i
		case ID{}:
			return -1
		}
	}
}

// Add returns a new entry for an ID that has none.
func (t *Table[V]) Add(id ID) *Entry[V] {
	if (t.used+1)*4 > len(t.entries)*3 {
		t.grow()
	}
	t.used++
	return t.place(&Entry[V]{ID: id})
}

func (t *Table[V]) place(e *Entry[V]) *Entry[V] {
	i := t.home(e.ID)
	for t.entries[i].ID != (ID{}) {
		i = t.next(i)
	}
	t.entries[i] = *e
	return &t.entries[i]
}

func (t *Table[V]) grow() {
	old := t.entries
	t.moves++
	if len(old) == 0 {
		t.entries, t.shift = make([]Entry[V], fewest), 64-3
		return
	}
	t.entries = make([]Entry[V], 2*len(old))
	t.shift--
	for i := range old {
		if old[i].ID != (ID{}) {
			t.place(&old[i])
		}
	}
}

// Remove removes the entry of an ID, if there is one.
func (t *Table[V]) Remove(id ID) {
	if i := t.index(id); i >= 0 {
		t.removeAt(i)
	}
}

// removeAt removes an entry, and moves those that would not be found behind the gap.
func (t *Table[V]) removeAt(gap int) {
	if t.Removed != nil {
		t.Removed(t.entries[gap].ID)
	}
	t.used--
	t.moves++
	last := len(t.entries) - 1
	for i := t.next(gap); t.entries[i].ID != (ID{}); i = t.next(i) {
		if home := t.home(t.entries[i].ID); (i-home)&last >= (i-gap)&last {
			t.entries[gap] = t.entries[i]
			gap = i
		}
	}
	t.entries[gap] = Entry[V]{}
}

// Room reports whether one more entry fits, of so many at most. It goes on with a sweep of a
// few entries, and says how many it has removed because their time is over.
func (t *Table[V]) Room(now int64, most int) (room bool, removed uint64) {
	n := sweptPerEntry
	if t.used >= most {
		n = sweptWhenFull
	}
	removed = t.sweep(now, n)
	return t.used < most, removed
}

// sweep goes on with the next n entries, and removes those whose time is over.
func (t *Table[V]) sweep(now int64, n int) (removed uint64) {
	for range min(8*n, len(t.entries)) { // some places are free
		switch e := &t.entries[t.hand]; {
		case e.ID == ID{}:
			t.hand = t.next(t.hand)
			continue
		case e.Until <= now:
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

// RemoveAny removes the next entry of the sweep, whatever its time: for tables that may
// forget.
func (t *Table[V]) RemoveAny() {
	for t.used > 0 {
		if t.entries[t.hand].ID != (ID{}) {
			t.removeAt(t.hand)
			return
		}
		t.hand = t.next(t.hand)
	}
}

package memory

import (
	"testing"

	"pgregory.net/rapid"
)

// Whatever their hashes, each count has its own entry until it is removed, and a
// pointer to it holds as long as moves says.
func TestMemoryTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var entries table
		want := map[countID]int64{}
		homes := rapid.SampledFrom([]uint64{1, 3, 1 << 16}).Draw(t, "homes")
		for step := range rapid.Int64Range(1, 200).Draw(t, "steps") {
			n := rapid.Uint64Range(0, 40).Draw(t, "count")
			id := countID{n % homes * (1<<64 - 1) / homes, n + 1} // from the first home to the last
			e, moves := entries.find(id), entries.moves
			if value, has := want[id]; has != (e != nil) || has && (e.a != value || e.countID != id) {
				t.Fatalf("%v: %+v, want %d, %v", id, e, value, has)
			}
			switch {
			case e == nil:
				added := entries.add(id)
				added.a, added.until = step, int64(n)
				want[id] = step
			case rapid.Bool().Draw(t, "remove"):
				entries.remove(id)
				delete(want, id)
			}
			if entries.moves == moves && e != nil && entries.find(id) != e {
				t.Fatal("an entry has moved")
			}
			entries.remove(countID{n, 1 << 63}) // of nobody
			checkTable(t, &entries, want)
		}
		now := rapid.Int64Range(0, 41).Draw(t, "now")
		for range len(want) + 1 {
			entries.sweep(now, 2)
		}
		for id := range want {
			if int64(id[1]-1) <= now {
				delete(want, id)
			}
		}
		checkTable(t, &entries, want)
	})
}

func checkTable(t *rapid.T, entries *table, want map[countID]int64) {
	t.Helper()
	seen := 0
	for i := range entries.entries {
		e := &entries.entries[i]
		if e.countID == (countID{}) {
			continue
		}
		if value, has := want[e.countID]; !has || e.a != value || entries.find(e.countID) != e {
			t.Fatalf("there is %+v, want %d, %v", e, value, has)
		}
		seen++
	}
	if seen != len(want) || entries.used != len(want) {
		t.Fatalf("%d entries, counted as %d; want %d", seen, entries.used, len(want))
	}
	if size := len(entries.entries); size > 0 && entries.used*4 > size*3 {
		t.Fatalf("%d of %d places are taken", entries.used, size)
	}
}

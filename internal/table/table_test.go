package table

import (
	"testing"

	"pgregory.net/rapid"
)

// Whatever their hashes, each count has its own entry until it is removed, and a
// pointer to it holds as long as moves says.
func TestTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var entries Table[int64]
		want := map[ID]int64{}
		homes := rapid.SampledFrom([]uint64{1, 3, 1 << 16}).Draw(t, "homes")
		for step := range rapid.Int64Range(1, 200).Draw(t, "steps") {
			n := rapid.Uint64Range(0, 40).Draw(t, "count")
			id := ID{n % homes * (1<<64 - 1) / homes, n + 1} // from the first home to the last
			e, moves := entries.Find(id), entries.moves
			if value, has := want[id]; has != (e != nil) || has && (e.Value != value || e.ID != id) {
				t.Fatalf("%v: %+v, want %d, %v", id, e, value, has)
			}
			switch {
			case e == nil:
				added := entries.Add(id)
				added.Value, added.Until = step, int64(n)
				want[id] = step
			case rapid.Bool().Draw(t, "remove"):
				entries.Remove(id)
				delete(want, id)
			}
			if entries.moves == moves && e != nil && entries.Find(id) != e {
				t.Fatal("an entry has moved")
			}
			entries.Remove(ID{n, 1 << 63}) // of nobody
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

func checkTable(t *rapid.T, entries *Table[int64], want map[ID]int64) {
	t.Helper()
	seen := 0
	for i := range entries.entries {
		e := &entries.entries[i]
		if e.ID == (ID{}) {
			continue
		}
		if value, has := want[e.ID]; !has || e.Value != value || entries.Find(e.ID) != e {
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

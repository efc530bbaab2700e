package topk

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Against exact counts of two windows: what List promises.
func TestListKeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var top Counter
		now := time.Duration(0)
		windows := map[time.Duration]map[pair]int64{}
		for range rapid.IntRange(1, 4).Draw(t, "phases") {
			now += time.Duration(rapid.IntRange(0, 25).Draw(t, "minutes")) * time.Minute
			if windows[now/window] == nil {
				windows[now/window] = map[pair]int64{}
			}
			keys := rapid.IntRange(1, 3000).Draw(t, "keys")
			skew := rapid.IntRange(1, 4).Draw(t, "skew")
			seed := rapid.Uint64().Draw(t, "seed")
			for range rapid.IntRange(0, 3000).Draw(t, "denials") {
				at := 1.0
				for range skew { // the product leans towards 0: some keys are heavy
					seed = seed*6364136223846793005 + 1442695040888963407
					at *= float64(seed>>40) / (1 << 24)
				}
				id := pair{"r", fmt.Sprint(int(at * float64(keys)))}
				windows[now/window][id]++
				top.Add(now, id.rule, id.key)
			}
		}
		exact, denials := map[pair]int64{}, int64(0)
		for _, window := range []map[pair]int64{windows[now/window], windows[now/window-1]} {
			for id, n := range window {
				exact[id] += n
				denials += n
			}
		}
		listed := map[pair]bool{}
		list := top.List(now)
		for i, k := range list {
			id := pair{k.Rule, k.Key}
			if listed[id] {
				t.Fatalf("%v is listed twice", id)
			}
			listed[id] = true
			if k.Count < exact[id] || k.Count-k.Error > exact[id] {
				t.Fatalf("%v: %d±%d, in truth %d", id, k.Count, k.Error, exact[id])
			}
			if k.Error > denials/maxEntries {
				t.Fatalf("%v: an error of %d in %d denials", id, k.Error, denials)
			}
			if before := list[max(i-1, 0)]; before.Count < k.Count {
				t.Fatalf("%v is after %v", k, before)
			}
		}
		for id, n := range exact {
			if n > denials/maxEntries && !listed[id] {
				t.Fatalf("%v, %d of %d denials, is not listed", id, n, denials)
			}
		}
		if len(listed) > 2*maxEntries {
			t.Fatalf("%d are listed", len(listed))
		}
	})
}

// What Add costs for a key that is counted, and for one that replaces another.
func BenchmarkAdd(b *testing.B) {
	keys := make([]string, 100_000)
	for i := range keys {
		keys[i] = string(rune('a'+i%26)) + "1.2.3.4" + string(rune(i))
	}
	for name, distinct := range map[string]int{"counted": 100, "new": len(keys)} {
		b.Run(name, func(b *testing.B) {
			var top Counter
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				top.Add(0, "rule", keys[i%distinct])
				i++
			}
		})
	}
}

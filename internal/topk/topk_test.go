package topk

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Against exact counts of two windows: what TopDenied promises.
func TestTopDeniedKeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var top topDenied
		now := time.Duration(0)
		windows := map[time.Duration]map[deniedID]int64{}
		for range rapid.IntRange(1, 4).Draw(t, "phases") {
			now += time.Duration(rapid.IntRange(0, 25).Draw(t, "minutes")) * time.Minute
			if windows[now/topWindow] == nil {
				windows[now/topWindow] = map[deniedID]int64{}
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
				id := deniedID{"r", fmt.Sprint(int(at * float64(keys)))}
				windows[now/topWindow][id]++
				top.add(now, id.rule, id.key)
			}
		}
		exact, denials := map[deniedID]int64{}, int64(0)
		for _, window := range []map[deniedID]int64{windows[now/topWindow], windows[now/topWindow-1]} {
			for id, n := range window {
				exact[id] += n
				denials += n
			}
		}
		listed := map[deniedID]bool{}
		list := top.list(now)
		for i, k := range list {
			id := deniedID{k.Rule, k.Key}
			if listed[id] {
				t.Fatalf("%v is listed twice", id)
			}
			listed[id] = true
			if k.Count < exact[id] || k.Count-k.Error > exact[id] {
				t.Fatalf("%v: %d±%d, in truth %d", id, k.Count, k.Error, exact[id])
			}
			if k.Error > denials/topEntries {
				t.Fatalf("%v: an error of %d in %d denials", id, k.Error, denials)
			}
			if before := list[max(i-1, 0)]; before.Count < k.Count {
				t.Fatalf("%v is after %v", k, before)
			}
		}
		for id, n := range exact {
			if n > denials/topEntries && !listed[id] {
				t.Fatalf("%v, %d of %d denials, is not listed", id, n, denials)
			}
		}
		if len(listed) > 2*topEntries {
			t.Fatalf("%d are listed", len(listed))
		}
	})
}

func TestTopDeniedShowsThePresent(t *testing.T) {
	var top topDenied
	counts := func(now time.Duration) (got string) {
		for _, k := range top.list(now) {
			got += fmt.Sprintf("%s %d ", k.Key, k.Count)
		}
		return got
	}
	top.add(time.Minute, "r", "old")
	top.add(topWindow, "r", "new")
	top.add(topWindow, "r", "new")
	for _, c := range []struct {
		now  time.Duration
		want string
	}{
		{topWindow, "new 2 old 1 "},
		{2*topWindow - 1, "new 2 old 1 "},
		{2 * topWindow, "new 2 "},
		{3 * topWindow, ""},
		{time.Hour, ""},
	} {
		if got := counts(c.now); got != c.want {
			t.Errorf("after %s: %q, want %q", c.now, got, c.want)
		}
	}
}

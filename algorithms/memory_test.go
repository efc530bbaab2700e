package algorithms

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A flood of new keys must not push out whoever is denied: that would free them.
func TestMemoryKeepsDeniedKeysUnderAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Memory{MaxKeys: 640}
		limit := Limit{Rate: 3, Period: time.Hour, Algorithm: TokenBucket}
		take := func(key string) bool {
			d, err := m.Take(t.Context(), Check{Rule: "r", Key: key, Limit: limit})
			if err != nil {
				t.Fatal(err)
			}
			return d.Allowed
		}
		abusers := make([]string, 50)
		for i := range abusers {
			abusers[i] = fmt.Sprint("abuser-", i)
			for take(abusers[i]) {
			}
		}
		for i := range 100_000 {
			take(fmt.Sprint("flood-", i))
			if i%100 == 0 && take(abusers[i/100%50]) {
				t.Fatalf("%s was freed by %d other keys", abusers[i/100%50], i)
			}
		}
		if s := m.ready().Stats(); s.Keys > 640 || s.Sketches != 1 {
			t.Errorf("%+v", s)
		}
		// What is in a sketch is limited too, and stays so when there is room again.
		late := "late"
		admitted := 0
		for range 10 {
			if take(late) {
				admitted++
			}
		}
		if admitted > 3 {
			t.Errorf("a key without room of its own was admitted %d times", admitted)
		}
		time.Sleep(3 * time.Hour)
		if !take("after the flood") || !take(abusers[0]) {
			t.Error("an hour later the limits are free again")
		}
	})
}

func TestMemoryForgetsWhatEqualsNeverSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m Memory
		for i := range 200_000 {
			if _, err := m.Take(t.Context(), Check{Rule: "r", Key: fmt.Sprint(i), Limit: PerSecond(10)}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		// 2000 keys are alive at a time.
		if s := m.ready().Stats(); s.Keys > 20_000 || s.Evicted != uint64(200_000-s.Keys) || s.Overflowed > 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestMemoryAdmitsExactlyTheLimitUnderConcurrency(t *testing.T) {
	var m Memory
	var wg sync.WaitGroup
	var mu sync.Mutex
	admitted := map[string]int{}
	for n := range 16 {
		wg.Go(func() {
			for i := range 500 {
				// Checks in different orders must not wait for each other.
				a := Check{Rule: "a", Key: fmt.Sprint(i % 7), Limit: Limit{Rate: 100, Period: 1000 * time.Hour, Algorithm: FixedWindow}}
				b := Check{Rule: "b", Key: fmt.Sprint((i + n) % 5), Limit: Limit{Rate: 120, Period: 1000 * time.Hour, Algorithm: TokenBucket}}
				checks := []Check{a, b}
				if n%2 == 0 {
					checks[0], checks[1] = b, a
				}
				d, err := m.Take(t.Context(), checks...)
				if err != nil {
					t.Error(err)
				}
				if d.Allowed {
					mu.Lock()
					admitted["a"+a.Key]++
					admitted["b"+b.Key]++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	total := 0
	for key, n := range admitted {
		limit := map[byte]int{'a': 100, 'b': 120}[key[0]]
		if n > limit {
			t.Errorf("%s: admitted %d of %d", key, n, limit)
		}
		if key[0] == 'b' {
			total += n
		}
	}
	if total != 5*120 {
		t.Errorf("admitted %d in all, want all that the five keys of b hold", total)
	}
}

// A log that keys share must stay whole when a charge of one is given back.
func TestMemoryGivesBackFromASharedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Memory{MaxKeys: 1}
		limit := Limit{Rate: 10, Period: time.Minute, Algorithm: SlidingLog}
		var charged []Result
		for i := range 2000 {
			d, err := m.Take(t.Context(), Check{Rule: "r", Key: strconv.Itoa(i), Limit: limit})
			if err != nil {
				t.Fatal(err)
			}
			charged = append(charged, d.Results...)
		}
		time.Sleep(time.Second)
		for i := range 2000 {
			if err := m.Reset(t.Context(), Check{Rule: "r", Key: strconv.Itoa(i), Limit: limit}); err != nil {
				t.Fatal(err)
			}
		}
		if err := settleAll(t.Context(), m, 0, charged...); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			for i := range 4000 {
				if _, err := m.Take(t.Context(), Check{Rule: "r", Key: strconv.Itoa(i), Limit: limit}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Minute)
		}
	})
}

func BenchmarkMemoryTake(b *testing.B) {
	hot := make([][]Check, 1000)
	for i := range hot {
		hot[i] = three(fmt.Sprint("192.0.2.", i), fmt.Sprint("user", i))
		for j := range hot[i] {
			hot[i][j].Limit.Rate = 1_000_000
		}
	}
	for _, n := range []int{1, 3} {
		b.Run(fmt.Sprint("hot/checks=", n), func(b *testing.B) {
			var m Memory
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				_, _ = m.Take(b.Context(), hot[i%1000][:n]...)
				i++
			}
		})
	}
	b.Run("parallel", func(b *testing.B) {
		var m Memory
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				_, _ = m.Take(b.Context(), hot[i%1000]...)
			}
		})
	})
	// Each key is new, and there is no room for any.
	b.Run("flood", func(b *testing.B) {
		m := Memory{MaxKeys: 1024}
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			_, _ = m.Take(b.Context(), Check{Rule: "r", Key: strconv.Itoa(i), Limit: perDay(200)})
			i++
		}
	})
}

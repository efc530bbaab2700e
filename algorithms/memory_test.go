package algorithms

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

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

// Reset does not clear a sketch, because other keys are counted there too.
func TestResetLeavesSketches(t *testing.T) {
	m := &Memory{MaxKeys: 64} // one in each shard
	var last Check
	for i := range 10_000 {
		last = Check{Rule: "r", Key: strconv.Itoa(i), Limit: perDay(10)}
		mustTake(t, m, last)
	}
	if err := m.Reset(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	if r := peekOne(t, m, last); r.Remaining > 9 {
		t.Errorf("%+v", r)
	}
}

// What is counted alone is settled alone, too, though its entry was evicted and the table is full.
func TestSettlingAloneInAFullMemory(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	m := &Memory{MaxKeys: 64, Now: func() time.Time { return now }}
	alone := Check{Rule: "alone", Key: "k", Limit: Limit{Rate: 5, Period: time.Second, Algorithm: TokenBucket}, StoreOnly: true}
	results := mustTake(t, m, alone)
	now = now.Add(time.Minute)
	for i := range 10_000 {
		mustTake(t, m, Check{Rule: "r", Key: strconv.Itoa(i), Limit: perDay(10)})
	}
	if _, err := m.Settle(t.Context(), Charge{Result: results[0], Cost: 4}); err != nil {
		t.Fatal(err)
	}
	if r := peekOne(t, m, alone); r.Remaining != 2 {
		t.Errorf("%+v", r)
	}
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

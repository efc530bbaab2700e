package failmode

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/memory"
	"github.com/seed75154129/ratelimit/internal/rated"
)

func peekOne(t *testing.T, m *algorithms.Memory, check algorithms.Check) algorithms.Result {
	t.Helper()
	d, err := m.Peek(t.Context(), check)
	if err != nil {
		t.Fatal(err)
	}
	r := &d.Results[0]
	bare := algorithms.Result{
		Check: r.Check, Source: r.Source, HasRoom: r.HasRoom,
		Charged: r.Charged, Remaining: r.Remaining, RetryAfter: r.RetryAfter, ResetAfter: r.ResetAfter, Delay: r.Delay, At: r.At, Err: r.Err,
	}
	bare.Trace = r.Trace
	return bare
}

// eachLimit runs a test in fake time for each algorithm.
func eachLimit(t *testing.T, f func(t *testing.T, l algorithms.Limit)) {
	t.Helper()
	for _, l := range limitsOf(5, time.Minute) {
		t.Run(l.Algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, l) })
		})
	}
}

var asItIs = new(Guard) // its share is all

// One that follows every decision answers as the one that made them.
func TestFollowCountsWhatTakeCounted(t *testing.T) {
	eachLimit(t, func(t *testing.T, l algorithms.Limit) {
		var there, here algorithms.Memory
		random := rand.New(rand.NewPCG(1, 2))
		denied := 0
		for range 2000 {
			check := algorithms.Check{Rule: "r", Key: fmt.Sprint(random.IntN(3)), Limit: l, Cost: 1 + random.Int64N(3)}
			d, err := there.Take(t.Context(), check)
			if err != nil {
				t.Fatal(err)
			}
			if !d.Allowed {
				denied++
			}
			followIn(&here, d.Results, asItIs)
			if got, want := peekOne(t, &here, check), peekOne(t, &there, check); got != want {
				t.Fatalf("after %+v\n got %+v\nwant %+v", d.Results[0], got, want)
			}
			time.Sleep(time.Duration(random.Int64N(int64(l.Period) / 4)).Truncate(time.Microsecond))
		}
		if denied < 100 || denied > 1900 {
			t.Errorf("%d of 2000 denied", denied)
		}
	})
}

// What other processes have used of a key that is new here is counted in two steps,
// which make one entry. A table that grows in between must not hide that.
func TestFollowMakesOneEntryOfAKey(t *testing.T) {
	eachLimit(t, func(t *testing.T, l algorithms.Limit) {
		const keys = 1000
		var m algorithms.Memory
		left := l.Quota() - 3
		for i := range keys {
			check := algorithms.Check{Rule: "r", Key: fmt.Sprint(i), Limit: l}
			follow := func() {
				followIn(&m, []algorithms.Result{{Source: algorithms.SourceRedis, Check: check, HasRoom: true, Charged: 1, Remaining: left, At: time.Now()}}, asItIs)
			}
			if follow(); peekOne(t, &m, check).Remaining != left {
				t.Fatalf("key %d: %d left, want %d", i, peekOne(t, &m, check).Remaining, left)
			}
			if err := m.Reset(t.Context(), check); err != nil {
				t.Fatal(err)
			}
			if got := peekOne(t, &m, check).Remaining; got != l.Quota() {
				t.Fatalf("key %d: %d left after a Reset, want %d", i, got, l.Quota())
			}
			follow()
		}
		if n := m.Store().Stats().Keys; n != keys {
			t.Errorf("%d entries for %d keys", n, keys)
		}
	})
}

// Other processes charge the same key: what is left there is all that is left.
func TestFollowLeavesNoMoreThanIsLeftThere(t *testing.T) {
	eachLimit(t, func(t *testing.T, l algorithms.Limit) {
		quota := l.Quota()
		for _, c := range []struct{ charged, remaining, want int64 }{
			{0, quota, quota},
			{0, quota + 7, quota},        // decided by a larger limit
			{1, quota + 7, quota - 1},    // whose share this is
			{1, quota - 1, quota - 1},    //
			{1, 2, 2},                    //
			{0, 2, 2},                    // denied there, or charged elsewhere
			{0, 0, 0},                    //
			{quota - 1, 1, 1},            //
			{3 * quota, 5 * quota, 0},    // exhausted, but not in debt
			{0, -4, 0},                   // nor by what nobody should say
			{-9, quota, quota},           //
			{1 << 62, -1 << 62, 0},       //
			{-1 << 63, 1<<63 - 1, quota}, //
			{1<<63 - 1, -1 << 63, 0},     //
		} {
			var m algorithms.Memory
			check := algorithms.Check{Rule: "r", Key: "k", Limit: l}
			followIn(&m, []algorithms.Result{{Source: algorithms.SourceRedis, Check: check, Charged: c.charged, Remaining: c.remaining, At: time.Now()}}, asItIs)
			got := peekOne(t, &m, check)
			if got.Remaining != c.want || got.RetryAfter > l.Period+time.Microsecond && l.Algorithm != algorithms.SlidingWindow {
				t.Errorf("charged %d, left %d there: %+v, want %d left", c.charged, c.remaining, got, c.want)
			}
			if keys := m.Store().Stats().Keys; (keys == 0) != (c.want == quota) {
				t.Errorf("charged %d, left %d there: %d keys", c.charged, c.remaining, keys)
			}
			// Less is left already.
			followIn(&m, []algorithms.Result{{Source: algorithms.SourceRedis, Check: check, Remaining: quota, At: time.Now()}}, asItIs)
			if got := peekOne(t, &m, check).Remaining; got != c.want {
				t.Errorf("left %d, then more there: %d", c.want, got)
			}
		}
	})
}

func TestFollowPassesOverWhatItCannotCount(t *testing.T) {
	var m algorithms.Memory
	followIn(&m, nil, asItIs)
	followIn(&m, []algorithms.Result{
		{Source: algorithms.SourceRedis, Check: algorithms.Check{Rule: "r", Limit: algorithms.Limit{Rate: 5, Period: 24 * time.Hour}}, Charged: 1, Err: errors.New("away")},
		{Source: algorithms.SourceRedis, Check: algorithms.Check{Rule: "r", Limit: algorithms.Limit{Rate: -1}}, Charged: 1},
		{Source: algorithms.SourceRedis, Check: algorithms.Check{Rule: "r", Limit: algorithms.Limit{Rate: 1, Period: time.Hour, Algorithm: 99}}, Charged: 1},
		{Source: algorithms.SourceRedis, Check: algorithms.Check{Rule: "r", Limit: algorithms.Limit{Rate: 5, Period: 24 * time.Hour}, Cost: -1}, Charged: 1},
		{},
	}, asItIs)
	followIn(&m, []algorithms.Result{{Source: algorithms.SourceFallback, Check: algorithms.Check{Rule: "r", Limit: algorithms.Limit{Rate: 5, Period: 24 * time.Hour}}, Charged: 1}}, asItIs)
	if s := m.Store().Stats(); s != (memory.Stats{}) {
		t.Errorf("%+v", s)
	}
}

// What the other store gave back can be given back here.
func TestUnfollowTakesBackWhatFollowCounted(t *testing.T) {
	eachLimit(t, func(t *testing.T, l algorithms.Limit) {
		var there, here algorithms.Memory
		check := algorithms.Check{Rule: "r", Key: "k", Limit: l, Cost: 2}
		for range 2 {
			d, err := there.Take(t.Context(), check)
			if err != nil {
				t.Fatal(err)
			}
			before := peekOne(t, &here, check)
			followIn(&here, d.Results, asItIs)
			after := peekOne(t, &here, check)
			if after.Remaining != before.Remaining-2 {
				t.Errorf("followed: %d left of %d", after.Remaining, before.Remaining)
			}
			unfollowIn(&here, &d.Results[0], new(algorithms.Result), asItIs)
			got := peekOne(t, &here, check)
			got.Trace.State, before.Trace.State = [3]int64{}, [3]int64{} // they know when they were written
			if got != before {
				t.Errorf("taken back:\n got %+v\nwant %+v", got, before)
			}
			followIn(&here, d.Results, asItIs)
		}
	})
}

// What Follow found no room for was not charged, and is not given back.
func TestUnfollowFreesNothingElse(t *testing.T) {
	eachLimit(t, func(t *testing.T, l algorithms.Limit) {
		var here algorithms.Memory
		check := algorithms.Check{Rule: "r", Key: "k", Limit: l}
		for range l.Quota() - 1 {
			if _, err := here.Take(t.Context(), check); err != nil {
				t.Fatal(err)
			}
		}
		var there algorithms.Memory
		check.Cost = 3
		d, err := there.Take(t.Context(), check)
		if err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
		followIn(&here, d.Results, asItIs)
		if got := peekOne(t, &here, check).Remaining; got != 0 {
			t.Errorf("%d left, want 0", got)
		}
		for _, cost := range []int64{2, 0} { // it costs less than it did
			settled := d.Results[0]
			settled.Charged = cost
			unfollowIn(&here, &d.Results[0], &settled, asItIs)
			d.Results[0] = settled
			if got := peekOne(t, &here, check).Remaining; got > 1 {
				t.Errorf("%d left after it was settled at %d", got, cost)
			}
		}
		d.Results[0].Source = algorithms.SourceFallback
		unfollowIn(&here, &d.Results[0], new(algorithms.Result), asItIs)
		if got := peekOne(t, &here, check).Remaining; got > 1 {
			t.Errorf("%d left: what is not followed was given back", got)
		}
	})
}

// A process that has just started follows what others used long ago: those
// units must not seem to have been used just now.
func TestFollowOfASlidingWindowForgetsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var there, here algorithms.Memory
		check := algorithms.Check{Rule: "r", Key: "k", Limit: algorithms.PerMinute(100)}
		time.Sleep(time.Minute - time.Duration(time.Now().UnixNano()%int64(time.Minute))) // a window begins
		for range 100 {
			if _, err := there.Take(t.Context(), check); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(65 * time.Second) // of the last window 55 s are in view
		d, err := there.Take(t.Context(), check)
		if err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
		followIn(&here, d.Results, asItIs)
		for range 12 {
			t0, t1 := peekOne(t, &there, check).Remaining, peekOne(t, &here, check).Remaining
			if t1 > t0 || t1 < t0-2 {
				t.Errorf("%d left here, %d there", t1, t0)
			}
			time.Sleep(10 * time.Second)
		}
	})
}

// By a clock in another window, what is left says nothing.
func TestFollowAcrossAWindowsBorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		day := algorithms.Limit{Rate: 100, Period: 24 * time.Hour, Algorithm: algorithms.FixedWindow}
		check := algorithms.Check{Rule: "r", Key: "k", Limit: day}
		time.Sleep(24*time.Hour - time.Duration(time.Now().UnixNano()%int64(24*time.Hour))) // midnight
		var here algorithms.Memory
		followIn(&here, []algorithms.Result{{Source: algorithms.SourceRedis, Check: check, HasRoom: true, Charged: 1, At: time.Now().Add(-10 * time.Millisecond)}}, asItIs)
		if got := peekOne(t, &here, check).Remaining; got != 99 {
			t.Errorf("%d left of the new day, want 99", got)
		}
	})
}

// A key without room is followed in a sketch.
func TestFollowCountsKeysWithoutRoom(t *testing.T) {
	eachLimit(t, func(t *testing.T, l algorithms.Limit) {
		m := algorithms.Memory{MaxKeys: 1}
		for i := range 1000 {
			followIn(&m, []algorithms.Result{{Source: algorithms.SourceRedis, Check: algorithms.Check{Rule: "r", Key: fmt.Sprint(i), Limit: l}, Charged: 1, Remaining: 1, At: time.Now()}}, asItIs)
		}
		for i := range 1000 {
			if r := peekOne(t, &m, algorithms.Check{Rule: "r", Key: fmt.Sprint(i), Limit: l}); r.Remaining > 1 {
				t.Fatalf("key %d: %+v", i, r)
			}
		}
		if s := m.Store().Stats(); s.Keys != 64 || s.Sketches != 1 {
			t.Errorf("%+v", s)
		}
	})
}

func TestFollowDoesNotAllocate(t *testing.T) {
	var m algorithms.Memory
	var results []algorithms.Result
	for i, l := range limitsOf(10_000, time.Hour) {
		if rated.Rows[i].Log {
			continue // has an entry for each charge
		}
		results = append(results, algorithms.Result{Source: algorithms.SourceRedis, Check: algorithms.Check{Rule: "r", Key: fmt.Sprint(i), Limit: l}, Charged: 1, Remaining: l.Rate})
	}
	followIn(&m, results, asItIs)
	for i := range results { // by itself: two limits may take turns in a place of step.Bounds
		if n := testing.AllocsPerRun(1000, func() { followIn(&m, results[i:i+1], asItIs) }); n != 0 {
			t.Errorf("%s: %v allocations", results[i].Check.Limit, n)
		}
	}
	if r := peekOne(t, &m, results[0].Check); r.Remaining != 10_000-1002 {
		t.Errorf("%+v", r)
	}
}

func TestMemoryCountsExactlyWhileItIsWatched(t *testing.T) {
	m := algorithms.Memory{MaxKeys: 640}
	check := algorithms.Check{Rule: "r", Key: "k", Limit: algorithms.Limit{Rate: 100_000, Period: 1000 * time.Hour, Algorithm: algorithms.FixedWindow}}
	followIn(&m, []algorithms.Result{{Source: algorithms.SourceRedis, Check: check, Charged: 1, Remaining: 100_000}}, asItIs) // has an entry from now on
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			for i := range 300 {
				followIn(&m, []algorithms.Result{{Source: algorithms.SourceRedis, Check: check, Charged: 1, Remaining: 100_000}}, asItIs)
				other := check
				other.Key = fmt.Sprint(n, "-", i)
				if _, err := m.Take(t.Context(), check, other); err != nil {
					t.Error(err)
				}
				if s := m.Store().Stats(); s.Keys > 640 {
					t.Errorf("%+v", s)
				}
			}
		})
	}
	wg.Wait()
	if r := peekOne(t, &m, check); r.Remaining != 100_000-1-8*300*2 {
		t.Errorf("%+v", r)
	}
	if s := m.Store().Stats(); s.Overflowed == 0 || s.Sketches != 1 {
		t.Errorf("%+v", s)
	}
}

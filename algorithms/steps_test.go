package algorithms

import (
	"context"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// each runs a test for every algorithm at 5 a minute.
func eachAlgorithm(t *testing.T, f func(t *testing.T, l Limit)) {
	t.Helper()
	for i := range rated {
		t.Run(rated[i].Name, func(t *testing.T) {
			l := Limit{Rate: 5, Period: time.Minute, Algorithm: Algorithm(rated[i].Name)}
			if rated[i].Queue {
				l.Burst = 5
			}
			f(t, l)
		})
	}
}

// What a client owes is a time, whatever the rate is now: a debt that is more
// than a limit can owe is another limit's, and no clock error.
func TestARaisedLimitLeavesWhatIsOwed(t *testing.T) {
	var m Memory
	slow := Limit{Rate: 1, Period: time.Minute, Burst: 1440, Algorithm: TokenBucket}
	for takeAt(&m, someTime, slow).HasRoom {
	}
	fast := Limit{Rate: 100, Period: time.Minute, Algorithm: TokenBucket}
	r := takeAt(&m, someTime, fast)
	if want := 1439*time.Minute + 600*time.Millisecond; r.HasRoom || r.RetryAfter != want {
		t.Errorf("denied for %s, want %s", r.RetryAfter, want)
	}
	if r := takeAt(&m, someTime, slow); r.RetryAfter != time.Minute {
		t.Errorf("the slow one is denied for %s", r.RetryAfter)
	}
}

// Redis must remember a state for as long as it differs from one never seen.
func TestRedisRemembersLongEnough(t *testing.T) {
	srv, clock := redistest.StartWithClock(t)
	client := srv.Client(t)
	r := &Redis{Client: client, Namespace: "test", Budget: roomy}
	rapid.Check(t, func(t *rapid.T) {
		client.FlushAll(context.Background())
		clock.Set(time.UnixMicro(someTime + rapid.Int64Range(0, 10_000_000).Draw(t, "now")))
		l := drawLimit(t, "limit")
		check := Check{Rule: "r", Key: "k", Limit: l, Cost: rapid.Int64Range(1, l.Quota()).Draw(t, "cost")}
		d, err := r.Take(context.Background(), check)
		if err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		// Rounded up to the millisecond, plus one. A bucket's deadline is on a grid.
		ttl := client.PTTL(context.Background(), keyOf("test", check)).Val()
		need, grid := d.Results[0].ResetAfter, time.Duration(0)
		if l.row().Bucket {
			grid = min(max(l.Period, time.Second), time.Minute) + time.Millisecond
		}
		if least, most := msCeil(need)+time.Millisecond, msCeil(need+grid)+time.Millisecond; ttl < least || ttl > most {
			t.Fatalf("%s: kept for %s, reset after %s: want %s to %s", l, ttl, need, least, most)
		}
	})
}

func msCeil(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

// What is charged afterwards may go into debt, as far as the exact range goes.
// In Go as in Redis.
func TestDebtIsWhatItIs(t *testing.T) {
	redis := realBackend(t)
	eachAlgorithm(t, func(t *testing.T, l Limit) {
		limits := []Limit{l}
		if !l.row().Bucket && l.Algorithm != SlidingLog {
			limits = append(limits, Limit{Rate: l.row().MaxRate, Period: time.Minute, Algorithm: l.Algorithm})
		}
		for _, l := range limits {
			for _, more := range []int64{30, 1 << 20, 1 << 45, math.MaxInt64 - 1} {
				redis.flush()
				var m Memory
				redis.setTime(someTime)
				check := Check{Rule: "r", Limit: l}
				d, err := redis.limiter.Take(t.Context(), check)
				if err != nil {
					t.Fatal(err)
				}
				want := modelAt(&m, someTime, true, []Check{check})
				for range 3 {
					if err := settleAll(t.Context(), redis.limiter, 1+more, alone(d.Results[0])); err != nil {
						t.Fatal(err)
					}
					settleModelAt(&m, someTime, 1+more, want.Results)
				}
				for i := range int64(20) {
					at := someTime + i*10_000_000
					redis.setTime(at)
					got, err := redis.limiter.Peek(t.Context(), check)
					if err != nil {
						t.Fatal(err)
					}
					want := modelAt(&m, at, false, []Check{check}).Results[0]
					got.Results[0].Source = want.Source
					if alone(got.Results[0]) != want {
						t.Fatalf("%s after %dµs:\n got %+v\nwant %+v", l, at-someTime, got.Results[0], want)
					}
					if owed := 1 + 3*more - l.Rate; i == 0 && more < 1<<20 && l.Rate < 1000 && (want.HasRoom || want.Remaining != -owed) {
						t.Errorf("%s: owes %d, want %d", l, -want.Remaining, owed)
					}
				}
			}
		}
	})
}

// What is charged afterwards or given back is exact to a fraction of a microsecond: a
// unit is 333,333⅓ µs. In Go as in Redis.
func TestDebtAndGiveBackOfFractions(t *testing.T) {
	check := Check{Rule: "r", Limit: Limit{Rate: 3, Period: time.Second, Burst: 3, Algorithm: TokenBucket}}
	for name, b := range map[string]backend{"memory": modelBackend(t), "redis": realBackend(t)} {
		for _, c := range []struct {
			charged, settled, after int64
			tat, thirds             int64 // from the charge on
		}{
			{1, 3, 0, 1_000_000, 0},     // two fractions that make a whole
			{1, 2, 0, 666_666, 2},       // and that do not
			{2, 1, 333_333, 333_333, 1}, // what has refilled of the charge is a third more than what is given back
			{2, 0, 333_333, 333_333, 0},
			{2, 1, 333_334, 333_334, 0}, // and less
		} {
			b.flush()
			b.setTime(someTime)
			check.Cost = c.charged
			d, err := b.limiter.Take(t.Context(), check)
			if err != nil {
				t.Fatal(err)
			}
			b.setTime(someTime + c.after)
			if err := settleAll(t.Context(), b.limiter, c.settled, d.Results...); err != nil {
				t.Fatal(err)
			}
			r, err := b.limiter.Peek(t.Context(), check)
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Results[0].trace.State; got[0] != someTime+c.tat || got[2] != c.thirds {
				t.Errorf("%s: %d units settled to %d after %dµs: TAT is %dµs and %d thirds later, want %dµs and %d", name,
					c.charged, c.settled, c.after, got[0]-someTime, got[2], c.tat, c.thirds)
			}
		}
	}
}

// What was denied for MaxDelay alone says nothing about others on the key.
func TestImpatientDenialsAreToldFromOthers(t *testing.T) {
	var m Memory
	check := Check{Rule: "r", Limit: Limit{Rate: 10, Period: time.Second, Burst: 5, Algorithm: LeakyBucket}, Cost: 3}
	modelAt(&m, someTime, true, []Check{check})
	for _, c := range []struct {
		cost     int64
		maxDelay time.Duration
		want     bool
	}{
		{2, 299 * time.Millisecond, true},
		{2, 300 * time.Millisecond, false}, // admitted
		{2, 0, false},                      // admitted
		{3, 100 * time.Millisecond, false}, // there is no room
		{3, 0, false},
		{6, 1, false}, // there never will be
	} {
		check.Cost, check.MaxDelay = c.cost, c.maxDelay
		r := modelAt(&m, someTime, false, []Check{check}).Results[0]
		if r.impatient() != c.want {
			t.Errorf("cost %d, max delay %s: %+v", c.cost, c.maxDelay, r)
		}
	}
	for _, r := range []Result{{Check: check, Remaining: 9, Err: transport.ErrReply}, {Check: Check{MaxDelay: 1}, Remaining: 9}, {}} {
		if r.impatient() {
			t.Errorf("%+v", r)
		}
	}
}

// Giving everything back would admit more than the limit: the bucket has
// refilled since, and the window has moved. Whatever is charged and given back,
// what is kept must stay inside the limit's promise.
func TestGivingBackNeverOverAdmits(t *testing.T) {
	for range 20 { // a schedule that would show it is rare
		rapid.Check(t, givingBack)
	}
}

func givingBack(t *rapid.T) {
	a := rapid.SampledFrom(rated).Draw(t, "algorithm")
	l := Limit{Rate: rapid.Int64Range(1, 6).Draw(t, "rate"), Period: time.Duration(rapid.Int64Range(1, 50).Draw(t, "period")) * time.Microsecond, Algorithm: Algorithm(a.Name)}
	if a.Bucket {
		l.Burst = rapid.Int64Range(1, 6).Draw(t, "burst")
	}
	type use struct{ at, units int64 }
	var m Memory
	var kept []use
	var open []Result
	now, period := someTime, l.Period.Microseconds()
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		now += rapid.Int64Range(0, period/2+1).Draw(t, "dt")
		if len(open) > 0 && rapid.IntRange(0, 2).Draw(t, "op") == 0 {
			i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
			r := open[i]
			open = append(open[:i:i], open[i+1:]...)
			to := rapid.Int64Range(0, r.Charged).Draw(t, "to")
			settleModelAt(&m, now, to, []Result{r})
			kept = append(kept, use{r.At.UnixMicro(), to})
			continue
		}
		r := modelAt(&m, now, true, []Check{{Rule: "r", Limit: l, Cost: rapid.Int64Range(1, l.Quota()).Draw(t, "cost")}}).Results[0]
		if r.Charged > 0 {
			open = append(open, r)
		}
	}
	for _, r := range open {
		kept = append(kept, use{r.At.UnixMicro(), r.Charged})
	}
	// Of every span that begins and ends with a use, the units in it.
	for _, first := range kept {
		for _, last := range kept {
			if last.at < first.at {
				continue
			}
			var units int64
			for _, u := range kept {
				if u.at >= first.at && u.at <= last.at {
					units += u.units
				}
			}
			span := last.at - first.at
			if most := exactOf(l).promise(first.at, span); units > most {
				t.Fatalf("%s: kept %d units in %dµs, at most %d are promised\n%v", l, units, span, most, kept)
			}
		}
	}
}

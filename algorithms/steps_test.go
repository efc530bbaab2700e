package algorithms

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed75154129/ratelimit/internal/redistest"
)

// each runs a test for every algorithm at 5 a minute.
func eachAlgorithm(t *testing.T, f func(t *testing.T, l Limit)) {
	t.Helper()
	for i := range table {
		t.Run(string(table[i].name), func(t *testing.T) {
			l := Limit{Rate: 5, Period: time.Minute, Algorithm: table[i].name}
			if table[i].queue {
				l.Burst = 5
			}
			f(t, l)
		})
	}
}

// A clock that was a year ahead must not deny for a year.
func TestAClockErrorOfAYearIsForgotten(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, l Limit) {
		var m Memory
		takeAt(&m, someTime+year, l)
		r := takeAt(&m, someTime, l)
		if r.Allowed {
			t.Error("taken for never seen: a clock error would free everybody")
		}
		if r.RetryAfter > 2*l.Period {
			t.Fatalf("denied for %s", r.RetryAfter)
		}
		if now := someTime + r.RetryAfter.Microseconds() - 1; takeAt(&m, now, l).Allowed {
			t.Error("allowed before RetryAfter")
		}
		if now := someTime + r.RetryAfter.Microseconds(); !takeAt(&m, now, l).Allowed {
			t.Error("denied after RetryAfter")
		}
	})
}

// A stored time is believed up to what the limit can owe plus one period ahead,
// and not a microsecond further; in Go as in Redis.
func TestHowFarAheadAStoredTimeIsBelieved(t *testing.T) {
	redis := realBackend(t)
	inRedis := func(t *testing.T, us int64, l Limit) Result {
		t.Helper()
		redis.setTime(us)
		d, err := redis.limiter.Take(t.Context(), Check{Rule: "r", Key: "k", Limit: l})
		if err != nil {
			t.Fatal(err)
		}
		d.Results[0].Source = SourceMemory
		return d.Results[0]
	}
	begin := someTime - someTime%60_000_000
	eachAlgorithm(t, func(t *testing.T, l Limit) {
		l.Rate = 1
		if a := lookup(l.algorithm()); a.bucket {
			l.Burst = 1
		}
		for _, beyond := range []int64{0, 1} {
			redis.flush()
			var m Memory
			for i, at := range []int64{begin + 60_000_000, begin - beyond} {
				got, want := inRedis(t, at, l), takeAt(&m, at, l)
				if got != want {
					t.Errorf("%dµs beyond:\n got %+v\nwant %+v", beyond, got, want)
				}
				if i == 0 {
					continue
				}
				// One believed is two periods off; one not believed is exhausted now.
				if believed := want.RetryAfter > l.Period+time.Microsecond; want.Allowed || believed != (beyond == 0) {
					t.Errorf("%dµs beyond: %+v", beyond, want)
				}
			}
		}
	})
}

// What a large request waits for may be hundreds of entries into the log.
func TestALongLogIsSearchedToTheRightEntry(t *testing.T) {
	redis := realBackend(t)
	var m Memory
	l := Limit{Rate: 500, Period: time.Minute, Algorithm: SlidingLog}
	take := func(us, cost int64) {
		t.Helper()
		check := Check{Rule: "r", Limit: l, Cost: cost}
		redis.setTime(us)
		d, err := redis.limiter.Take(t.Context(), check)
		if err != nil {
			t.Fatal(err)
		}
		want := modelAt(&m, us, true, []Check{check}).Results[0]
		d.Results[0].Source = want.Source
		if d.Results[0] != want {
			t.Fatalf("cost %d:\n got %+v\nwant %+v", cost, d.Results[0], want)
		}
	}
	for i := range int64(450) {
		take(someTime+i, 1)
	}
	for _, waitFor := range []int64{1, 99, 100, 101, 102, 199, 200, 201, 202, 203, 301, 449, 450} {
		take(someTime+1000, 50+waitFor)
		if d, _ := redis.limiter.Peek(t.Context(), Check{Rule: "r", Limit: l, Cost: 50 + waitFor}); d.RetryAfter() != time.Minute-time.Duration(1000-waitFor+1)*time.Microsecond {
			t.Errorf("waiting for %d entries: %s", waitFor, d.RetryAfter())
		}
	}
}

// One that steps back a little gives nobody extra room.
func TestAClockThatStepsBackGivesNoExtraRoom(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, l Limit) {
		var m Memory
		admitted := 0
		for i := range int64(1000) {
			// It jumps to and fro over the edge of a window.
			if takeAt(&m, someTime-someTime%60_000_000+500-i%2*1000, l).Allowed {
				admitted++
			}
		}
		if admitted != 5 {
			t.Errorf("admitted %d, want 5", admitted)
		}
	})
}

// A limit that is raised must not leave those denied who had used up the old one.
func TestARaisedLimitBindsAtOnce(t *testing.T) {
	var m Memory
	slow := Limit{Rate: 1, Period: time.Minute, Burst: 1440, Algorithm: TokenBucket}
	for takeAt(&m, someTime, slow).Allowed {
	}
	// A day of debt is more than this limit can owe.
	r := takeAt(&m, someTime, Limit{Rate: 100, Period: time.Minute, Algorithm: TokenBucket})
	if r.Allowed || r.RetryAfter != 600*time.Millisecond {
		t.Errorf("denied for %s, want as after using up the new limit: 600ms", r.RetryAfter)
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
		// Rounded up to the millisecond, plus one; a bucket's fraction counts as a µs.
		ttl := client.PTTL(context.Background(), keyOf("test", check)).Val()
		need := d.Results[0].ResetAfter
		if least, most := msCeil(need)+time.Millisecond, msCeil(need+time.Microsecond)+time.Millisecond; ttl < least || ttl > most {
			t.Fatalf("%s: kept for %s, reset after %s: want %s to %s", l, ttl, need, least, most)
		}
	})
}

func msCeil(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

// What is charged afterwards may go into debt, but of no more than a period, so
// that no mistake of a caller denies for ever. In Go as in Redis.
func TestDebtIsBounded(t *testing.T) {
	redis := realBackend(t)
	eachAlgorithm(t, func(t *testing.T, l Limit) {
		limits := []Limit{l}
		if a := lookup(l.algorithm()); !a.bucket && l.Algorithm != SlidingLog {
			limits = append(limits, Limit{Rate: maxRate, Period: time.Minute, Algorithm: l.Algorithm})
		}
		for _, l := range limits {
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
				if err := settleAll(t.Context(), redis.limiter, 1<<45, d.Results...); err != nil {
					t.Fatal(err)
				}
				settleModelAt(&m, someTime, 1<<45, want.Results)
			}
			for us := range int64(20) {
				at := someTime + us*10_000_000
				redis.setTime(at)
				got, err := redis.limiter.Peek(t.Context(), check)
				if err != nil {
					t.Fatal(err)
				}
				want := modelAt(&m, at, false, []Check{check}).Results[0]
				got.Results[0].Source = want.Source
				if got.Results[0] != want {
					t.Fatalf("%s after %dµs:\n got %+v\nwant %+v", l, at-someTime, got.Results[0], want)
				}
				if us == 0 && (want.Allowed || want.RetryAfter > 2*l.Period+time.Second) {
					t.Errorf("%s: in debt for %s", l, want.RetryAfter)
				}
			}
		}
	})
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
	a := rapid.SampledFrom(table).Draw(t, "algorithm")
	l := Limit{Rate: rapid.Int64Range(1, 6).Draw(t, "rate"), Period: time.Duration(rapid.Int64Range(1, 50).Draw(t, "period")) * time.Microsecond, Algorithm: a.name}
	if a.bucket {
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
			if most := promise(l, first.at, span); units > most {
				t.Fatalf("%s: kept %d units in %dµs, at most %d are promised\n%v", l, units, span, most, kept)
			}
		}
	}
}

// promise is how many units a limit may admit from a time on, in a span that
// includes both ends.
func promise(l Limit, from, span int64) int64 {
	period := l.Period.Microseconds()
	windows := (from+span)/period - from/period + 1
	switch l.Algorithm {
	case FixedWindow, SlidingWindow: // each aligned window on its own
		return windows * l.Rate
	case TokenBucket, LeakyBucket, GCRA:
		return l.Quota() + span*l.Rate/period
	case SlidingLog: // spans shorter than a period hold one limit, and so on
		return (span/period + 1) * l.Rate
	}
	panic(fmt.Sprint("no promise of ", l.Algorithm))
}

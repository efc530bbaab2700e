package algorithms

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed75154129/ratelimit/internal/rated"
)

// each runs a test for every algorithm at 5 a minute.
func eachAlgorithm(t *testing.T, f func(t *testing.T, l Limit)) {
	t.Helper()
	for i := range rated.Rows {
		t.Run(rated.Rows[i].Name, func(t *testing.T) {
			l := Limit{Rate: 5, Period: time.Minute, Algorithm: Algorithm(rated.Rows[i].Name)}
			if rated.Rows[i].Queue {
				l.Burst = 5
			}
			f(t, l)
		})
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
	a := rapid.SampledFrom(rated.Rows).Draw(t, "algorithm")
	l := Limit{Rate: rapid.Int64Range(1, 6).Draw(t, "rate"), Period: time.Duration(rapid.Int64Range(1, 50).Draw(t, "period")) * time.Microsecond, Algorithm: Algorithm(a.Name)}
	if a.Bucket {
		l.Burst = rapid.Int64Range(1, 6).Draw(t, "burst")
	}
	if rapid.IntRange(0, 6).Draw(t, "by calendar") == 0 {
		l = Limit{Rate: l.Rate, Calendar: "day@UTC"}
	}
	type use struct{ at, units int64 }
	var m Memory
	var kept []use
	var open []Result
	now, period := someTime, roughPeriod(l).Microseconds()
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

package algorithms

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed75154129/ratelimit/internal/rated"
	"github.com/seed75154129/ratelimit/internal/step"
)

// What each of two limits on one key admitted, replayed alone through a fresh
// state of that limit, is all admitted. And each is told truly when it will be
// admitted, if the other one stops: nobody is starved longer than what is owed.
//
// A bucket's fraction of a microsecond is over the rate that wrote it, so a
// charge that is given back at one rate may take less than that from the other.
func TestTwoLimitsOnOneKeyKeepTheirPromises(t *testing.T) {
	for range 30 {
		rapid.Check(t, twoLimits)
	}
}

func twoLimits(t *rapid.T) {
	var m Memory
	row := rapid.SampledFrom(rated.Rows).Draw(t, "algorithm")
	period := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, time.Minute, time.Hour}).Draw(t, "period")
	byCalendar := rapid.IntRange(0, 6).Draw(t, "by calendar") == 0
	if byCalendar {
		row, period = *step.Lookup(string(CalendarWindow)), day
	}
	var limits [2]Limit
	var alone [2]Memory
	var open, openAlone [2][]Result // charges that may be settled
	slack := int64(0)               // µs
	for i := range limits {
		limits[i] = Limit{
			Rate:   rapid.SampledFrom([]int64{1, 3, 7, 10, 20, 99, 100, 1000}).Draw(t, "rate"),
			Period: period, Algorithm: Algorithm(row.Name),
		}
		if byCalendar {
			limits[i].Period, limits[i].Calendar = 0, "day@Asia/Kathmandu"
		}
		if row.Bucket {
			limits[i].Burst = rapid.SampledFrom([]int64{1, 5, 50, 100, 1000}).Draw(t, "burst")
		}
	}
	now := someTime + rapid.Int64Range(0, 10_000_000).Draw(t, "start")
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		i := rapid.IntRange(0, 1).Draw(t, "limit")
		check := Check{Rule: "r", Key: "k", Limit: limits[i], Cost: rapid.Int64Range(1, min(limits[i].Quota(), 6)).Draw(t, "cost")}
		r := modelAt(&m, now, true, []Check{check}).Results[0]
		if r.HasRoom {
			own := modelAt(&alone[i], now, true, []Check{check}).Results[0]
			if wait := own.RetryAfter.Microseconds(); wait > 0 && wait <= slack {
				own = modelAt(&alone[i], now+wait, true, []Check{check}).Results[0]
			}
			if !own.HasRoom {
				t.Fatalf("%s beside %s: admitted %d at %d, which alone it would admit only after %s", limits[i], limits[1-i], check.Cost, now, own.RetryAfter)
			}
			open[i] = append(open[i], r)
			openAlone[i] = append(openAlone[i], own)
			if n := len(open[i]); rapid.IntRange(0, 4).Draw(t, "op") == 0 { // given back, or more and into debt
				n = rapid.IntRange(0, n-1).Draw(t, "which")
				r, own := open[i][n], openAlone[i][n]
				open[i], openAlone[i] = append(open[i][:n:n], open[i][n+1:]...), append(openAlone[i][:n:n], openAlone[i][n+1:]...)
				cost := rapid.OneOf(rapid.Int64Range(0, r.Charged), rapid.Int64Range(0, 30)).Draw(t, "settled")
				if row.Bucket && cost < r.Charged {
					slack++
				}
				settleModelAt(&m, now, cost, []Result{r})
				settleModelAt(&alone[i], now, cost, []Result{own})
			}
		} else {
			if r.RetryAfter > r.ResetAfter {
				t.Fatalf("%s: denied for %s, when all is free in %s", limits[i], r.RetryAfter, r.ResetAfter)
			}
			if rapid.Bool().Draw(t, "wait") { // the other one stops
				now += r.RetryAfter.Microseconds()
				if d := modelAt(&m, now, false, []Check{check}); !d.Allowed {
					t.Fatalf("%s: denied at RetryAfter: %+v", limits[i], d)
				}
			}
		}
		now += rapid.OneOf(rapid.Just[int64](0), rapid.Int64Range(0, 2*period.Microseconds()/limits[i].Rate)).Draw(t, "step")
	}
}

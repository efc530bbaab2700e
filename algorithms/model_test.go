package algorithms

import (
	"cmp"
	"fmt"
	"math"
	"time"
	_ "time/tzdata"

	"pgregory.net/rapid"

	"github.com/seed75154129/ratelimit/internal/rated"
	"github.com/seed75154129/ratelimit/internal/step"
)

const (
	someTime = int64(1_795_000_000_000_000) // µs
	year     = int64(365 * 24 * time.Hour / time.Microsecond)
)

// modelAt decides as Memory would at a given time: the reference for every
// store, since it is the steps in Go and nothing else.
func modelAt(m *Memory, us int64, charge bool, checks []Check) Decision {
	d, err := m.at(us).decide(charge, checks)
	if err != nil {
		panic(err)
	}
	for i := range d.Results {
		d.Results[i] = alone(d.Results[i])
	}
	return d
}

// at is the memory at a time.
func (m *Memory) at(us int64) *Memory {
	m.ready().Clock = func() time.Time { return time.UnixMicro(us) }
	return m
}

// alone is a result that does not know its copies: it can be compared with one of
// another store, and each copy is a charge of its own.
func alone(r Result) Result {
	r.settled, r.moved = nil, 0
	return r
}

// settleModelAt is modelAt for Settle.
func settleModelAt(m *Memory, us, cost int64, charged []Result) []Result {
	charges := chargesOf(cost, charged...)
	for i := range charges {
		charges[i].Result = alone(charges[i].Result) // the store that is compared has settled it, or will
	}
	results, corrections, err := prepareSettle(charges, SourceMemory)
	if err != nil {
		panic(err)
	}
	for i := range corrections {
		m.at(us).settle(&corrections[i])
	}
	return results
}

// takeAt takes one unit on a model at a time.
func takeAt(m *Memory, us int64, l Limit) Result {
	return modelAt(m, us, true, []Check{{Rule: "r", Key: "k", Limit: l}}).Results[0]
}

// The limits that are hardest to represent, each where Validate accepts it.
var extremes = []Limit{
	{Rate: 1, Period: 24 * time.Hour},
	{Rate: 1, Period: 720 * time.Hour},
	{Rate: 999_999, Period: 720 * time.Hour},
	{Rate: 200_003, Period: 24 * time.Hour},
	{Rate: 999_983, Period: time.Second},
	{Rate: 1_000_000, Period: time.Second},
	{Rate: 3, Period: 10 * time.Microsecond},
	{Rate: 7, Period: time.Microsecond},
	{Rate: step.MaxSquared, Period: time.Hour},
	{Rate: 1 << 40, Period: time.Hour},
	{Rate: step.MaxUnits, Period: 24 * time.Hour},
	{Rate: step.MaxUnits, Period: time.Microsecond},
}

// The numbers around which the states of windows have another form; see
// internal/script/common.lua.
var atBoundary = rapid.SampledFrom([]int64{998, 999, 1000, 1001, 999_998, 999_999, 1_000_000, 1_000_001})

// debts are larger than any limit, up to those that must be cut.
var debts = rapid.SampledFrom([]int64{1 << 30, 1 << 45, math.MaxInt64})

// drawLimit draws limits from one in 30 days to a million in a second, of every
// algorithm.
func drawLimit(t *rapid.T, label string) Limit {
	a := rapid.SampledFrom(rated.Rows).Draw(t, label+" algorithm")
	l := rapid.OneOf(
		rapid.SampledFrom(extremes),
		rapid.Custom(func(t *rapid.T) Limit {
			return Limit{
				Rate: rapid.OneOf(rapid.Int64Range(1, 12), rapid.SampledFrom([]int64{100, 7_919}), atBoundary).Draw(t, "rate"),
				Period: rapid.SampledFrom([]time.Duration{
					time.Millisecond, 37 * time.Microsecond, time.Second, 1234567 * time.Microsecond, time.Minute,
				}).Draw(t, "period"),
			}
		}),
	).Draw(t, label)
	l.Algorithm = Algorithm(a.Name)
	if a.Bucket {
		l.Burst = rapid.OneOf(rapid.Just[int64](1), rapid.Int64Range(1, 20), rapid.Just(min(l.Rate, 1_000_000)), rapid.Just(l.Rate)).Draw(t, label+" burst")
	}
	return within(l)
}

// drawMaxDelay draws how long a request can wait: mostly for ever, or a few slots.
func drawMaxDelay(t *rapid.T, l Limit) time.Duration {
	return rapid.OneOf(
		rapid.Just[time.Duration](0),
		rapid.Just[time.Duration](1), // less than a microsecond
		rapid.Map(rapid.Int64Range(0, 3), func(slots int64) time.Duration { return time.Duration(slots) * l.Period / time.Duration(l.Rate) }),
		rapid.Map(rapid.Int64Range(0, 2*l.Period.Microseconds()), func(us int64) time.Duration { return time.Duration(us) * time.Microsecond }),
	).Draw(t, "max delay")
}

// drawBan draws bans that come soon.
func drawBan(t *rapid.T, l Limit) Ban {
	period := l.Period.Microseconds()
	times := rapid.Map(rapid.OneOf(rapid.Just(period), rapid.Int64Range(1, period), rapid.Int64Range(1, 3*period)),
		func(us int64) time.Duration { return time.Duration(us) * time.Microsecond })
	return Ban{
		After:  rapid.Int64Range(1, 3).Draw(t, "after"),
		Within: rapid.OneOf(rapid.Just[time.Duration](0), times).Draw(t, "within"),
		For:    times.Draw(t, "for"),
	}
}

// within changes a limit as little as Validate asks for.
func within(l Limit) Limit {
	l.Rate = min(l.Rate, l.row().MaxRate)
	for l.Burst > 1 && !l.step().OkFor(l.row()) {
		l.Burst /= 2
	}
	if err := l.Validate(); err != nil {
		panic(fmt.Sprint(l, ": ", err))
	}
	return l
}

// changed is another limit for the same state: raised, lowered or the burst.
func changed(t *rapid.T, l Limit) Limit {
	a := l.row()
	l.Rate = rapid.SampledFrom([]int64{1, max(l.Rate/2, 1), l.Rate + 1, l.Rate * 3}).Draw(t, "new rate")
	if a.Bucket {
		l.Burst = rapid.SampledFrom([]int64{1, max(l.Burst/3, 1), l.Burst + 1, l.Burst * 10}).Draw(t, "new burst")
	}
	return within(l)
}

// drawStep draws how far the clock moves: mostly a little, sometimes to the
// edges of an answer, now and then back, or a year to and fro.
func drawStep(t *rapid.T, l Limit, d Decision) int64 {
	period := roughPeriod(l).Microseconds()
	edge := d.RetryAfter()
	if edge == Never {
		edge = 0
	}
	return rapid.OneOf(
		rapid.Int64Range(0, 3),
		rapid.Int64Range(0, period/4+1),
		rapid.Int64Range(0, 3*period),
		rapid.SampledFrom([]int64{
			edge.Microseconds(), max(edge.Microseconds()-1, 0), period, 2*period - 1,
			-1, -1, -1_000_000, -period, year, -year,
		}),
	).Draw(t, "step")
}

// roughPeriod is about how long a limit's windows are.
func roughPeriod(l Limit) time.Duration { return cmp.Or(l.Period, 24*time.Hour) }

package step

import (
	"math/bits"
	"time"
)

// Params are a limit and a cost as numbers, for a step and its twin. Bucket times are in
// two parts: whole microseconds (W) and a fraction with the rate as its denominator (F).
type Params struct {
	*Row
	rate, Period int64 // units and µs
	calendar     *Calendar
	told         *Windows // of the calendar, for the Arguments
	Cost         int64    // a cost above the quota is the quota + 1, which no state admits; 0 is a look
	ID           int64    // Held: a random number below 2^52 for a request that no Guard knows
	never        bool     // the cost is above the quota
	costW, costF int64    // buckets: the time to refill the cost
	fullW, fullF int64    // buckets: the time to refill the whole bucket
	roomW, roomF int64    // buckets: how far ahead of now TAT may be after the charge
	Own          bool     // a Memory counts it in an entry of its own, or not at all

	Bound *Bound // the cached conversion that these are equal to; nil if there is none
}

// Look is the cost of a check that fits if the bucket is full, and is charged nothing.
const Look = 0

// Params computes the params of a valid limit. cost and maxDelay must not be negative.
func (l Limit) Params(cost int64, maxDelay time.Duration, row *Row) Params {
	p := Params{Row: row, rate: l.Rate, Period: l.Period.Microseconds()}
	if row.Calendar {
		p.calendar, _ = ParseCalendar(l.Calendar) // which is valid
	}
	quota := l.quotaFor(row)
	if row.Bucket {
		p.fullW, p.fullF = p.refill(quota)
	}
	p.never = cost > quota
	p.SetCost(min(cost, quota+1))
	if row.Queue && maxDelay > 0 {
		p.wait(maxDelay.Microseconds())
	}
	return p
}

// Looks reports whether the cost is a [Look].
func (p *Params) Looks() bool { return p.Cost == Look }

// Window is that of the limit.
func (p *Params) Window() uint64 { return windowOf(p.Counts(), p.Number) }

// Counts tells apart the counts of one algorithm: by its period or calendar.
func (p *Params) Counts() uint64 {
	if p.calendar != nil {
		return p.calendar.id
	}
	return uint64(p.Period)
}

// SameWindow reports whether two times are in one window; true where there are none.
func (p *Params) SameWindow(s, t int64) bool {
	switch {
	case p.calendar != nil:
		return p.calendar.Around(t)[1].holds(s)
	case p.Aligned:
		return s/p.Period == t/p.Period
	}
	return true
}

// Tell has the Arguments say which windows of the calendar are around a time.
func (p *Params) Tell(now int64) { p.told = p.calendar.Around(now) }

// SetCost changes the cost, which must not be above the quota + 1.
func (p *Params) SetCost(units int64) {
	p.Bound = nil
	if p.Cost = units; p.Bucket {
		p.costW, p.costF = p.refill(units)
		if p.roomW, p.roomF = p.fullW, p.fullF; units == Look {
			p.roomW, p.roomF = 0, 0
		}
	}
}

// wait bounds how far ahead of now the slot may begin, and so where it may end.
func (p *Params) wait(most int64) {
	p.Bound = nil
	most = min(most, MaxDuration)
	if w := most + p.costW; w < p.roomW || w == p.roomW && p.costF < p.roomF {
		p.roomW, p.roomF = w, p.costF
	}
}

// refill is the time in which a bucket refills these units, at most MaxDuration.
func (p *Params) refill(units int64) (w, f int64) {
	hi, lo := bits.Mul64(uint64(units), uint64(p.Period))
	if hi >= uint64(p.rate) {
		return MaxDuration, 0
	}
	q, r := bits.Div64(hi, lo, uint64(p.rate))
	if q >= MaxDuration {
		return MaxDuration, 0
	}
	return int64(q), int64(r)
}

// never is the RetryAfter of a cost above the quota.
const never time.Duration = 1<<63 - 1

// Micros converts µs to a Duration. Times that a Duration cannot hold become never.
func Micros(us int64) time.Duration {
	if us > int64(never/time.Microsecond) {
		return never
	}
	return time.Duration(us) * time.Microsecond
}

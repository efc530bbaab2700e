package algorithms

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// An exactModel is what an algorithm promises, written from its definition in
// rational numbers: no state but what was admitted, no formula of the steps.
type exactModel interface {
	admits(now, cost int64) bool // for any now, without changing anything
	charge(now, cost int64)
}

// delayer is a model whose admissions have to wait.
type delayer interface {
	delay(now int64) int64
}

func exactOf(l Limit) exactModel {
	h := history{rate: l.Rate, burst: l.Quota(), period: l.Period.Microseconds()}
	switch l.Algorithm {
	case FixedWindow:
		return &exactFixed{h}
	case SlidingWindow:
		return &exactSliding{h}
	case SlidingLog:
		return &exactLog{h}
	case TokenBucket, GCRA:
		return &exactTokens{history: h, tokens: big.NewRat(h.burst, 1)}
	case LeakyBucket:
		return &exactQueue{history: h, free: new(big.Rat)}
	}
	panic("no exact model of " + l.Algorithm)
}

type use struct{ at, units int64 }

type history struct {
	rate, burst, period int64
	uses                []use
}

func (h *history) charge(now, cost int64) { h.uses = append(h.uses, use{now, cost}) }

// in is the units in [from, to).
func (h *history) in(from, to int64) (units int64) {
	for _, u := range h.uses {
		if u.at >= from && u.at < to {
			units += u.units
		}
	}
	return units
}

type exactFixed struct{ history }

func (m *exactFixed) admits(now, cost int64) bool {
	begin := now / m.period * m.period
	return m.in(begin, begin+m.period)+cost <= m.rate
}

type exactSliding struct{ history }

func (m *exactSliding) admits(now, cost int64) bool {
	begin := now / m.period * m.period
	share := big.NewRat(begin+m.period-now, m.period)
	estimate := share.Mul(share, big.NewRat(m.in(begin-m.period, begin), 1))
	estimate.Add(estimate, big.NewRat(m.in(begin, begin+m.period)+cost, 1))
	return estimate.Cmp(big.NewRat(m.rate, 1)) <= 0
}

type exactLog struct{ history }

func (m *exactLog) admits(now, cost int64) bool {
	return m.in(now-m.period+1, now+1)+cost <= m.rate
}

// exactTokens counts tokens, where the step counts time: that both agree is
// also the proof that token_bucket and gcra are one.
type exactTokens struct {
	history
	tokens *big.Rat
	asOf   int64
}

func (m *exactTokens) at(now int64) *big.Rat {
	if m.asOf == 0 {
		return big.NewRat(m.burst, 1)
	}
	refill := big.NewRat(now-m.asOf, m.period)
	refill.Mul(refill, big.NewRat(m.rate, 1)).Add(refill, m.tokens)
	if full := big.NewRat(m.burst, 1); refill.Cmp(full) > 0 {
		return full
	}
	return refill
}

func (m *exactTokens) admits(now, cost int64) bool { return m.at(now).Cmp(big.NewRat(cost, 1)) >= 0 }

func (m *exactTokens) charge(now, cost int64) {
	m.tokens, m.asOf = m.at(now), now
	m.tokens.Sub(m.tokens, big.NewRat(cost, 1))
}

// exactQueue gives away slots of period/rate, one after the other.
type exactQueue struct {
	history
	free *big.Rat // when the next slot begins
}

func (m *exactQueue) begin(now int64) *big.Rat {
	if begin := big.NewRat(now, 1); begin.Cmp(m.free) > 0 {
		return begin
	}
	return m.free
}

func (m *exactQueue) after(now, cost int64) *big.Rat {
	slots := big.NewRat(m.period, m.rate)
	slots.Mul(slots, big.NewRat(cost, 1))
	return slots.Add(slots, m.begin(now))
}

// admits: the place of its last unit in the queue, counted in slots from now,
// must be at most burst.
func (m *exactQueue) admits(now, cost int64) bool {
	place := m.after(now, cost)
	place.Sub(place, big.NewRat(now, 1))
	place.Mul(place, big.NewRat(m.rate, m.period))
	return place.Cmp(big.NewRat(m.burst, 1)) <= 0
}

func (m *exactQueue) charge(now, cost int64) { m.free = m.after(now, cost) }

func (m *exactQueue) delay(now int64) int64 {
	d := new(big.Rat).Sub(m.begin(now), big.NewRat(now, 1))
	q, r := new(big.Int).QuoRem(d.Num(), d.Denom(), new(big.Int))
	if r.Sign() > 0 {
		return q.Int64() + 1
	}
	return q.Int64()
}

// TestStepsAreExact compares every answer of the steps with rational
// arithmetic: what is admitted, that Remaining is what would still be, that
// RetryAfter and ResetAfter are the first microsecond at which it is true, that
// a denial changes nothing.
func TestStepsAreExact(t *testing.T) {
	steps := 0
	for range 10 {
		rapid.Check(t, func(t *rapid.T) {
			l := drawLimit(t, "limit")
			quota := l.Quota()
			exact := exactOf(l)
			var m Memory
			now := someTime + rapid.Int64Range(0, 86_400_000_000).Draw(t, "start")
			for range rapid.IntRange(1, 30).Draw(t, "steps") {
				steps++
				cost := min(rapid.OneOf(rapid.Just[int64](1), rapid.Int64Range(1, quota)).Draw(t, "cost"), quota)
				check := Check{Rule: "r", Limit: l, Cost: cost}
				before := modelAt(&m, now, false, []Check{check}).Results[0]
				exactly(t, l, exact, now, before)
				r := modelAt(&m, now, true, []Check{check}).Results[0]

				if want := exact.admits(now, cost); r.Allowed != want {
					t.Fatalf("%s at %d: allowed %v, want %v", l, now, r.Allowed, want)
				}
				if d, ok := exact.(delayer); ok && r.Allowed && r.Delay.Microseconds() != d.delay(now) {
					t.Fatalf("%s at %d: delay %s, want %dµs", l, now, r.Delay, d.delay(now))
				}
				if r.Allowed {
					exact.charge(now, cost)
				} else {
					retry := r.RetryAfter.Microseconds()
					if retry < 1 || !exact.admits(now+retry, cost) || exact.admits(now+retry-1, cost) {
						t.Fatalf("%s at %d: RetryAfter %s is not the first time that has room", l, now, r.RetryAfter)
					}
					if r != before {
						t.Fatalf("%s at %d: a denial changed %+v to %+v", l, now, before, r)
					}
				}
				exactly(t, l, exact, now, r)
				if step := drawStep(t, l, Decision{Results: []Result{r}}); step > 0 {
					now += step
				}
			}
		})
	}
	t.Logf("%d steps", steps)
}

// exactly checks what a result says is left, and when all of it is free.
func exactly(t *rapid.T, l Limit, exact exactModel, now int64, r Result) {
	quota, left := l.Quota(), r.Remaining
	if left < 0 || left > quota || left > 0 && !exact.admits(now, left) || left < quota && exact.admits(now, left+1) {
		t.Fatalf("%s at %d: remaining %d is not what is left", l, now, left)
	}
	reset := r.ResetAfter.Microseconds()
	if !exact.admits(now+reset, quota) || reset > 0 && exact.admits(now+reset-1, quota) {
		t.Fatalf("%s at %d: ResetAfter %s is not when all is free", l, now, r.ResetAfter)
	}
}

package algorithms

import (
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed75154129/ratelimit/internal/step"
)

// An exactModel is what an algorithm promises, written from its definition in
// rational numbers: no state but what was admitted, no formula of the steps.
type exactModel interface {
	left(now int64) *big.Rat // units at any now, without changing anything; negative is a debt
	charge(now, cost int64)  // whatever is left
	// giveBack takes back units of the n-th charge, as far as they still count.
	giveBack(now int64, n int, units int64)
	change(now, rate, burst int64) // to another limit for the same state
	// promise is how many units may be admitted from a time on, in a span that
	// includes both ends, though charges are given back.
	promise(from, span int64) int64
}

func admits(m exactModel, now, cost int64) bool { return m.left(now).Cmp(big.NewRat(cost, 1)) >= 0 }

// delayer is a model whose admissions have to wait.
type delayer interface {
	delay(now int64) int64
}

var exactModels = map[Algorithm]func(history) exactModel{
	FixedWindow:   func(h history) exactModel { return &exactFixed{h} },
	SlidingWindow: func(h history) exactModel { return &exactSliding{h} },
	SlidingLog:    func(h history) exactModel { return &exactLog{h} },
	TokenBucket:   newExactTokens,
	GCRA:          newExactTokens,
	LeakyBucket:   func(h history) exactModel { return &exactQueue{history: h, free: new(big.Rat)} },
}

func exactOf(l Limit) exactModel {
	if l.Calendar != "" {
		return &exactCalendar{exactFixed{history{rate: l.Rate, period: day.Microseconds()}}, l.Calendar}
	}
	return exactModels[l.Algorithm](history{rate: l.Rate, burst: l.Quota(), period: l.Period.Microseconds()})
}

type use struct {
	at, units int64
	begin     *big.Rat // of its slots, in a queue
}

type history struct {
	rate, burst, period int64
	uses                []use
}

func (h *history) charge(now, cost int64) { h.uses = append(h.uses, use{at: now, units: cost}) }

func (h *history) giveBack(_ int64, n int, units int64) { h.uses[n].units -= units }

func (h *history) change(_, rate, burst int64) { h.rate, h.burst = rate, burst }

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

func (m *exactFixed) left(now int64) *big.Rat {
	begin := now / m.period * m.period
	return big.NewRat(m.rate-m.in(begin, begin+m.period), 1)
}

func (m *exactFixed) promise(from, span int64) int64 { return m.windows(from, span) * m.rate }

// windows is how many aligned windows a span touches, each of which counts on
// its own.
func (h *history) windows(from, span int64) int64 { return (from+span)/h.period - from/h.period + 1 }

// exactCalendar counts what package time gives the same date. Its promise is that of
// day@UTC.
type exactCalendar struct {
	exactFixed
	calendar string
}

// exactDates name the windows of a calendar's unit.
var exactDates = map[string]func(time.Time) string{
	"day":     func(t time.Time) string { return t.Format(time.DateOnly) },
	"week":    func(t time.Time) string { return fmt.Sprint(t.ISOWeek()) },
	"month":   func(t time.Time) string { return t.Format("2006-01") },
	"quarter": func(t time.Time) string { return fmt.Sprint(t.Year(), (t.Month()-1)/3) },
	"year":    func(t time.Time) string { return fmt.Sprint(t.Year()) },
}

func (m *exactCalendar) date(at int64) string {
	unit, zone, _ := strings.Cut(m.calendar, "@")
	in, err := time.LoadLocation(zone)
	if err != nil {
		panic(err)
	}
	return exactDates[unit](time.UnixMicro(at).In(in))
}

func (m *exactCalendar) left(now int64) *big.Rat {
	left, date := m.rate, m.date(now)
	for _, u := range m.uses {
		if m.date(u.at) == date {
			left -= u.units
		}
	}
	return big.NewRat(left, 1)
}

type exactSliding struct{ history }

func (m *exactSliding) promise(from, span int64) int64 { return m.windows(from, span) * m.rate }

func (m *exactSliding) left(now int64) *big.Rat {
	begin := now / m.period * m.period
	share := big.NewRat(begin+m.period-now, m.period)
	share.Mul(share, big.NewRat(m.in(begin-m.period, begin), 1))
	return share.Sub(big.NewRat(m.rate-m.in(begin, begin+m.period), 1), share)
}

type exactLog struct{ history }

func (m *exactLog) left(now int64) *big.Rat {
	return big.NewRat(m.rate-m.in(now-m.period+1, now+1), 1)
}

// promise: spans shorter than a period hold one limit, and so on.
func (m *exactLog) promise(_, span int64) int64 { return (span/m.period + 1) * m.rate }

// exactTokens counts tokens, where the step counts time: that both agree is
// also the proof that token_bucket and gcra are one.
type exactTokens struct {
	history
	tokens *big.Rat
	asOf   int64
}

// refilled is a full bucket and what flows into it.
func (h *history) refilled(span int64) int64 { return h.burst + span*h.rate/h.period }

func newExactTokens(h history) exactModel {
	return &exactTokens{history: h, tokens: big.NewRat(h.burst, 1)}
}

func (m *exactTokens) left(now int64) *big.Rat {
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

func (m *exactTokens) promise(_, span int64) int64 { return m.refilled(span) }

func (m *exactTokens) charge(now, cost int64) {
	m.history.charge(now, cost)
	m.tokens, m.asOf = m.left(now), now
	m.tokens.Sub(m.tokens, big.NewRat(cost, 1))
}

// giveBack returns what has not been refilled of the charge.
func (m *exactTokens) giveBack(now int64, n int, units int64) {
	u := &m.uses[n]
	back := big.NewRat(now-u.at, m.period)
	back.Mul(back, big.NewRat(m.rate, 1)).Sub(big.NewRat(u.units, 1), back)
	if all := big.NewRat(units, 1); back.Cmp(all) > 0 {
		back = all
	}
	if u.units -= units; back.Sign() > 0 {
		m.tokens, m.asOf = back.Add(back, m.left(now)), now
	}
}

// change keeps the time until the bucket is full.
func (m *exactTokens) change(now, rate, burst int64) {
	taken := m.left(now)
	taken.Sub(big.NewRat(m.burst, 1), taken).Mul(taken, big.NewRat(rate, m.rate))
	m.history.change(now, rate, burst)
	m.tokens, m.asOf = taken.Sub(big.NewRat(burst, 1), taken), now
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

func (m *exactQueue) promise(_, span int64) int64 { return m.refilled(span) }

// left is how many places are free, counted in slots from now.
func (m *exactQueue) left(now int64) *big.Rat {
	taken := new(big.Rat).Sub(m.begin(now), big.NewRat(now, 1))
	taken.Mul(taken, big.NewRat(m.rate, m.period))
	return taken.Sub(big.NewRat(m.burst, 1), taken)
}

func (m *exactQueue) charge(now, cost int64) {
	begin := m.begin(now)
	m.uses = append(m.uses, use{now, cost, begin})
	m.free = m.after(begin, cost)
}

// after is when so many slots end that begin then.
func (m *exactQueue) after(begin *big.Rat, slots int64) *big.Rat {
	end := big.NewRat(m.period, m.rate)
	return end.Mul(end, big.NewRat(slots, 1)).Add(end, begin)
}

// giveBack returns the last slots only: others were told when theirs begin.
func (m *exactQueue) giveBack(_ int64, n int, units int64) {
	u := &m.uses[n]
	if m.after(u.begin, u.units).Cmp(m.free) == 0 {
		m.free = m.after(u.begin, u.units-units)
	}
	u.units -= units
}

func (m *exactQueue) delay(now int64) int64 {
	d := new(big.Rat).Sub(m.begin(now), big.NewRat(now, 1))
	q, r := new(big.Int).QuoRem(d.Num(), d.Denom(), new(big.Int))
	if r.Sign() > 0 {
		return q.Int64() + 1
	}
	return q.Int64()
}

// TestStepsAreExact compares every answer of the steps with rational
// arithmetic: what is admitted, that Remaining is what would still be, or the
// debt, that RetryAfter and ResetAfter are the first microsecond at which it is
// true, that a denial changes nothing.
func TestStepsAreExact(t *testing.T) {
	steps := 0
	for range 10 {
		rapid.Check(t, func(t *rapid.T) {
			l := drawLimit(t, "limit")
			if rapid.IntRange(0, 6).Draw(t, "by calendar") == 0 {
				l = Limit{Rate: rapid.OneOf(rapid.Int64Range(1, 12), atBoundary).Draw(t, "in a window"), Calendar: rapid.SampledFrom([]string{
					"day@UTC", "day@America/Santiago", "day@Asia/Kathmandu", "week@Europe/Berlin", "month@UTC", "quarter@America/Havana", "year@UTC",
				}).Draw(t, "calendar")}
			}
			quota := l.Quota()
			exact := exactOf(l)
			var m Memory
			now := someTime + rapid.Int64Range(0, 86_400_000_000).Draw(t, "start")
			for range rapid.IntRange(1, 30).Draw(t, "steps") {
				steps++
				cost := min(rapid.OneOf(rapid.Just[int64](1), rapid.Int64Range(1, quota)).Draw(t, "cost"), quota)
				check := Check{Rule: "r", Limit: l, Cost: cost, MaxDelay: drawMaxDelay(t, l)}
				admits := func(now int64) bool {
					d, ok := exact.(delayer)
					return admits(exact, now, cost) && (!ok || check.MaxDelay == 0 || d.delay(now) <= check.MaxDelay.Microseconds())
				}
				before := modelAt(&m, now, false, []Check{check}).Results[0]
				exactly(t, l, exact, now, before)
				r := modelAt(&m, now, true, []Check{check}).Results[0]

				if want := admits(now); r.HasRoom != want {
					t.Fatalf("%s at %d: allowed %v, want %v", l, now, r.HasRoom, want)
				}
				if d, ok := exact.(delayer); ok && r.HasRoom && r.Delay.Microseconds() != d.delay(now) {
					t.Fatalf("%s at %d: delay %s, want %dµs", l, now, r.Delay, d.delay(now))
				}
				if r.HasRoom {
					exact.charge(now, cost)
				} else {
					retry := r.RetryAfter.Microseconds()
					if retry < 1 || !admits(now+retry) || admits(now+retry-1) {
						t.Fatalf("%s at %d: RetryAfter %s is not the first time that has room", l, now, r.RetryAfter)
					}
					if r != before {
						t.Fatalf("%s at %d: a denial changed %+v to %+v", l, now, before, r)
					}
				}
				exactly(t, l, exact, now, r)
				if more := rapid.Int64Range(0, min(l.Rate, 1000)).Draw(t, "more"); r.HasRoom && l.Rate < step.MaxSquared/4 && rapid.IntRange(0, 4).Draw(t, "settle") == 0 {
					r = settleModelAt(&m, now, r.Charged+more, []Result{r})[0]
					exact.charge(now, more)
					exactly(t, l, exact, now, r)
				}
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
	over := exact.left(now) // what is left of a unit
	if over.Sub(over, big.NewRat(r.Remaining, 1)); over.Sign() < 0 || over.Cmp(big.NewRat(1, 1)) >= 0 {
		t.Fatalf("%s at %d: remaining %d is not what is left", l, now, r.Remaining)
	}
	reset := r.ResetAfter.Microseconds()
	if quota := l.Quota(); !admits(exact, now+reset, quota) || reset > 0 && admits(exact, now+reset-1, quota) {
		t.Fatalf("%s at %d: ResetAfter %s is not when all is free", l, now, r.ResetAfter)
	}
}

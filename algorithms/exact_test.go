package algorithms_test

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/step"
)

// An exactModel is what an algorithm promises, written from its definition in
// rational numbers: no state but what was admitted, no formula of the steps.
type exactModel interface {
	left(now int64) *big.Rat // units at any now, without changing anything; negative is a debt
	charge(now, cost int64)  // whatever is left
	// giveBack takes back units of the n-th charge, as far as they still count.
	giveBack(now int64, n int, units int64)
	// promise is how many units may be admitted from a time on, in a span that
	// includes both ends, though charges are given back.
	promise(from, span int64) int64
	used() []use
}

func admits(m exactModel, now, cost int64) bool { return m.left(now).Cmp(big.NewRat(cost, 1)) >= 0 }

// delayer is a model whose admissions have to wait.
type delayer interface {
	delay(now int64) int64
}

var exactModels = map[algorithms.Algorithm]func(counted) exactModel{
	algorithms.FixedWindow:   func(h counted) exactModel { return &exactFixed{h} },
	algorithms.SlidingWindow: func(h counted) exactModel { return &exactSliding{h} },
	algorithms.SlidingLog:    func(h counted) exactModel { return &exactLog{h} },
	algorithms.TokenBucket:   newExactTokens,
	algorithms.GCRA:          newExactTokens,
	algorithms.LeakyBucket:   func(h counted) exactModel { return &exactQueue{counted: h, free: new(big.Rat)} },
}

func exactOf(l algorithms.Limit) exactModel {
	if l.Calendar != "" {
		return &exactCalendar{exactFixed{counted{rate: l.Rate, period: day}}, l.Calendar}
	}
	return exactModels[l.Algorithm](counted{rate: l.Rate, burst: l.Quota(), period: l.Period.Microseconds()})
}

type use struct {
	at, units int64
	begin     *big.Rat // of its slots, in a queue
}

// counted is a limit, and what was charged.
type counted struct {
	rate, burst, period int64
	uses                []use
}

func (h *counted) charge(now, cost int64) { h.uses = append(h.uses, use{at: now, units: cost}) }

func (h *counted) giveBack(_ int64, n int, units int64) { h.uses[n].units -= units }

func (h *counted) used() []use { return h.uses }

// in is the units in [from, to).
func (h *counted) in(from, to int64) (units int64) {
	for _, u := range h.uses {
		if u.at >= from && u.at < to {
			units += u.units
		}
	}
	return units
}

type exactFixed struct{ counted }

func (m *exactFixed) left(now int64) *big.Rat {
	begin := now / m.period * m.period
	return big.NewRat(m.rate-m.in(begin, begin+m.period), 1)
}

func (m *exactFixed) promise(from, span int64) int64 { return m.windows(from, span) * m.rate }

// windows is how many aligned windows a span touches, each of which counts on
// its own.
func (h *counted) windows(from, span int64) int64 { return (from+span)/h.period - from/h.period + 1 }

// exactCalendar counts what package time gives the same date.
type exactCalendar struct {
	exactFixed
	calendar string
}

// exactDates name the windows of a calendar's unit.
var exactDates = map[string]func(time.Time) string{
	"day":   func(t time.Time) string { return t.Format(time.DateOnly) },
	"week":  func(t time.Time) string { return fmt.Sprint(t.ISOWeek()) },
	"month": func(t time.Time) string { return t.Format("2006-01") },
	"month:31": func(t time.Time) string { // begins on the last day
		return t.AddDate(0, 0, 1).Format("2006-01")
	},
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

func (m *exactCalendar) promise(from, span int64) int64 {
	dates := map[string]bool{}
	for _, u := range m.uses {
		if u.at >= from && u.at <= from+span {
			dates[m.date(u.at)] = true
		}
	}
	return int64(len(dates)) * m.rate
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

type exactSliding struct{ counted }

func (m *exactSliding) promise(from, span int64) int64 { return m.windows(from, span) * m.rate }

func (m *exactSliding) left(now int64) *big.Rat {
	begin := now / m.period * m.period
	share := big.NewRat(begin+m.period-now, m.period)
	share.Mul(share, big.NewRat(m.in(begin-m.period, begin), 1))
	return share.Sub(big.NewRat(m.rate-m.in(begin, begin+m.period), 1), share)
}

type exactLog struct{ counted }

func (m *exactLog) left(now int64) *big.Rat {
	return big.NewRat(m.rate-m.in(now-m.period+1, now+1), 1)
}

// promise: spans shorter than a period hold one limit, and so on.
func (m *exactLog) promise(_, span int64) int64 { return (span/m.period + 1) * m.rate }

// exactTokens counts tokens, where the step counts time: that both agree is
// also the proof that token_bucket and gcra are one.
type exactTokens struct {
	counted
	tokens *big.Rat
	asOf   int64
}

// refilled is a full bucket and what flows into it.
func (h *counted) refilled(span int64) int64 { return h.burst + span*h.rate/h.period }

func newExactTokens(h counted) exactModel {
	return &exactTokens{counted: h, tokens: big.NewRat(h.burst, 1)}
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
	m.counted.charge(now, cost)
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

// exactQueue gives away slots of period/rate, one after the other.
type exactQueue struct {
	counted
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

// An exactRun is one of a history on a Memory and on exact models.
type exactRun struct {
	memory  *algorithms.Memory
	now     int64
	models  map[algorithms.Check]exactModel // by rule, key and limit
	debts   map[exactModel]bool             // was charged beyond its limit
	charges []exactCharge
}

type exactCharge struct {
	result algorithms.Result
	model  exactModel
	n      int // of the model's charges
}

// exactly runs a history on a Memory, and says where an answer is not what rational
// arithmetic says: what is admitted, that Remaining is what would still be, or the debt,
// that RetryAfter and ResetAfter are the first microsecond at which it is true. What is kept
// of all charges must be inside each limit's promise.
func exactly(h history) error {
	r := exactRun{now: max(h.start, h.earliest), models: map[algorithms.Check]exactModel{}, debts: map[exactModel]bool{}}
	r.memory = &algorithms.Memory{Now: func() time.Time { return time.UnixMicro(r.now) }}
	var wait int64
	for i, o := range h.ops {
		if o.edge {
			o.move += wait
		}
		r.now = max(r.now, min(r.now+o.move, lastTime))
		d, err := r.do(o)
		if err != nil {
			return fmt.Errorf("step %d, %s at %d: %w", i, o.what, r.now, err)
		}
		if wait = d.RetryAfter().Microseconds(); wait > year {
			wait = 0
		}
	}
	return r.promises()
}

func (r *exactRun) do(o op) (d algorithms.Decision, err error) {
	ctx := context.Background()
	switch o.what {
	case "take", "peek":
		return r.decide(o.what, o.checks)
	case "log":
		for d.Allowed = true; d.Allowed && o.units > 0 && err == nil; o.units-- {
			r.now++
			d, err = r.decide("take", o.checks)
		}
	case "settle":
		if len(r.charges) > 0 {
			at := max(len(r.charges)-1-o.charge, 0)
			c := r.charges[at]
			r.charges = slices.Delete(r.charges, at, at+1)
			return d, r.settle(c, o.units)
		}
	case "reset":
		for _, c := range o.checks {
			r.charges = slices.DeleteFunc(r.charges, func(other exactCharge) bool { return other.model == r.modelOf(c) })
			delete(r.models, named(c))
		}
		return d, r.memory.Reset(ctx, o.checks...)
	}
	return d, err
}

func named(c algorithms.Check) algorithms.Check {
	return algorithms.Check{Rule: c.Rule, Key: c.Key, Limit: c.Limit}
}

func (r *exactRun) modelOf(c algorithms.Check) exactModel {
	if r.models[named(c)] == nil {
		r.models[named(c)] = exactOf(c.Limit)
	}
	return r.models[named(c)]
}

func (r *exactRun) decide(what string, checks []algorithms.Check) (algorithms.Decision, error) {
	decide, allowed := r.memory.Take, true
	if what == "peek" {
		decide = r.memory.Peek
	}
	d, err := decide(context.Background(), checks...)
	if err != nil {
		return d, err
	}
	for i, c := range checks {
		m, cost, res := r.modelOf(c), max(c.Cost, 1), d.Results[i]
		queue, _ := m.(delayer)
		room := func(at int64) bool {
			return admits(m, at, cost) && (queue == nil || c.MaxDelay == 0 || queue.delay(at) <= c.MaxDelay.Microseconds())
		}
		retry := res.RetryAfter.Microseconds()
		switch {
		case res.HasRoom != room(r.now):
			return d, fmt.Errorf("%+v: room %v", c, res.HasRoom)
		case res.HasRoom && queue != nil && res.Delay.Microseconds() != queue.delay(r.now):
			return d, fmt.Errorf("%+v: delay %s, want %dµs", c, res.Delay, queue.delay(r.now))
		case res.HasRoom:
		case cost > c.Limit.Quota() && res.RetryAfter != algorithms.Never,
			cost <= c.Limit.Quota() && (retry < 1 || !room(r.now+retry) || room(r.now+retry-1)):
			return d, fmt.Errorf("%+v: RetryAfter %s is not the first time that has room", c, res.RetryAfter)
		}
		allowed = allowed && (res.HasRoom || c.Shadow)
	}
	if d.Allowed != allowed {
		return d, fmt.Errorf("allowed %v, want %v", d.Allowed, allowed)
	}
	for i, c := range checks {
		m, res := r.modelOf(c), d.Results[i]
		if want := max(c.Cost, 1); what == "take" && allowed && res.HasRoom {
			if res.Charged != want {
				return d, fmt.Errorf("%+v: charged %d", c, res.Charged)
			}
			m.charge(r.now, want)
			r.charges = append(r.charges, exactCharge{res, m, len(m.used()) - 1})
		}
		if err := r.left(m, res); err != nil {
			return d, err
		}
	}
	return d, nil
}

// settle lowers a charge, which stays one, or raises it a little.
func (r *exactRun) settle(c exactCharge, to int64) error {
	most := c.result.Charged
	if l := c.result.Check.Limit; l.Rate < step.MaxSquared/4 && l.Period < 8000*time.Hour { // the debt stays in the exact range
		most += min(1000, l.Rate)
	}
	to = min(to, most)
	results, err := r.memory.Settle(context.Background(), algorithms.Charge{Result: c.result, Cost: to})
	if err != nil || to == c.result.Charged { // then it is as it was told before
		return err
	}
	if less := c.result.Charged - to; less > 0 {
		c.model.giveBack(r.now, c.n, less)
		if c.result = results[0]; to > 0 {
			r.charges = append(r.charges, c)
		}
	} else {
		c.model.charge(r.now, -less)
		r.debts[c.model] = true
	}
	return r.left(c.model, results[0])
}

// left checks what a result says is left, and when all of it is free.
func (r *exactRun) left(m exactModel, res algorithms.Result) error {
	over := m.left(r.now) // what is left of a unit
	if over.Sub(over, big.NewRat(res.Remaining, 1)); over.Sign() < 0 || over.Cmp(big.NewRat(1, 1)) >= 0 {
		return fmt.Errorf("%+v: remaining %d is not what is left", res.Check, res.Remaining)
	}
	reset, quota := res.ResetAfter.Microseconds(), res.Check.Limit.Quota()
	if !admits(m, r.now+reset, quota) || reset > 0 && admits(m, r.now+reset-1, quota) {
		return fmt.Errorf("%+v: ResetAfter %s is not when all is free", res.Check, res.ResetAfter)
	}
	return nil
}

// promises checks the units in every span that begins and ends with a use.
func (r *exactRun) promises() error {
	for c, m := range r.models {
		uses := m.used()
		if r.debts[m] || len(uses) > 100 || c.Limit.Rate > 1_000_000 {
			continue
		}
		for i := range uses {
			var units int64
			for _, last := range uses[i:] {
				units += last.units
				if last.at-uses[i].at > day {
					break
				}
				if most := m.promise(uses[i].at, last.at-uses[i].at); units > most {
					return fmt.Errorf("%+v: kept %d units from %d to %d, at most %d are promised", c, units, uses[i].at, last.at, most)
				}
			}
		}
	}
	return nil
}

// beside runs a history of which each count has two limits, on one Memory, and each limit
// alone on another. What a limit has admitted is admitted alone, too: the other limit only
// takes units away. And each is told truly when it will be admitted, if the other one
// stops: nobody is starved longer than what is owed.
//
// A bucket's fraction of a microsecond is over the rate that wrote it, so a charge that is
// given back at one rate may take less than that from the other.
func beside(h history) error {
	ctx, now, late := context.Background(), max(h.start, h.earliest), int64(0)
	clock := func() time.Time { return time.UnixMicro(now + late) }
	shared, alone, slack := &algorithms.Memory{Now: clock}, map[algorithms.Check]*algorithms.Memory{}, map[algorithms.Check]int64{}
	var charges [][2]algorithms.Result
	take := func(checks []algorithms.Check) (bool, error) {
		d, err := shared.Take(ctx, checks...)
		if err != nil {
			return false, err
		}
		for _, r := range d.Results {
			c := named(r.Check)
			if alone[c] == nil {
				alone[c] = &algorithms.Memory{Now: clock}
			}
			switch {
			case r.Charged > 0:
				own, err := alone[c].Take(ctx, r.Check)
				if wait := own.RetryAfter().Microseconds(); err == nil && wait > 0 && wait <= slack[c] {
					late = wait
					own, err = alone[c].Take(ctx, r.Check)
					late = 0
				}
				if err != nil || !own.Results[0].HasRoom {
					return false, fmt.Errorf("%+v: admitted, alone only after %s: %w", r.Check, own.RetryAfter(), err)
				}
				charges = append(charges, [2]algorithms.Result{r, own.Results[0]})
			case !r.HasRoom && r.RetryAfter < algorithms.Never:
				late = r.RetryAfter.Microseconds()
				then, err := shared.Peek(ctx, r.Check)
				late = 0
				if err != nil || !then.Results[0].HasRoom || r.RetryAfter > r.ResetAfter {
					return false, fmt.Errorf("%+v: denied for %s of %s, and then, too: %w", r.Check, r.RetryAfter, r.ResetAfter, err)
				}
			}
		}
		return d.Allowed, nil
	}
	for i, o := range h.ops {
		now = max(now, min(now+o.move, lastTime))
		var err error
		switch o.what {
		case "take", "log":
			for more := true; more && err == nil; o.units-- {
				more, err = take(o.checks)
				if more = more && o.units > 1; more {
					now++
				}
			}
		case "settle":
			if len(charges) == 0 {
				continue
			}
			at := max(len(charges)-1-o.charge, 0)
			pair, cost := charges[at], min(o.units, 30)
			charges = slices.Delete(charges, at, at+1)
			if c := named(pair[0].Check); c.Limit.Burst > 0 && cost < pair[0].Charged {
				slack[c]++
			}
			_, err = shared.Settle(ctx, algorithms.Charge{Result: pair[0], Cost: cost})
			if err == nil {
				_, err = alone[named(pair[0].Check)].Settle(ctx, algorithms.Charge{Result: pair[1], Cost: cost})
			}
		}
		if err != nil {
			return fmt.Errorf("step %d, %s at %d: %w", i, o.what, now, err)
		}
	}
	return nil
}

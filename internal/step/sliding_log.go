package step

import (
	"slices"
	"sort"
)

// slidingLog remembers when each request came, and counts the units of the last period:
// those in (now-P, now].
//
// State: A is the units that count. C is when the newest of them came. B is the time of the
// entry after whose expiry the cost fits; 0 if it fits now or never. They are computed from
// Log, which is a list in Redis.
type slidingLog struct{ asNow }

func (l slidingLog) At(s State, now int64, p Params) (State, bool) {
	log := s.Log
	if len(log) == 0 {
		return State{}, false
	}
	newest := log[len(log)-1]
	if newest.at > now+p.Period { // a clock error: all units came now
		used := newest.sum - log[0].sum
		s = State{A: used, C: now, Log: []LogEntry{{}, {now, used}}}
		s.B = l.leaves(s, &p)
		return s, true
	}
	log = log[firstAbove(log, now-p.Period)-1:]
	s = State{A: newest.sum - log[0].sum, C: newest.at, Log: log}
	if s.A == 0 { // nothing was used, or all of it has expired
		return State{}, false
	}
	s.B = l.leaves(s, &p)
	return s, false
}

// firstAbove returns the index of the first entry that is later than a time, but at least
// 1. That is mostly the next entry.
func firstAbove(log []LogEntry, at int64) int {
	if len(log) > 1 && log[1].at > at {
		return 1
	}
	return 1 + sort.Search(len(log)-1, func(i int) bool { return log[i+1].at > at })
}

// leaves returns the time of the entry after whose expiry the cost fits; 0 if it fits now
// or never.
func (slidingLog) leaves(s State, p *Params) int64 {
	over := s.A + p.Cost - p.rate
	if over <= 0 || over > s.A {
		return 0
	}
	sum := s.Log[0].sum + over
	if s.Log[1].sum >= sum { // the usual denial
		return s.Log[1].at
	}
	return s.Log[sort.Search(len(s.Log), func(i int) bool { return s.Log[i].sum >= sum })].at
}

// Take does not change the log, because the charge may not be made; Written does.
func (slidingLog) Take(s State, now int64, p Params) (State, Placed, bool) {
	at := max(now, s.C) // the newest entry's time if the clock stepped back
	return State{A: s.A + p.Cost, C: at, Log: s.Log}, Placed{At: at}, s.A+p.Cost <= p.rate
}

// Written adds to the log what Take or correct added to the numbers, before the state is
// stored.
func (s State) Written() State {
	n := len(s.Log)
	switch {
	case s.A == 0:
		return State{}
	case n == 0:
		s.Log = []LogEntry{{}, {s.C, s.A}}
	case s.Log[n-1].at == s.C:
		s.Log[n-1].sum = s.Log[0].sum + s.A
	default:
		s.Log = append(s.Log, LogEntry{s.C, s.Log[0].sum + s.A})
	}
	return s
}

// MaxRewritten is how many entries a refund may rewrite, because their sums change. In
// Redis that takes a millisecond.
const MaxRewritten = 1000

// correct refunds to the entry of the charge, unless more than MaxRewritten entries are
// from then on: in that case the charge stays. An entry without units is removed, so that
// no RetryAfter waits for it and the log does not grow.
func (slidingLog) correct(s State, now int64, c *Correction) State {
	if c.Delta > 0 {
		if units := min(c.Delta, c.maxUsed-s.A); units > 0 {
			s.A, s.C = s.A+units, max(now, s.C)
		}
		return s
	}
	i := firstAbove(s.Log, c.Placed.At-1)
	if s.A == 0 || c.Placed.At <= now-c.Period || i == len(s.Log) || s.Log[i].at != c.Placed.At || len(s.Log)-i > MaxRewritten {
		return s
	}
	units := s.Log[i].sum - s.Log[i-1].sum
	back := min(-c.Delta, units)
	for j := i; j < len(s.Log); j++ {
		s.Log[j].sum -= back
	}
	if back == units {
		s.Log = slices.Delete(s.Log, i, i+1)
	}
	s.A -= back
	if s.C = s.Log[len(s.Log)-1].at; s.A == 0 {
		s.C = 0
	}
	return s
}

func (slidingLog) Left(s State, now int64, p Params) (remaining, resetAfter int64) {
	if s.A == 0 {
		return p.rate, 0
	}
	return p.rate - s.A, s.C + p.Period - now
}

func (slidingLog) retryAfter(s State, now int64, p Params) int64 { return s.B + p.Period - now }

func (slidingLog) Arguments(args []any, p Params) []any {
	return append(args, p.rate, p.Period, p.Cost)
}

func (slidingLog) Corrections(args []any, c *Correction) []any {
	return append(args, c.Delta, c.Placed.At, c.maxUsed)
}

// ToCell counts the units of the log by windows, as slidingWindow does, because a log has
// no constant size.
func (slidingLog) ToCell(s State, _, now int64, p Params) (cell State, until int64) {
	s = s.Written()
	newest := max(now, s.C) // what a clock that stepped back charges goes to the later window
	cell.A = newest - newest%p.Period
	for i := 1; i < len(s.Log); i++ {
		if units := s.Log[i].sum - s.Log[i-1].sum; s.Log[i].at >= cell.A {
			cell.B += units
		} else {
			cell.C += units
		}
	}
	return cell, cell.A + 2*p.Period
}

func (slidingLog) Roll(cell State, now int64, p Params) State {
	return slidingWindow{}.Roll(cell, now, p)
}

// FromCell makes a log with all units at the last moments of their windows, so that no
// unit expires sooner than in the key's own log.
func (l slidingLog) FromCell(cell State, now int64, p Params) State {
	log := make([]LogEntry, 1, 4) // room for a charge
	for _, e := range [...]LogEntry{{cell.A - 1, cell.C}, {cell.A + p.Period - 1, cell.B}} {
		if e.sum > 0 {
			log = append(log, LogEntry{e.at, log[len(log)-1].sum + e.sum})
		}
	}
	s, _ := l.At(State{Log: log}, now, p)
	return s
}

func (slidingLog) UsedUntil(until, now int64, p Params) State {
	return State{Log: []LogEntry{{}, {min(until-p.Period, now+p.Period), p.rate}}}
}

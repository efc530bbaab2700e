package algorithms

import (
	"slices"
	"sort"
)

// slidingLog remembers when each request came, and counts the units of the
// last period: those in (now-P, now].
//
// State: a is the units that count, b when those came whose leaving makes room
// for the cost (0 where there is room or never will be), c when the last ones
// came. log is what they are computed from. Twin: lua/sliding_log.lua, which
// keeps the log in a list.
type slidingLog struct{ asNow }

// A logEntry says when units came, and the sum of all units up to then, so that
// every question is a binary search. The first entry of a log has left already;
// it is there for its sum. Times rise. (Sums stay below 2^53: they begin anew
// whenever a period passes without a charge, and 2^53 units take more than
// 10^7 periods without.)
type logEntry struct{ at, sum int64 }

func (l slidingLog) at(s state, now int64, p params) (state, bool) {
	log := s.log
	if len(log) == 0 {
		return state{}, false
	}
	newest := log[len(log)-1]
	if newest.at > now+p.period { // no clock that is right wrote this: all of it came now
		used := newest.sum - log[0].sum
		s = state{a: used, c: now, log: []logEntry{{}, {now, used}}}
		s.b = l.leaves(s, &p)
		return s, true
	}
	log = log[firstAbove(log, now-p.period)-1:]
	s = state{a: newest.sum - log[0].sum, c: newest.at, log: log}
	if s.a == 0 { // nothing was used, or all of it has left
		return state{}, false
	}
	s.b = l.leaves(s, &p)
	return s, false
}

// firstAbove is the first entry after the one that has left whose time is after
// this one. That is mostly the next.
func firstAbove(log []logEntry, at int64) int {
	if len(log) > 1 && log[1].at > at {
		return 1
	}
	return 1 + sort.Search(len(log)-1, func(i int) bool { return log[i+1].at > at })
}

// leaves is when those units came whose leaving makes room for the cost.
func (slidingLog) leaves(s state, p *params) int64 {
	over := s.a + p.cost - p.rate
	if over <= 0 || over > s.a {
		return 0
	}
	sum := s.log[0].sum + over
	if s.log[1].sum >= sum { // the usual denial
		return s.log[1].at
	}
	return s.log[sort.Search(len(s.log), func(i int) bool { return s.log[i].sum >= sum })].at
}

// take leaves the log alone, since the charge may yet not be made: see written.
func (slidingLog) take(s state, now int64, p params) (state, placed, bool) {
	at := max(now, s.c) // with the last ones if the clock stepped back
	return state{a: s.a + p.cost, c: at, log: s.log}, placed{at: at}, s.a+p.cost <= p.rate
}

// written makes the log say what the numbers say, before a Memory stores it.
func (s state) written() state {
	n := len(s.log)
	switch {
	case s.a == 0:
		return state{}
	case n == 0:
		s.log = []logEntry{{}, {s.c, s.a}}
	case s.log[n-1].at == s.c:
		s.log[n-1].sum = s.log[0].sum + s.a
	default:
		s.log = append(s.log, logEntry{s.c, s.log[0].sum + s.a})
	}
	return s
}

// maxRewritten is how many entries a give-back may write anew: their sums change.
// In Redis that takes a millisecond.
const maxRewritten = 1000

// correct gives back to the entry of the charge, unless more than maxRewritten
// have come since it: then the charge stays. What has no units left goes, so that
// nothing waits for it and the log does not grow.
func (slidingLog) correct(s state, now int64, c *correction) state {
	if c.delta > 0 {
		if units := min(c.delta, c.maxUsed-s.a); units > 0 {
			s.a, s.c = s.a+units, max(now, s.c)
		}
		return s
	}
	i := firstAbove(s.log, c.placed.at-1)
	if s.a == 0 || c.placed.at <= now-c.period || i == len(s.log) || s.log[i].at != c.placed.at || len(s.log)-i > maxRewritten {
		return s
	}
	units := s.log[i].sum - s.log[i-1].sum
	back := min(-c.delta, units)
	for j := i; j < len(s.log); j++ {
		s.log[j].sum -= back
	}
	if back == units {
		s.log = slices.Delete(s.log, i, i+1)
	}
	s.a -= back
	if s.c = s.log[len(s.log)-1].at; s.a == 0 {
		s.c = 0
	}
	return s
}

func (slidingLog) left(s state, now int64, p params) (remaining, resetAfter int64) {
	if s.a == 0 {
		return p.rate, 0
	}
	return p.rate - s.a, s.c + p.period - now
}

func (slidingLog) retryAfter(s state, now int64, p params) int64 { return s.b + p.period - now }

func (slidingLog) arguments(args []any, p params) []any {
	return append(args, p.rate, p.period, p.cost)
}

func (slidingLog) corrections(args []any, c *correction) []any {
	return append(args, c.delta, c.placed.at, c.maxUsed)
}

// toCell: a log has no constant size, so its units are counted in the windows
// in which they came, as slidingWindow does.
func (slidingLog) toCell(s state, _, now int64, p params) (cell state, until int64) {
	s = s.written()
	cell.a = now - now%p.period
	for i := 1; i < len(s.log); i++ {
		if units := s.log[i].sum - s.log[i-1].sum; s.log[i].at >= cell.a {
			cell.b += units
		} else {
			cell.c += units
		}
	}
	return cell, cell.a + 2*p.period
}

func (slidingLog) roll(cell state, now, period int64) state {
	return slidingWindow{}.roll(cell, now, period)
}

// fromCell makes a log with all units at the last moments of their windows: so
// none leaves it sooner than the key's own would.
func (l slidingLog) fromCell(cell state, now int64, p params) state {
	log := make([]logEntry, 1, 4) // room for a charge
	for _, e := range [...]logEntry{{cell.a - 1, cell.c}, {cell.a + p.period - 1, cell.b}} {
		if e.sum > 0 {
			log = append(log, logEntry{e.at, log[len(log)-1].sum + e.sum})
		}
	}
	s, _ := l.at(state{log: log}, now, p)
	return s
}

func (slidingLog) usedUntil(until, now int64, p params) state {
	return state{log: []logEntry{{}, {min(until-p.period, now+p.period), p.rate}}}
}

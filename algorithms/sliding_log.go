package algorithms

import "slices"

// slidingLog remembers when each request came, and counts the units of the
// last period: those in (now-P, now].
//
// State: a is the units that count, b when the unit came whose leaving makes
// room for the cost (0 where there is room), c when the last one came. Twin:
// lua/sliding_log.lua, which keeps the log in a list.
type slidingLog struct{}

// A logEntry is units that came at one time. Times never fall.
type logEntry struct{ at, units int64 }

func (slidingLog) at(s state, now int64, p *params) (state, bool) {
	if n := len(s.log); n > 0 && s.log[n-1].at > now+p.period {
		// No clock that is right wrote this.
		s = state{a: p.rate, c: now, log: []logEntry{{now, p.rate}}}
		s.b = s.leaves(p)
		return s, true
	}
	for len(s.log) > 0 && s.log[0].at <= now-p.period {
		s.a -= s.log[0].units
		s.log = s.log[1:]
	}
	if s.a == 0 { // nothing was used, or all of it given back
		return state{}, false
	}
	s.b, s.c = s.leaves(p), s.log[len(s.log)-1].at
	return s, false
}

// leaves is when the unit came whose leaving makes room for the cost.
func (s *state) leaves(p *params) int64 {
	over := s.a + p.cost - p.rate
	for i := 0; over > 0 && i < len(s.log); i++ {
		if over -= s.log[i].units; over <= 0 {
			return s.log[i].at
		}
	}
	return 0
}

func (slidingLog) take(s state, now int64, p *params) (state, bool) {
	if s.a+p.cost > p.rate {
		return s, false
	}
	return s.append(now, p.cost), true
}

// append adds units now, or with the last ones if the clock stepped back.
func (s *state) append(now, units int64) state {
	now = max(now, s.c)
	return state{a: s.a + units, c: now, log: append(s.log, logEntry{now, units})}
}

func (slidingLog) charged(s state, _ int64, _ *params) placed { return placed{at: s.c} }

// correct gives back to the entry of the charge. What has no units left goes, so
// that nothing waits for it and the log does not grow.
func (slidingLog) correct(s state, now int64, p *params, ch *correction) state {
	if ch.delta > 0 {
		if units := min(ch.delta, max(2*p.rate-s.a, 0)); units > 0 {
			return s.append(now, units)
		}
		return s
	}
	back := -ch.delta
	for i := len(s.log) - 1; i >= 0 && s.log[i].at >= ch.at && back > 0; i-- {
		if s.log[i].at == ch.at {
			units := min(back, s.log[i].units)
			s.log[i].units -= units
			back, s.a = back-units, s.a-units
		}
	}
	s.log = slices.DeleteFunc(s.log, func(e logEntry) bool { return e.units == 0 })
	if s.c = 0; len(s.log) > 0 {
		s.c = s.log[len(s.log)-1].at
	}
	return s
}

func (slidingLog) retryAfter(s state, now int64, p *params) int64 { return s.b + p.period - now }

func (slidingLog) remaining(s state, _ int64, p *params) int64 { return p.rate - s.a }

func (slidingLog) resetAfter(s state, now int64, p *params) int64 {
	if s.a == 0 {
		return 0
	}
	return s.c + p.period - now
}

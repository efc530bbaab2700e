package algorithms

// fixedWindow counts units in windows aligned to the Unix epoch.
//
// State: a is the window's start, b the units taken in it. Twin:
// lua/fixed_window.lua.
type fixedWindow struct{}

func (fixedWindow) at(s state, now int64, p *params) (state, bool) {
	begin := now - now%p.period
	switch {
	case s.b == 0: // nothing was used, or all of it given back
		return state{a: begin}, false
	case s.a > now+p.period: // no clock that is right wrote this
		return state{a: begin, b: p.rate}, true
	case s.a < begin:
		return state{a: begin}, false
	}
	return s, false // begun, or ahead because the clock stepped back
}

func (fixedWindow) take(s state, _ int64, p *params) (state, bool) {
	return state{a: s.a, b: s.b + p.cost}, s.b+p.cost <= p.rate
}

func (fixedWindow) charged(s state, _ int64, _ *params) placed { return placed{at: s.a} }

func (fixedWindow) correct(s state, _ int64, p *params, ch *correction) state {
	return p.correctWindow(s, ch)
}

func (fixedWindow) retryAfter(s state, now int64, p *params) int64 { return s.a + p.period - now }

func (fixedWindow) remaining(s state, _ int64, p *params) int64 { return p.rate - s.b }

func (fixedWindow) resetAfter(s state, now int64, p *params) int64 {
	if s.b == 0 {
		return 0
	}
	return s.a + p.period - now
}

// correctWindow corrects a charge to windows. It gives back only to the window
// that was charged, wherever that is kept now, and charges more to the current
// one: up to one period's worth beyond the rate, and inside the exact range.
func (p *params) correctWindow(s state, ch *correction) state {
	switch {
	case ch.delta > 0:
		s.b += min(ch.delta, max(s.b, min(2*p.rate, maxRate))-s.b)
	case s.a == ch.at:
		s.b = max(s.b+ch.delta, 0)
	case s.a == ch.at+p.period: // sliding_window: rolled since
		s.c = max(s.c+ch.delta, 0)
	}
	return s
}

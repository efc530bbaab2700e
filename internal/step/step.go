package algorithms

// A step is one algorithm as arithmetic on states. Times are Unix microseconds.
// Its methods at and take are one function in Lua, and so is correct.
//
// params are passed by value: a pointer would have every decision in memory
// allocate them, since the compiler does not know what a method does with it.
type step interface {
	// at returns the state as it stands at now. healed says that the stored
	// one was written by a clock that was more than a period ahead: a Take
	// writes it back even where it charges nothing.
	at(s state, now int64, p params) (current state, healed bool)
	// take charges the cost to a current state, and says where it is, if there
	// is room.
	take(s state, now int64, p params) (charged state, where placed, ok bool)
	// correct corrects a charge in a current state.
	correct(s state, now int64, c *correction) state
	// left is how many units a current state has left, and how long until it
	// equals never seen: for so long a store has to remember it.
	left(s state, now int64, p params) (remaining, resetAfter int64)
	// retryAfter is how long until a current state that has no room has it.
	retryAfter(s state, now int64, p params) int64

	// arguments appends what at and take need to know in Lua, and corrections
	// what correct needs beside that.
	arguments(args []any, p params) []any
	corrections(args []any, c *correction) []any

	// What a Memory needs beside that: see sketch.go and memory_follow.go.
	sketched
	followed
}

// A state is what is remembered of one key: three whole numbers that each
// step reads in its own way. The zero value is a key never seen.
type state struct {
	a, b, c int64
	log     []logEntry // sliding_log in memory; Redis has it in a list
}

// A placed is where a charge is to be found in a state: the start of the
// window, or the time of the entry, of the charge or of the slot that it has;
// and of a slot the fraction of that microsecond, over the rate. After a clock
// stepped back that may be later than now.
type placed struct{ at, frac int64 }

func (p *params) at(s state, now int64) (current state, healed bool) { return p.step.at(s, now, *p) }

func (p *params) take(s state, now int64) (charged state, where placed, ok bool) {
	return p.step.take(s, now, *p)
}

// until is when a current state equals never seen.
func (p *params) until(s state, now int64) int64 {
	_, resetAfter := p.step.left(s, now, *p)
	return now + resetAfter
}

// answer fills in a result from the state before the charge and from the one
// that take made of it, which counts if it was charged. Both limiters answer
// through it. It returns when the state that counts equals never seen.
func (p *params) answer(r *Result, current, charged state, where placed, now int64) (until int64) {
	s := current
	if r.Charged > 0 {
		s, r.charge = charged, where
	}
	r.hold(s, p)
	remaining, resetAfter := p.step.left(s, now, *p)
	r.Remaining, r.ResetAfter = remaining, micros(resetAfter)
	switch {
	case r.Allowed && p.queue:
		r.Delay = micros(where.at - now)
	case r.Allowed:
	case p.never:
		r.RetryAfter = Never
	default:
		r.RetryAfter = micros(p.step.retryAfter(s, now, *p))
	}
	return now + resetAfter
}

package step

import "time"

// A step is one algorithm as arithmetic on states. Times are Unix microseconds.
// Its methods at and take are one function in Lua, and so is correct.
//
// params are passed by value: a pointer would have every decision in memory
// allocate them, since the compiler does not know what a method does with it.
type step interface {
	// at returns the state as it stands at now. healed says that the stored
	// one was written by a clock that was more than a period ahead: a Take
	// writes it back even where it charges nothing.
	At(s State, now int64, p Params) (current State, healed bool)
	// take charges the cost to a current state, and says where it is, if there
	// is room.
	Take(s State, now int64, p Params) (charged State, where Placed, ok bool)
	// correct corrects a charge in a current state.
	correct(s State, now int64, c *Correction) State
	// left is how many units a current state has left, and how long until it
	// equals never seen: for so long a store has to remember it.
	Left(s State, now int64, p Params) (remaining, resetAfter int64)
	// retryAfter is how long until a current state that has no room has it.
	retryAfter(s State, now int64, p Params) int64

	// arguments appends what at and take need to know in Lua, and corrections
	// what correct needs beside that.
	Arguments(args []any, p Params) []any
	Corrections(args []any, c *Correction) []any

	// What a Memory needs beside that: see sketch.go and memory_follow.go.
	sketched
	followed
}

// A State is what is remembered of one key: three whole numbers that each
// step reads in its own way. The zero value is a key never seen.
type State struct {
	A, B, C int64
	Log     []LogEntry // sliding_log in memory; Redis has it in a list
}

// Placed is where a charge is to be found in a state: the start of the
// window, or the time of the entry, of the charge or of the slot that it has;
// and of a slot the fraction of that microsecond, over the rate. After a clock
// stepped back that may be later than now.
type Placed struct{ At, frac int64 }

// At returns the state as it stands at now; see the step.
func (p *Params) At(s State, now int64) (current State, healed bool) { return p.Step.At(s, now, *p) }

// Take charges the cost to a current state if there is room; see the step.
func (p *Params) Take(s State, now int64) (charged State, where Placed, ok bool) {
	return p.Step.Take(s, now, *p)
}

// Until is when a current state equals never seen.
func (p *Params) Until(s State, now int64) int64 {
	_, resetAfter := p.Step.Left(s, now, *p)
	return p.until(s, now, resetAfter)
}

func (p *Params) until(s State, now, resetAfter int64) int64 {
	if p.Held && s.A > 0 {
		return endless
	}
	return now + resetAfter
}

// Numbers are those of a state; a Result carries them, so that a Guard can decide by it again.
func (s State) Numbers() [3]int64 { return [3]int64{s.A, s.B, s.C} }

// An Answer is what a check comes to.
type Answer struct {
	Remaining                     int64
	RetryAfter, ResetAfter, Delay time.Duration
	Until                         int64 // when the state equals never seen
}

// Answer answers by the state that counts: the one that take made, if it was charged,
// and otherwise the one before. Both limiters answer through it.
func (p *Params) Answer(a *Answer, allowed bool, s *State, where Placed, now int64) {
	var resetAfter int64
	a.Remaining, resetAfter = p.Step.Left(*s, now, *p)
	a.ResetAfter, a.Until = Micros(resetAfter), p.until(*s, now, resetAfter)
	switch {
	case allowed && p.Queue:
		a.Delay = Micros(where.At - now)
	case allowed:
	case p.never:
		a.RetryAfter = never
	default:
		a.RetryAfter = Micros(p.Step.retryAfter(*s, now, *p))
	}
}

// A Trace is what a result remembers of its count, for settling it and deciding by it again.
type Trace struct {
	Charge   Placed   // where the state holds the charge
	State    [3]int64 // that the store left, if Known
	Known    bool     // the store hands out states, and this algorithm's is more than a summary
	Followed int64    // units that a memory that follows has charged
}

package algorithms

import (
	"strings"
)

// A state is what is remembered of one key: three whole numbers that each
// step reads in its own way. The zero value is a key never seen.
type state struct {
	a, b, c int64
	log     []logEntry // sliding_log in memory; Redis has it in a list
}

// A step is one algorithm as arithmetic on states. Times are Unix microseconds.
// Its methods at and take are one function in Lua.
type step interface {
	// at returns the state as it stands at now. mended says that the stored
	// one was a clock error: write it back even where nothing is charged.
	at(s state, now int64, p *params) (current state, mended bool)
	// take charges the cost to a current state, if it has room.
	take(s state, now int64, p *params) (charged state, ok bool)
	// charged is where a charge is to be found in the state: the window, the
	// entry or the time that it was charged to, which a clock that stepped back
	// makes a later one than At.
	charged(r *Result, p *params) int64
	// correct corrects a charge in a current state.
	correct(s state, now int64, p *params, ch charge) state
	// retryAfter is how long until a current state that has no room has it.
	retryAfter(s state, now int64, p *params) int64
	// remaining is how many units a current state has left.
	remaining(s state, now int64, p *params) int64
	// resetAfter is how long until the state equals never seen: what
	// ResetAfter says, and how long a store has to remember it.
	resetAfter(s state, now int64, p *params) int64
}

// A charge is what correct corrects.
type charge struct {
	units int64 // what was charged
	delta int64 // by how much to correct it: negative gives back
	at    int64 // to when it was charged; see step.charged
	frac  int64 // leaky_bucket: the fraction of that, over the rate
}

// An algorithm is a row of the table that a new one is added to.
type algorithm struct {
	name   Algorithm
	short  string // in keys
	code   int64  // place of its step in the scripts' tables, from 1
	bucket bool   // has a Burst
	queue  bool   // has a Delay
	step
}

var table = [...]algorithm{
	{FixedWindow, "fw", 1, false, false, fixedWindow{}},
	{SlidingWindow, "sw", 2, false, false, slidingWindow{}},
	{SlidingLog, "sl", 3, false, false, slidingLog{}},
	{TokenBucket, "tb", 4, true, false, bucket{}},
	{LeakyBucket, "lb", 5, true, true, queue{}},
	{GCRA, "gcra", 4, true, false, bucket{}},
}

// lookup finds an algorithm's row; "" is sliding_window.
func lookup(name Algorithm) (*algorithm, bool) {
	name = algorithmOr(name)
	for i := range table {
		if table[i].name == name {
			return &table[i], true
		}
	}
	return nil, false
}

func names() string {
	all := make([]string, len(table))
	for i := range table {
		all[i] = string(table[i].name)
	}
	return strings.Join(all, ", ")
}

// answer fills in a result from the key's state: after the charge if it was
// charged, before it otherwise. Both limiters answer through it.
func (p *params) answer(r *Result, s state, now int64) {
	r.Remaining = max(p.remaining(s, now, p), 0)
	r.ResetAfter = micros(p.resetAfter(s, now, p))
	switch {
	case r.Allowed && p.queue:
		r.Delay, r.fraction = p.delay(s, now, r.Charged)
	case r.Allowed:
	case p.never:
		r.RetryAfter = Never
	default:
		r.RetryAfter = micros(p.retryAfter(s, now, p))
	}
}

// settle corrects a charge in what at returned. Without a change there is
// nothing to write.
func (p *params) settle(s state, mended bool, now int64, ch charge) (settled state, changed bool) {
	if mended && ch.delta < 0 {
		return s, true // nothing of the charge is in it
	}
	settled = p.correct(s, now, p, ch)
	return settled, mended || settled.a != s.a || settled.b != s.b || settled.c != s.c
}

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

// An algorithm is a row of the table that a new one is added to.
type algorithm struct {
	name   Algorithm
	short  string // in keys
	code   int64  // of its step
	bucket bool   // has a Burst
	queue  bool   // has a Delay
}

var table = [...]algorithm{
	{FixedWindow, "fw", codeFixedWindow, false, false},
	{SlidingWindow, "sw", codeSlidingWindow, false, false},
	{SlidingLog, "sl", codeSlidingLog, false, false},
	{TokenBucket, "tb", codeBucket, true, false},
	{LeakyBucket, "lb", codeQueue, true, true},
	{GCRA, "gcra", codeBucket, true, false},
}

// lookup finds an algorithm's row.
func lookup(name Algorithm) (*algorithm, bool) {
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
	if r.Charged > 0 {
		r.charge = p.charged(s, now, p)
	}
	switch {
	case r.Allowed && p.queue:
		r.Delay = p.delay(s, now, r.Charged)
	case r.Allowed:
	case p.never:
		r.RetryAfter = Never
	default:
		r.RetryAfter = micros(p.retryAfter(s, now, p))
	}
}

package step

import "time"

// A Verdict is the outcome of a check by a remembered state.
type Verdict struct {
	Known                  bool  // false if the check cannot be decided by the state
	Room                   bool  // the cost fits
	Remaining              int64 // set, like the times, only if it does not
	RetryAfter, ResetAfter time.Duration
}

// Again decides a check by a state that its store had. The store's clock is known only to
// be between earlier and later. Room says whether the cost fits at the later time; if not,
// the other fields are as of the earlier one. underWay is how many units other requests
// have asked the store for since the state was read.
func (l Limit) Again(cost int64, maxDelay time.Duration, numbers [3]int64, later, earlier, underWay int64) Verdict {
	row := l.Row()
	if cost < 0 || maxDelay < 0 || !l.OkFor(row) || row.Summary {
		return Verdict{}
	}
	p := l.Params(cost, maxDelay, row)
	if underWay > 0 && !p.never {
		p = l.Params(min(p.Cost+underWay, l.quotaFor(row)+1), maxDelay, row)
		p.never = false
	}
	s := State{A: numbers[0], B: numbers[1], C: numbers[2]}
	v := Verdict{Known: true}
	if _, _, v.Room = p.Take(p.Current(s, later), later); v.Room {
		return v
	}
	if !p.never { // a cost that cannot fit beside the others may fit after them
		p = l.Params(min(p.Cost, l.quotaFor(row)), maxDelay, row)
	}
	var r Answer
	s = p.Current(s, earlier)
	p.Answer(&r, false, &s, Placed{}, earlier)
	v.Remaining, v.RetryAfter, v.ResetAfter = r.Remaining, max(r.RetryAfter, time.Microsecond), r.ResetAfter
	return v
}

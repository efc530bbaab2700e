package step

import "time"

// A Verdict is what a check comes to by a state.
type Verdict struct {
	Known                  bool // false if the state says nothing about the check
	Room                   bool
	Remaining              int64 // this and what follows only where there is no room
	RetryAfter, ResetAfter time.Duration
}

// Again decides a check by a state that its store had: whether there is room at
// the later of two times on the store's clock and, if not, the answer as of the
// earlier one. Requests under way have asked for units that the state does not
// have yet.
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
	if !p.never { // what can never fit beside the others may fit once they are done
		p = l.Params(min(p.Cost, l.quotaFor(row)), maxDelay, row)
	}
	var r Answer
	s = p.Current(s, earlier)
	p.Answer(&r, false, &s, Placed{}, earlier)
	v.Remaining, v.RetryAfter, v.ResetAfter = r.Remaining, max(r.RetryAfter, time.Microsecond), r.ResetAfter
	return v
}

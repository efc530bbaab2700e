package algorithms

import (
	"time"

	"github.com/seed75154129/ratelimit/internal/inside"
)

// A heldState is the state of a count as a store left it, in the numbers of state.
// Results carry it, so that a Guard can decide by it again.
type heldState [3]int64

func (r *Result) hold(s state, p *params) {
	if r.isHeld = !p.summary; r.isHeld {
		r.held = heldState{s.a, s.b, s.c}
	}
}

// stateOf returns the state that a result left in its store.
func stateOf(r *Result) (numbers [3]int64, ok bool) { return r.held, r.isHeld }

// again decides a check by a state that its store had: whether there is room at
// the later of two times on the store's clock and, if not, the answer as of the
// earlier one. Requests under way have asked for units that the state does not
// have yet.
func again(c *Check, numbers [3]int64, later, earlier, underWay int64) inside.Verdict {
	row := c.Limit.row()
	if !c.ok(row) || row.summary {
		return inside.Verdict{}
	}
	p := paramsOf(c, row)
	if underWay > 0 && !p.never {
		c := *c
		c.Cost = min(p.cost+underWay, c.Limit.quota(row)+1)
		p = paramsOf(&c, row)
		p.never = false
	}
	s := state{a: numbers[0], b: numbers[1], c: numbers[2]}
	v := inside.Verdict{Known: true}
	if _, _, v.Room = p.take(p.current(s, later), later); v.Room {
		return v
	}
	if !p.never { // what can never fit beside the others may fit once they are done
		c := *c
		c.Cost = min(p.cost, c.Limit.quota(row))
		p = paramsOf(&c, row)
	}
	r := Result{Check: Check{Limit: c.Limit}}
	p.answer(&r, p.current(s, earlier), state{}, placed{}, earlier)
	v.Remaining, v.RetryAfter, v.ResetAfter = r.Remaining, max(r.RetryAfter, time.Microsecond), r.ResetAfter
	return v
}

// valid reports whether a decision on the checks would be an answer, not an error.
func valid(checks []Check) bool {
	for i := range checks {
		row := checks[i].Limit.row()
		if !checks[i].ok(row) {
			return false
		}
		for j := range checks[:i] {
			if sameCount(&checks[i], &checks[j], row, checks[j].Limit.row()) {
				return false
			}
		}
	}
	return true
}

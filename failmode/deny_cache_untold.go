package failmode

import (
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/step"
)

// maxDenials is how many denials an entry holds, each of another cost or limit.
const maxDenials = 16

// A denial is one by a store that does not say its state, as a sliding_log or a
// store of the user's own: until when this cost is denied, and so every higher one.
type denial struct {
	retryAt   time.Duration // from when the store may admit
	limit     algorithms.Limit
	cost      int64
	remaining int64
	toldAt    time.Duration // the same for clients: from when the answer was received
	resetAt   time.Duration
	byHand    bool // a ban that binds rules without one
}

func denialOf(r *algorithms.Result, a *lastAnswer) denial {
	return denial{
		limit: r.Check.Limit, cost: max(r.Check.Cost, 1), remaining: r.Remaining,
		retryAt: a.sent + r.RetryAfter, toldAt: a.received + r.RetryAfter, resetAt: a.received + r.ResetAfter,
	}
}

// verdict is what clients are told of the denial.
func (n *denial) verdict(now time.Duration) step.Verdict {
	return step.Verdict{Known: true, Remaining: n.remaining, RetryAfter: ceil(n.toldAt - now), ResetAfter: ceil(n.resetAt - now)}
}

// note remembers a denial that begins an entry. Those that are over make room.
func (e *denyEntry) note(r *algorithms.Result, a *lastAnswer) {
	n := denialOf(r, a)
	e.denials = slices.DeleteFunc(e.denials, func(o denial) bool {
		return o.retryAt <= a.received || o.limit == n.limit && o.cost == n.cost
	})
	if len(e.denials) < maxDenials {
		e.denials = append(e.denials, n)
	}
}

// untold is the verdict where the state is not known. A cost that was not asked
// for may have to wait longer than a lower one that is denied, so the store is
// asked, unless there are too many costs to be told exactly.
func (e *denyEntry) untold(c *algorithms.Check, now time.Duration, asking int64) step.Verdict {
	cost, v := max(c.Cost, 1), step.Verdict{Known: true}
	var found *denial
	for i := range e.denials {
		if n := &e.denials[i]; n.limit == c.Limit && n.cost <= cost && now < n.retryAt && (found == nil || n.cost > found.cost) {
			found = n
		}
	}
	if found != nil && (found.cost == cost || len(e.denials) == maxDenials) {
		return found.verdict(now)
	}
	v.Room = asking == 0 || asking+cost <= e.room
	v.RetryAfter, v.ResetAfter = time.Microsecond, time.Microsecond
	return v
}

// ceil is a time in whole microseconds, as those of results are.
func ceil(d time.Duration) time.Duration {
	return (d + time.Microsecond - 1).Truncate(time.Microsecond)
}

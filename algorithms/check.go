package algorithms

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/seed75154129/ratelimit/internal/step"
)

// A Check is one limit that a request must pass. Checks with the same Rule and Key share one
// count, in every process, if their limits have the same algorithm and period.
type Check struct {
	Rule  string // what is counted; a name that all processes share
	Key   string // the client that is counted; "" is a key like any other
	Limit Limit  // how much the key may use
	Cost  int64  // units that this request takes; 0 means 1; negative is an error

	Fail   FailMode // what to do if the store cannot count; zero counts locally
	Shadow bool     // decided and counted, never enforced

	// Lease is for a hot key: a Guard takes its units from the store in batches. Only for
	// fixed_window and sliding_window, and not with Ban.
	Lease bool

	// Provisional says that the charge is often refunded soon, as with ChargeOn of a
	// Middleware. A Guard remembers a denial for 20 ms only.
	Provisional bool

	spared   bool          // a denial does not count towards the ban
	hold     int64         // in_flight: the request's name, from a Guard; 0 for a new one
	MaxDelay time.Duration // leaky_bucket: a longer Delay is a denial; 0 means any; negative is an error

	// Ban is what follows repeated denials; zero means no ban. Not for in_flight and
	// calendar_window.
	Ban Ban
}

// ErrInvalidCheck means that no limiter can decide a check. It is a mistake of the
// caller, not of the store. Test with [errors.Is].
var ErrInvalidCheck = errors.New("algorithms: invalid check")

// Validate reports everything that is wrong with the check, or nil. Its errors
// wrap [ErrInvalidCheck].
func (c Check) Validate() error {
	var errs []error
	bad := func(err error) { errs = append(errs, fmt.Errorf("%w: rule %q: %w", ErrInvalidCheck, c.Rule, err)) }
	if err := c.Limit.Validate(); err != nil {
		bad(err)
	}
	if c.Cost < 0 {
		bad(fmt.Errorf("cost must not be negative, got %d", c.Cost))
	}
	if c.MaxDelay < 0 {
		bad(fmt.Errorf("max delay must not be negative, got %s", c.MaxDelay))
	}
	if err := c.badLease(); err != nil {
		bad(err)
	}
	for _, err := range c.badHeld() {
		bad(err)
	}
	for _, err := range c.Ban.invalid() {
		bad(fmt.Errorf("ban: %w", err))
	}
	if err := c.badBan(); err != nil {
		bad(err)
	}
	return errors.Join(errs...)
}

// okBeside is Validate without the reasons, for all but the limit.
func (c *Check) okBeside() bool {
	return c.Cost >= 0 && c.MaxDelay >= 0 && c.Ban.ok() && c.badBan() == nil && (c.Cost <= 1 && c.Ban == (Ban{}) || !c.Limit.held()) && (!c.Lease || c.badLease() == nil)
}

// badBan says why no denials by the check's limit lead to its Ban.
func (c *Check) badBan() error {
	switch {
	case c.Ban == (Ban{}):
		return nil
	case c.Limit.Calendar != "":
		return errors.New("ban: denials by a calendar_window lead to no ban, since a client that has used up its month is no attacker; ban by a rule with a short period")
	}
	return nil
}

// bans reports whether the check obeys bans and counts denials.
func (c *Check) bans() bool { return c.Ban != (Ban{}) && !c.Shadow }

// day bounds how far ahead a clock may be where no period does.
const day = 24 * time.Hour

// sameBan reports whether two checks have one ban.
func sameBan(a, b *Check) bool { return a.Rule == b.Rule && a.Key == b.Key }

func (c *Check) banRule() step.Ban {
	b := step.Ban{After: c.Ban.After, Within: cmp.Or(c.Ban.Within, c.Limit.Period, day).Microseconds(), Length: c.Ban.For.Microseconds()}
	switch {
	case c.Shadow:
		b.After = -1
	case c.spared:
		b.After = 0
	}
	return b
}

// leastCost is the number of units without which the check is denied.
func (c *Check) leastCost() int64 { return max(c.Cost, 1) }

// badLease says why units cannot be leased.
func (c *Check) badLease() error {
	switch row := c.Limit.row(); {
	case !c.Lease || row == nil:
		return nil
	case !row.Aligned:
		return fmt.Errorf("lease: only %s and %s grant blocks, not %s", FixedWindow, SlidingWindow, row.Name)
	case c.Ban != (Ban{}):
		return errors.New("lease: not with a ban, since the store does not count denials by this process")
	}
	return nil
}

// badHeld lists what a check of requests under way cannot have.
func (c *Check) badHeld() (errs []error) {
	if !c.Limit.held() {
		return nil
	}
	if c.Cost > 1 {
		errs = append(errs, fmt.Errorf("cost: a request in flight costs 1, got %d; leave it 0, and count units by another rule, such as \"1000/1m\"", c.Cost))
	}
	if c.Ban != (Ban{}) {
		errs = append(errs, errors.New("ban: not with in_flight, whose denials come of requests that end; put the ban on a rule with a rate, such as \"100/1m\""))
	}
	return errs
}

// prepare validates the checks and computes their params. Up to four are in room, which
// saves an allocation.
func prepare(checks []Check, room *[4]step.Params) ([]step.Params, error) {
	ps := room[:0]
	for i := range checks {
		ps = append(ps, step.Params{})
		if !checks[i].numbers(&ps[i]) || sameAs(checks, i) < i {
			return nil, whyInvalid(checks, i)
		}
	}
	return ps, nil
}

// whyInvalid says why check i of a call cannot be decided.
func whyInvalid(checks []Check, i int) error {
	c := &checks[i]
	if err := c.Validate(); err != nil {
		return err
	}
	return fmt.Errorf("%w: rule %q: checks %d and %d of one call have the same rule and key", ErrInvalidCheck, c.Rule, sameAs(checks, i), i)
}

// sameAs returns the first check that shares its count with check i: i if no other does.
func sameAs(checks []Check, i int) int {
	for j := range checks[:i] {
		if checks[j].sharesCount(&checks[i]) {
			return j
		}
	}
	return i
}

func (c *Check) sharesCount(other *Check) bool {
	return c.Key == other.Key && c.Rule == other.Rule && c.Limit.window() == other.Limit.window()
}

// paramsOf computes the numbers of a valid check.
func paramsOf(c *Check, row *step.Row) step.Params {
	return c.Limit.step().Params(c.leastCost(), c.MaxDelay, row)
}

// numbers computes the check's params, and reports whether the check is valid.
// Check.Validate has the reasons.
func (c *Check) numbers(p *step.Params) bool {
	if !c.okBeside() {
		return false
	}
	l := c.Limit.step()
	if !l.Numbers(p, c.leastCost(), c.MaxDelay) {
		return false
	}
	if p.Held {
		c.named(p)
	}
	return true
}

// named gives the check's numbers the name of the request: a fresh one, if the caller
// has not given one.
func (c *Check) named(p *step.Params) {
	if p.ID = max(c.hold, -c.hold); p.ID == 0 {
		p.ID = newID()
	}
}

// newID names a request under way. It is made before anything is sent, so that the
// caller can release also what it got no answer about.
func newID() int64 { return 1 + rand.Int64N(1<<52-1) } //nolint:gosec // not a secret

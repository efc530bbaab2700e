package algorithms

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed75154129/ratelimit/internal/step"
)

// A Check is one limit that a request must pass. Checks with the same Rule and Key
// share one count, in every process, if their limits have the same algorithm and
// period.
type Check struct {
	Rule     string        // what is counted; a name that all processes share
	Key      string        // the client that is counted; "" is a key like any other
	Tier     string        // counts apart from other tiers of the rule and key; they share a ban; "" is none
	Limit    Limit         // how much the key may use
	Cost     int64         // units that this request takes; 0 means 1; negative is an error
	Fail     FailMode      // what to do if the store cannot count; zero counts locally
	Shadow   bool          // decided and counted, never enforced
	Lease    bool          // for a hot key: a Guard takes units in batches; fixed and sliding windows only, not with Ban or NoCache
	NoCache  bool          // do not cache its denials; for a count whose charges may be refunded at any time
	spared   bool          // a denial does not count towards the ban
	hold     int64         // in_flight: the request's name, from a Guard; 0 for a new one
	MaxDelay time.Duration // leaky_bucket: a longer Delay is a denial; 0 means any; negative is an error
	Ban      Ban           // what follows repeated denials; zero means no ban
}

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
	if c.badBan() {
		bad(errors.New("ban: denials by a calendar_window lead to no ban, since a client that has used up its month is no attacker; ban by a rule with a short period"))
	}
	return errors.Join(errs...)
}

// okBeside is Validate without the reasons, for all but the limit.
func (c *Check) okBeside() bool {
	return c.Cost >= 0 && c.MaxDelay >= 0 && c.Ban.ok() && !c.badBan() && (c.Cost <= 1 && c.Ban == (Ban{}) || !c.Limit.held()) && (!c.Lease || c.badLease() == nil)
}

// badBan reports whether the check has a Ban to which its limit's denials do not lead.
func (c *Check) badBan() bool {
	return c.Ban != (Ban{}) && c.Limit.Calendar != ""
}

// badLease says why units cannot be leased.
func (c *Check) badLease() error {
	switch row := c.Limit.row(); {
	case !c.Lease || row == nil:
		return nil
	case !row.Aligned:
		return fmt.Errorf("lease: only %s and %s grant blocks, not %s", FixedWindow, SlidingWindow, row.Name)
	case c.Ban != (Ban{}):
		return errors.New("lease: not with a ban, since the store does not count denials by this process")
	case c.NoCache:
		return errors.New("lease: not with NoCache, since leased units are not refunded one by one")
	}
	return nil
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
	return c.Key == other.Key && c.Rule == other.Rule && c.Tier == other.Tier && c.Limit.sharesWindow(&other.Limit)
}

// sharesWindow reports whether two limits of a rule and key have one count.
func (l *Limit) sharesWindow(other *Limit) bool {
	return l.Period == other.Period && l.Calendar == other.Calendar && l.row() == other.row()
}

// paramsOf computes the numbers of a valid check.
func paramsOf(c *Check, row *step.Row) step.Params {
	p := c.Limit.step().Params(c.Cost, c.MaxDelay, row)
	p.Tier = c.Tier
	return p
}

// numbers computes the check's params, and reports whether the check is valid.
// Check.Validate has the reasons.
func (c *Check) numbers(p *step.Params) bool {
	if !c.okBeside() {
		return false
	}
	if !c.Limit.step().Numbers(p, c.Cost, c.MaxDelay) {
		return false
	}
	p.Tier = c.Tier
	if p.Held {
		c.named(p)
	}
	return true
}

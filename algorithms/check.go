package algorithms

import (
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

	// Provisional says that the charge is often refunded soon, as with ChargeOn of a
	// Middleware. A Guard remembers a denial for 20 ms only.
	Provisional bool

	// Look has the check fit only while all units are free, and charges nothing. A
	// Middleware looks in this way whether a key is banned. Only for token_bucket, and
	// without a Cost.
	Look bool

	// StoreOnly has the store count the check, or nobody: no remembered denial, fail mode or
	// local counting of a Guard decides it, and a Memory without a free entry does not count it.
	StoreOnly bool

	// Sync is for a hot key: a Guard decides by a copy of the store's state, and tells the
	// store each Sync what was used. 20 ms to 1 s, and at most a twentieth of the limit's
	// period; 0 has the store decide each request. Not for sliding_log, leaky_bucket and
	// in_flight, nor with the three fields above.
	Sync time.Duration

	InFlight *string       // in_flight: what a Guard tells the store with its question
	MaxDelay time.Duration // leaky_bucket: a longer Delay is a denial; 0 means any; negative is an error
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
	if c.Cost > 1 && c.Limit.held() {
		bad(fmt.Errorf("cost: a request in flight costs 1, got %d; leave it 0, and count units by another rule, such as \"1000/1m\"", c.Cost))
	}
	for _, err := range []error{c.badSync(), c.badLook()} {
		if err != nil {
			bad(err)
		}
	}
	return errors.Join(errs...)
}

// okBeside is Validate without the reasons, for all but the limit.
func (c *Check) okBeside() bool {
	return c.Cost >= 0 && c.MaxDelay >= 0 && (c.Cost <= 1 || !c.Limit.held()) && (c.Sync == 0 || c.badSync() == nil) && (!c.Look || c.badLook() == nil)
}

// leastCost is the number of units without which the check is denied; [step.Look] for a look.
func (c *Check) leastCost() int64 {
	if c.Look {
		return step.Look
	}
	return max(c.Cost, 1)
}

// badLook says why the check cannot look.
func (c *Check) badLook() error {
	switch row := c.Limit.row(); {
	case !c.Look || row == nil:
		return nil
	case !row.Bucket || row.Queue:
		return fmt.Errorf("look: only %s knows when all of its units are free, not %s", TokenBucket, row.Name)
	case c.Cost != 0:
		return fmt.Errorf("look: charges nothing, so the cost must be 0, got %d", c.Cost)
	}
	return nil
}

// badSync says why the check cannot be decided by copies.
func (c *Check) badSync() error {
	switch row := c.Limit.row(); {
	case c.Sync == 0 || row == nil:
		return nil
	case c.Sync < 20*time.Millisecond || c.Sync > time.Second:
		return fmt.Errorf("sync: must be 20ms to 1s, or 0, got %s; write the unit, as in 50*time.Millisecond", c.Sync)
	case !row.Copied:
		return fmt.Errorf("sync: not with %s, whose states cannot be copied", row.Name)
	case !row.Calendar && c.Sync > c.Limit.Period/20:
		return fmt.Errorf("sync: must be at most a twentieth of the period %s, got %s", c.Limit.Period, c.Sync)
	case c.Look || c.StoreOnly || c.Provisional:
		return errors.New("sync: not with Look, StoreOnly or Provisional")
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
	return c.Key == other.Key && c.Rule == other.Rule && c.Limit.window() == other.Limit.window()
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
	p.Own = c.Look || c.StoreOnly
	if p.Held && c.InFlight == nil { // a Guard knows the request otherwise
		p.ID = anyID()
	}
	return true
}

// anyID names a request under way.
func anyID() int64 { return 1 + rand.Int64N(1<<52-1) } //nolint:gosec // no secret

// Validate reports why a limiter cannot decide the checks of a call, or nil. Its errors wrap
// [ErrInvalidCheck].
func Validate(checks ...Check) error {
	var room [4]step.Params
	_, err := prepare(checks, &room)
	return err
}

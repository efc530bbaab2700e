package algorithms

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/internal/wait"
)

// Wait takes the checks and returns when the call may be made. If they are
// admitted, it waits for Delay; if they are denied, it waits for RetryAfter, at most an
// hour at a time, and tries again. It is for outbound calls: with a leaky_bucket, calls
// leave at a constant rate however many processes wait.
//
// It returns the decision that admitted the call, for [Limiter.Settle]. If ctx has a
// deadline that comes too early, or if waiting would never help, Wait returns [ErrDenied]
// at once. If ctx ends while Wait waits, it returns ctx's error. Other errors are those of
// l, or of checks that l could not decide. If Wait fails, it refunds the charges.
//
// The deadline of ctx bounds the checks' MaxDelay, so that a call that cannot wait for its
// slot takes no slot. An eighth of the time left, at most 50 ms, is kept for the decision.
func Wait(ctx context.Context, l Limiter, checks ...Check) (Decision, error) {
	for {
		if err := ctx.Err(); err != nil {
			return Decision{}, err
		}
		asked, spare := inTime(ctx, checks)
		d, err := l.Take(ctx, asked...)
		if err != nil {
			return Decision{}, err
		}
		delay, longest := d.Delay(), d.Delay()
		if !d.Allowed {
			if err := undecided(d); err != nil {
				_ = Refund(ctx, l, d) // what stays charged errs towards denying
				return Decision{}, err
			}
			delay, longest = min(d.RetryAfter(), time.Hour), soonest(d, spare)
		}
		err = wait.ErrTooLate
		if longest != Never && wait.InTime(ctx, longest) {
			err = wait.For(ctx, delay)
		}
		if err != nil {
			_ = Refund(ctx, l, d) // as above
			if errors.Is(err, wait.ErrTooLate) {
				err = fmt.Errorf("%w for %s", ErrDenied, longest)
			}
			return Decision{}, err
		}
		if d.Allowed {
			return d, nil
		}
	}
}

// inTime bounds the checks' MaxDelay by the time until ctx's deadline, less spare. Without
// it, a call would take a slot that begins after the deadline. The bound is at least 1 µs,
// because a MaxDelay of 0 means any.
func inTime(ctx context.Context, checks []Check) (bounded []Check, spare time.Duration) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return checks, 0
	}
	left := max(time.Until(deadline), 0)
	spare = min(left/8, defaultBudget)
	most := max(left-spare, time.Microsecond)
	bounded = slices.Clone(checks)
	for i := range bounded {
		c := &bounded[i]
		if row := c.Limit.row(); row != nil && row.Queue && (c.MaxDelay == 0 || c.MaxDelay > most) {
			c.MaxDelay = most
		}
	}
	return bounded, spare
}

// soonest is the shortest time until a denied request can be served: its slot begins when
// all slots before it have ended.
func soonest(d Decision, spare time.Duration) time.Duration {
	longest := d.RetryAfter()
	for i := range d.Results {
		r := &d.Results[i]
		if row := r.Check.Limit.row(); r.Denies() && row != nil && row.Queue {
			longest = max(longest, r.ResetAfter+min(spare, Never-r.ResetAfter))
		}
	}
	return longest
}

// undecided returns the Err of an enforced check that could not be decided; nil if an
// enforced check was decided and denies.
func undecided(d Decision) (err error) {
	for i := range d.Results {
		if r := &d.Results[i]; r.Denies() && r.Err == nil {
			return nil
		} else if r.Denies() {
			err = r.Err
		}
	}
	return err
}

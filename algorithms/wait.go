package algorithms

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrDenied says that there is no room, or none in time.
var ErrDenied = errors.New("algorithms: over the limit")

// Wait takes the checks, and waits as long as they ask: until Delay is over
// where they are admitted, or until RetryAfter to try again where not. It is
// for outbound calls; with a leaky_bucket, calls leave at a constant rate
// however many processes wait.
//
// If ctx has a deadline that comes too early it returns [ErrDenied] at once;
// also if waiting would never help. If ctx ends while it waits it returns ctx's
// error. In both cases it gives back what was charged, as far as l can. Other
// errors are l's, or those of checks that l could not decide.
func Wait(ctx context.Context, l Limiter, checks ...Check) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		d, err := l.Take(ctx, checks...)
		if err != nil {
			return err
		}
		wait := d.Delay()
		if !d.Allowed {
			if err := undecided(d); err != nil {
				giveBack(ctx, l, d)
				return err
			}
			wait = d.RetryAfter()
		}
		if err := sleep(ctx, wait); err != nil {
			giveBack(ctx, l, d)
			return err
		}
		if d.Allowed {
			return nil
		}
	}
}

// undecided is why an enforced check denies that nobody could count, unless
// one that was counted denies too.
func undecided(d Decision) (err error) {
	for i := range d.Results {
		if r := &d.Results[i]; r.denies() && r.Err == nil {
			return nil
		} else if r.denies() {
			err = r.Err
		}
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	if deadline, ok := ctx.Deadline(); d == Never || ok && time.Until(deadline) < d {
		return fmt.Errorf("%w for %s", ErrDenied, d)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func giveBack(ctx context.Context, l Limiter, d Decision) {
	if c, ok := l.(Counter); ok {
		_ = c.Settle(context.WithoutCancel(ctx), 0, d.Results...) // what stays charged errs towards denying
	}
}

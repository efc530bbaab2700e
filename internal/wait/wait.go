// Package wait waits for a time that a limiter names, as far as a context lets it.
package wait

import (
	"context"
	"errors"
	"time"
)

// ErrTooLate says that the context's deadline comes before the time is over.
var ErrTooLate = errors.New("deadline comes too early")

// For waits for d. It returns ErrTooLate at once if ctx's deadline comes
// earlier, and ctx's error if ctx ends meanwhile. A deadline at the same time is
// not earlier.
func For(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	if !InTime(ctx, d) {
		return ErrTooLate
	}
	begin, timer := time.Now(), time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
	}
	if time.Since(begin) >= d {
		return nil
	}
	return ctx.Err()
}

// InTime reports whether d is over before ctx's deadline.
func InTime(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) >= d
}

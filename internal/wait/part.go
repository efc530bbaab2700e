package wait

import (
	"context"
	"time"
)

// A partContext is for a part of what a request waits for decisions. Its end is its
// deadline, so that contexts made of it have that too, but for those of
// context.WithoutCancel.
type partContext struct {
	context.Context
	until time.Time
}

type partKey struct{}

// Deadline is when the request's budget ends.
func (c partContext) Deadline() (time.Time, bool) { return c.until, true }

// Value implements [context.Context].
func (c partContext) Value(key any) any {
	if key == (partKey{}) {
		return true
	}
	return c.Context.Value(key)
}

// PartOf returns a context for decisions of a request that has waited before. Its budget
// ends at this time, or earlier if the request's did.
func PartOf(ctx context.Context, until time.Time) context.Context {
	return partContext{ctx, EndOf(ctx, until)}
}

// EndOf returns when a decision ends that may take until a time: earlier if PartOf says so.
func EndOf(ctx context.Context, until time.Time) time.Time {
	if end, ok := ctx.Deadline(); ok && end.Before(until) && ctx.Value(partKey{}) != nil {
		return end
	}
	return until
}

// Package inside has what the packages of this module share and do not promise
// to users: the key to their Internal values.
package inside

import (
	"context"
	"fmt"
	"reflect"
	"time"
)

// A Key opens the Internal values: only &Allow does, and only this module can name it.
type Key struct{ _ byte }

// Allow is the Key.
var Allow Key

// A Door is an Internal value, behind which is a T.
type Door[T any] struct{}

// Open returns what is behind the door.
func (Door[T]) Open(k *Key) (behind T) {
	if k != &Allow {
		panic("Internal is for the packages of this module")
	}
	return behind
}

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

// TooShort says that a duration is below the shortest that makes sense, or returns nil.
// What is shorter is mostly a number whose unit was forgotten.
func TooShort(what string, d, shortest time.Duration) error {
	if d >= shortest {
		return nil
	}
	return fmt.Errorf("%s %s is below %s; a number without a unit is in nanoseconds: write 10*time.Second, in text 10s", what, d, shortest)
}

// IsNil reports whether a field that must be set is nil, or a nil pointer in an
// interface.
func IsNil(field any) bool {
	v := reflect.ValueOf(field)
	return field == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

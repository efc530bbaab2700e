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

type peekFirst struct{}

// PeekFirst tells a sharded Redis that a check was denied a moment ago.
func PeekFirst(ctx context.Context) context.Context { return context.WithValue(ctx, peekFirst{}, true) }

// PeeksFirst reports whether PeekFirst made the context.
func PeeksFirst(ctx context.Context) bool { return ctx.Value(peekFirst{}) != nil }

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

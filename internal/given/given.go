// Package given looks at what users have given: fields that are nil, and times without a unit.
package given

import (
	"fmt"
	"reflect"
	"time"
)

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

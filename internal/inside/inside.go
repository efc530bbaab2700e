// Package inside has what the packages of this module share and do not promise
// to users: the key to their Internal values, and the types that these return.
package inside

import (
	"reflect"
	"time"
)

// A Key opens the Internal values: only &Allow does, and only this module can name it.
type Key struct{ _ byte }

// Allow is the Key.
var Allow Key

// A CircuitState is what a circuit was last seen to do.
type CircuitState struct {
	Open   bool
	Since  time.Time // of the last opening or closing; zero if there was none
	Opened int64     // how often it has opened
	Err    error     // the last failure; nil if there was none
}

// IsNil reports whether a field that must be set is nil, or a nil pointer in an
// interface.
func IsNil(field any) bool {
	v := reflect.ValueOf(field)
	return field == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

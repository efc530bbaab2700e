// Package layers looks through limiters that wrap others.
package layers

import (
	"iter"
	"reflect"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/inside"
)

// Most is how many limiters Of yields: a mistaken Unwrap returns its own limiter.
const Most = 32

// Of yields a limiter and all that it wraps, from the outside in.
func Of(l algorithms.Limiter) iter.Seq[algorithms.Limiter] {
	return func(yield func(algorithms.Limiter) bool) {
		for n := 0; n < Most && !inside.IsNil(l) && yield(l); n++ {
			switch w := l.(type) {
			case *failmode.Guard:
				l = w.Limiter
			case interface{ Unwrap() algorithms.Limiter }:
				l = w.Unwrap()
			default:
				return
			}
		}
	}
}

// Hidden returns the type of a Guard or a Redis in a field of a limiter that is neither, as
// in struct{ algorithms.Limiter }; "" if there is none.
func Hidden(l algorithms.Limiter) string {
	switch l.(type) {
	case *failmode.Guard, *algorithms.Redis:
		return ""
	}
	return ours(reflect.ValueOf(l), Most)
}

func ours(v reflect.Value, depth int) string {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		switch v.Type() {
		case reflect.TypeFor[*failmode.Guard](), reflect.TypeFor[*algorithms.Redis]():
			return v.Type().String()
		}
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct || depth == 0 {
		return ""
	}
	for _, field := range v.Fields() {
		if found := ours(field, depth-1); found != "" {
			return found
		}
	}
	return ""
}

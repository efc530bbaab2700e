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
	return search(reflect.ValueOf(l), make(map[pointer]bool))
}

// A pointer to a limiter.
type pointer struct {
	to reflect.Type
	at uintptr
}

var (
	guard   = reflect.TypeFor[*failmode.Guard]()
	redis   = reflect.TypeFor[*algorithms.Redis]()
	memory  = reflect.TypeFor[*algorithms.Memory]() // has no limiter in it
	limiter = reflect.TypeFor[algorithms.Limiter]()
)

// search follows only pointers to limiters, each once. What else a limiter has, such as a
// list, may have any size, and other goroutines may be changing it.
func search(v reflect.Value, seen map[pointer]bool) string {
	switch t := v.Type(); v.Kind() {
	case reflect.Interface:
		if !v.IsNil() && t.NumMethod() > 0 && (guard.Implements(t) || redis.Implements(t)) {
			return search(v.Elem(), seen)
		}
	case reflect.Pointer:
		p := pointer{t, v.Pointer()}
		switch {
		case t == guard, t == redis:
			return t.String()
		case t != memory && t.Implements(limiter) && !seen[p] && !v.IsNil():
			seen[p] = true
			return search(v.Elem(), seen)
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			if found := search(field, seen); found != "" {
				return found
			}
		}
	}
	return ""
}

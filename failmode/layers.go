package failmode

import (
	"iter"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/given"
)

// Layers yields a limiter and those that it wraps, from the outside in, at most 32: a Guard
// wraps its Limiter, and others what their method Unwrap() [algorithms.Limiter] returns. It
// finds the Guard or the Redis in a decorator.
func Layers(l algorithms.Limiter) iter.Seq[algorithms.Limiter] {
	return func(yield func(algorithms.Limiter) bool) {
		for n := 0; n < 32 && !given.IsNil(l) && yield(l); n++ {
			switch w := l.(type) {
			case *Guard:
				l = w.Limiter
			case interface{ Unwrap() algorithms.Limiter }:
				l = w.Unwrap()
			default:
				return
			}
		}
	}
}

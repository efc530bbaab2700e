// Package layers looks through limiters that wrap others.
package layers

import (
	"iter"

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

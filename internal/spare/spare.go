// Package spare keeps slices that nobody looks at any more, so that a flood of denials takes no
// memory for results.
package spare

import (
	"sync"
	"sync/atomic"
)

// size is the length of the arrays that are kept: the checks of the usual request.
const size = 4

// Slices makes slices, out of those that were given back. Its zero value is ready. It is safe
// for concurrent use.
type Slices[T any] struct {
	pool sync.Pool   // of *[size]T, which are zero
	used atomic.Bool // some were given back
}

// Make returns n zero elements.
func (s *Slices[T]) Make(n int) []T {
	if n > size || !s.used.Load() {
		return make([]T, n)
	}
	if kept, ok := s.pool.Get().(*[size]T); ok {
		return kept[:n]
	}
	return new([size]T)[:n]
}

// Reuse takes back a slice. Nobody may use it afterwards.
func (s *Slices[T]) Reuse(all []T) {
	if !s.used.Load() {
		s.used.Store(true)
	}
	if cap(all) >= size {
		kept := (*[size]T)(all[:size])
		clear(kept[:])
		s.pool.Put(kept)
	}
}

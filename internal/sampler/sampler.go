// Package sampler bounds how often something is done, such as logged.
package sampler

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"
)

// LogInterval bounds log lines that could come with every request.
const LogInterval = 10 * time.Second

// A Sampler lets one call through in each interval. It is safe for concurrent use.
type Sampler struct {
	Every time.Duration // 0 means a second

	mu   sync.Mutex
	last time.Time
}

// Do calls f unless it has called one less than Every ago.
func (s *Sampler) Do(f func()) {
	s.mu.Lock()
	now := time.Now()
	due := s.last.IsZero() || now.Sub(s.last) >= cmp.Or(s.Every, time.Second)
	if due {
		s.last = now
	}
	s.mu.Unlock()
	if due {
		f()
	}
}

// MaxRate is the largest rate of a [Rate].
const MaxRate = 1<<rateBits - 1

const rateBits = 20

// A Rate lets a number of calls through in each second and counts the others. It takes
// two atomic operations. The zero value is ready. It is safe for concurrent use.
type Rate struct {
	window     atomic.Int64 // second<<rateBits + calls let through in it
	suppressed atomic.Int64
}

// Take reports whether a call is let through, and how many were not since the last one.
// The time is any monotonic one; rate is at most [MaxRate].
func (r *Rate) Take(now time.Duration, rate int64) (suppressed int64, ok bool) {
	second := int64(now/time.Second) + 1 // never 0, which is the zero value's
	for {
		window := r.window.Load()
		next := window + 1
		if window>>rateBits != second {
			next = second<<rateBits + 1
		} else if window&MaxRate >= rate {
			r.suppressed.Add(1)
			return 0, false
		}
		if r.window.CompareAndSwap(window, next) {
			return r.suppressed.Swap(0), true
		}
	}
}

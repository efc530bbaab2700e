// Package sampler bounds how often something is logged.
package sampler

import (
	"sync"
	"time"
)

// LogInterval bounds log lines that could come with every request.
const LogInterval = 10 * time.Second

// A Sampler lets one call through in each interval. It is safe for concurrent use.
type Sampler struct {
	Every time.Duration

	mu   sync.Mutex
	last time.Time
}

// Do calls f unless it has called one less than Every ago.
func (s *Sampler) Do(f func()) {
	s.mu.Lock()
	now := time.Now()
	due := s.last.IsZero() || now.Sub(s.last) >= s.Every
	if due {
		s.last = now
	}
	s.mu.Unlock()
	if due {
		f()
	}
}

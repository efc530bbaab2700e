package middleware

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// validateLimiter reports what is wrong with a limiter before it is used.
func validateLimiter(l algorithms.Limiter) error {
	if v := reflect.ValueOf(l); l == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return errors.New("middleware: limiter: required; use a *Redis, or new(algorithms.Memory) to count in this process")
	}
	v, ok := l.(interface{ Validate() error })
	if !ok {
		return nil
	}
	err := v.Validate()
	if err == nil {
		return nil
	}
	var errs []error
	for _, err := range each(err) {
		errs = append(errs, fmt.Errorf("middleware: limiter: %w", err))
	}
	return errors.Join(errs...)
}

// A sampler lets one through each second, so that a log stays readable.
type sampler struct {
	mu   sync.Mutex
	last time.Time
}

func (s *sampler) do(f func()) {
	s.mu.Lock()
	now := time.Now()
	due := now.Sub(s.last) >= time.Second
	if due {
		s.last = now
	}
	s.mu.Unlock()
	if due {
		f()
	}
}

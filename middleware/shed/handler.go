package shed

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/internal/inside"
)

// Handler wraps next, for use without a Middleware. It panics if next is nil, or if
// fields are out of range.
func (s *Shedder) Handler(next http.Handler) http.Handler {
	if f, ok := next.(http.HandlerFunc); next == nil || ok && f == nil {
		panic("shed: Handler: the next handler is nil")
	}
	if err := s.validate(); err != nil {
		panic(err.Error())
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		slot, ok := s.enter(r)
		if !ok {
			s.refuse(w, r)
			return
		}
		served := false
		defer func() { slot.Leave(served) }()
		next.ServeHTTP(slot.Wrap(w, r))
		served = true
	})
}

func (s *Shedder) validate() error {
	var errs []error
	if s.Min < 0 || s.Max < 0 || s.Min > s.Max && s.Max > 0 {
		errs = append(errs, fmt.Errorf("shed: Min and Max must not be negative, nor Min above Max; got %d and %d", s.Min, s.Max))
	}
	if err := inside.TooShort("Wait", s.Wait, time.Millisecond); s.Wait > 0 && err != nil {
		errs = append(errs, fmt.Errorf("shed: %w", err))
	}
	return errors.Join(errs...)
}

var errOverloaded = errors.New("overloaded")

// refuse answers what is shed. The wait is spread, so that clients do not come back
// together.
func (s *Shedder) refuse(w http.ResponseWriter, r *http.Request) {
	d := algorithms.Decision{Results: []algorithms.Result{{Err: errOverloaded, RetryAfter: time.Duration(1+rand.IntN(3)) * time.Second}}} //nolint:gosec // no secret
	if s.Overloaded == nil {
		headers.Deny(w, r, d)
		return
	}
	headers.SetRetryAfter(w.Header(), d)
	w.Header().Set("Cache-Control", "no-store")
	s.Overloaded.ServeHTTP(w, r)
}

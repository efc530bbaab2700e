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

// Internal is for the packages of this module, and no part of the API.
var Internal inside.Door[opened]

// opened is what package middleware needs of a Shedder.
type opened struct{}

// Validate reports what is wrong with the fields.
func (opened) Validate(s *Shedder) error { return s.validate() }

// Enter waits for a place. It returns false if the request is shed: answer it by Refuse.
func (opened) Enter(s *Shedder, r *http.Request) (*slot, bool) { return s.enter(r) }

// Refuse answers a request that is shed.
func (opened) Refuse(s *Shedder, w http.ResponseWriter, r *http.Request) { s.refuse(w, r) }

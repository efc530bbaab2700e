package middleware

import (
	"fmt"
	"net/http"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/inside"
	"github.com/seed75154129/ratelimit/shed"
)

var shedders = shed.Internal.Open(&inside.Allow)

// A slot is a request's place in the Shedder. Its methods do nothing where it is nil in
// the interface.
type slot interface {
	Wrap(http.ResponseWriter, *http.Request) (http.ResponseWriter, *http.Request)
	Block() bool
	Unblock(blocked bool)
	Leave(served bool)
}

// validateShedder reports what is wrong with Config.Shedder.
func validateShedder(s *shed.Shedder) error {
	if s == nil {
		return nil
	}
	if err := shedders.Validate(s); err != nil {
		return fmt.Errorf("middleware: shedder: %w", err)
	}
	return nil
}

// Shedder returns Config.Shedder; nil if there is none.
func (m *Middleware) Shedder() *shed.Shedder {
	m.mustBeMade()
	return m.shedder
}

// enterShedder waits for a place in the Shedder, or has the request shed. A request that
// is known to be denied takes no place while others wait for one. Otherwise a flood of
// them would fill the queue.
func (e *evaluation) enterShedder(checks []algorithms.Check) {
	s := e.m.shedder
	if s == nil || !e.handles || s.Load() >= 1 && e.anyKnownOver(checks) {
		return
	}
	begun := time.Since(e.m.start)
	slot, ok := shedders.Enter(s, e.request)
	e.waited = time.Since(e.m.start) - begun
	if !ok {
		e.shed = true
		return
	}
	e.slot = slot
	e.writer, e.request = slot.Wrap(e.writer, e.request)
}

// leaveShedder gives the place to another request.
func (e *evaluation) leaveShedder(served bool) {
	if e.slot != nil {
		e.slot.Leave(served)
	}
}

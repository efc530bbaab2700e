package middleware

import (
	"fmt"
	"net/http"

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

// findSlot waits for a place in the Shedder. It returns false if the request is shed. A
// request that is known to be denied takes no place while others wait for one: a flood of
// them would fill the queue.
func (q *question) findSlot() bool {
	if q.shedder == nil || !q.handles || q.shedder.Load() >= 1 && q.anyKnownOver() {
		return true
	}
	begun := q.clock()
	slot, ok := shedders.Enter(q.shedder, q.request)
	q.waited = q.clock() - begun
	if !ok {
		q.shed = true
		return false
	}
	q.slot = slot
	q.writer, q.request = slot.Wrap(q.writer, q.request)
	return true
}

// shedding is the handler for a request that has no place yet, since it was believed to be
// denied.
func (q *question) shedding(next http.Handler) http.Handler {
	if q.shedder == nil || q.slot != nil {
		return next
	}
	return q.shedder.Handler(next)
}

// leave gives the place away.
func (v *verdict) leave(served bool) {
	if v.slot != nil {
		v.slot.Leave(served)
	}
}

package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/seed75154129/ratelimit/algorithms"
)

var (
	errSettled  = errors.New("settled before; a rule's charge is settled once per request")
	errReturned = errors.New("the handler has returned; settle before that, or call Hold first")
)

// Settle sets what the request behind ctx costs under one rule, by all its limits: the units that a query,
// an upload or a language model has used in the end. 0 refunds the whole charge. A cost
// above the charge may put the key into debt. A bucket pays its debt off as it refills;
// a window forgets its debt when it ends. If the response headers are not sent yet,
// Settle updates them. A handler that sets such a header itself must do so after
// Settle.
//
// Settle does nothing if the rule does not apply to the request, or has charged
// nothing. It does not change other rules. If several chained middlewares have a rule
// of this name, Settle is for the innermost. The charge of a rule is settled once per
// request: by the first Settle, or by a refund of ChargeOn if the status is written
// before. Further calls return an error. So do a negative cost, and calls after the
// handler has returned, unless [Hold] keeps the request. If the limiter returns an
// error, so does Settle, and the charge stays as it was, as far as is known.
//
// Call it on the goroutine that writes the response, as with
// [http.ResponseWriter.Header].
func Settle(ctx context.Context, rule string, cost int64) error {
	for s := stateOf(ctx); s != nil; s = s.outer {
		if at := s.find(rule); at != nil {
			if err := s.settle(ctx, at, cost); err != nil {
				return fmt.Errorf("middleware: settle: rule %q: %w", rule, err)
			}
			return nil
		}
	}
	return nil
}

// find returns the indices of a rule's results, one for each of its windows.
func (s *requestState) find(rule string) (at []int) {
	for i, r := range s.current().Results {
		if r.Check.Rule == rule {
			at = append(at, i)
		}
	}
	return at
}

func (s *requestState) settle(ctx context.Context, at []int, cost int64) error {
	if cost < 0 {
		return fmt.Errorf("cost must not be negative, got %d", cost)
	}
	claimed, err := s.claim(at)
	if err != nil || len(claimed) == 0 {
		return err
	}
	return s.settleAll(ctx, claimed, cost)
}

// claim returns those of the results that were not settled yet. Only its caller may settle
// them.
func (s *requestState) claim(at []int) (claimed []int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed && s.holds == 0 {
		return nil, errReturned
	}
	for _, i := range at {
		if slices.Contains(s.settled, i) {
			err = errSettled
			continue
		}
		s.settled = append(s.settled, i)
		claimed = append(claimed, i)
	}
	return claimed, err
}

// settleAll sets the cost of each claimed result, in one call, and rewrites the headers.
func (s *requestState) settleAll(ctx context.Context, at []int, cost int64) error {
	d := s.current()
	var charges []algorithms.Charge
	var charged []int
	for _, i := range at {
		if r := &d.Results[i]; r.Charged > 0 && r.Charged != cost {
			charges = append(charges, algorithms.Charge{Result: *r, Cost: cost})
			charged = append(charged, i)
		}
	}
	if len(charges) == 0 {
		return nil
	}
	results, err := s.by.limiter.Settle(ctx, charges...)
	if len(results) == len(charges) {
		s.mu.Lock()
		now := slices.Clone(s.decision.Results) // the old ones may be read
		for j, i := range charged {
			now[i] = results[j]
		}
		s.decision.Results = now
		s.mu.Unlock()
	}
	if !s.isClosed() {
		s.rewriteHeaders(ctx)
	}
	return err
}

// refundBy refunds the rules with ChargeOn that do not list the status. A request that
// has ended stays charged: otherwise clients that hang up would not be counted. So does a
// connection that the handler takes over, because what is answered on it is not known.
func (s *requestState) refundBy(status int) {
	if status == http.StatusSwitchingProtocols || s.Context.Err() != nil {
		return
	}
	var free []int
	for i, r := range s.current().Results {
		if on := s.set.chargeOn(r.Check.Rule); on != nil && !slices.Contains(on, status) {
			free = append(free, i)
		}
	}
	claimed, _ := s.claim(free) // without those that the handler has settled
	if len(claimed) == 0 {
		return
	}
	if err := s.settleAll(s.Context, claimed, 0); err != nil {
		s.by.unrefunded.Do(func() { s.by.logger.Error("ratelimit: charge not refunded", "status", status, "error", err) })
	}
}

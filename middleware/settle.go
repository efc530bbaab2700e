package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/seed75154129/ratelimit/internal/near"
)

// ErrNoRule means that no rule has this name, or that no Middleware is in the context.
var ErrNoRule = errors.New("middleware: no such rule")

// Settle sets what the request behind ctx costs under one rule: the units that a query,
// an upload or a language model has used in the end. 0 refunds the whole charge. A cost
// above the charge may put the key into debt. A bucket pays its debt off as it refills; a
// window forgets its debt when it ends, a sliding_window one window later.
//
// The store learns all costs of a request in one command, when the request is over: when
// the handler has returned or panicked, or the last [Hold] is released. After a Hold, it
// learns them at once. Until then others see the charge: a stream whose use grows calls
// [Add]. The headers stay: they were written before the handler ran. What cannot be settled
// stays charged, is logged, and has an Err in [Config].Settled.
//
// Settle returns nil and does nothing if the rule does not apply to the request, or has
// charged nothing so far, as before the first Add to a free request. The error wraps
// [ErrNoRule] if no rule has this name, or if ctx is not that of a request behind a
// Middleware, such as context.Background(). If several chained middlewares have one, Settle
// is for the innermost. Settle a rule once per request: further calls return an error, and so do calls after ChargeOn has refunded the
// rule or the request is over, negative units, and rules with in_flight.
//
// Any goroutine may call Settle.
func Settle(ctx context.Context, rule string, units int64) error {
	s, err := stateWith(ctx, rule)
	if s == nil {
		return err
	}
	now, err := s.setCost(rule, units)
	if err != nil {
		return fmt.Errorf("middleware: settle: rule %q: %w", rule, err)
	}
	if now {
		s.settle(false)
	}
	return nil
}

// stateWith returns the state of the innermost middleware that has results of a rule; nil if
// there is none, and an error if that is a mistake.
func stateWith(ctx context.Context, rule string) (*requestState, error) {
	for s := stateOf(ctx); s != nil; s = s.outer {
		if resultsOf(rule, s.decision.Results) != nil {
			return s, nil
		}
	}
	return nil, unknown(ctx, rule)
}

// ruleNames are the names of all rules that this process has had. A request that no rule
// of a Middleware applies to passes it without a trace in its context.
var ruleNames sync.Map

type passedKey struct{}

// passed marks a request that no rule applies to, so that its context can be told from one
// that is of no request. Requests that net/http serves need no mark.
func passed(r *http.Request) *http.Request {
	if ctx := r.Context(); !ofRequest(ctx) {
		return r.WithContext(context.WithValue(ctx, passedKey{}, true))
	}
	return r
}

// ofRequest reports whether a context is that of a request.
func ofRequest(ctx context.Context) bool {
	return ctx.Value(http.ServerContextKey) != nil || ctx.Value(passedKey{}) != nil || stateOf(ctx) != nil
}

// unknown returns an error if no rule has this name, or if ctx is of no request behind a
// Middleware.
func unknown(ctx context.Context, rule string) error {
	if _, ok := ruleNames.Load(rule); ok {
		if ofRequest(ctx) {
			return nil // it does not apply to the request
		}
		return fmt.Errorf("%w: %.64q: this context is of no request; pass on that of the request", ErrNoRule, rule)
	}
	var names []string
	for name := range ruleNames.Range {
		names = append(names, name.(string))
	}
	slices.Sort(names)
	mend := "write the Name of a rule"
	if best := near.Word(rule, names); best != "" {
		mend = fmt.Sprintf("did you mean %q?", best)
	}
	return fmt.Errorf("%w: %.64q; %s", ErrNoRule, rule, mend)
}

package headers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/banned"
	"github.com/seed75154129/ratelimit/internal/given"
)

// A Transport is an [http.RoundTripper] that makes a client obey rate limits. After a
// denial it waits as long as the response says ([RetryAfter]), and sends the request
// again. The zero value is ready to use:
//
//	client := &http.Client{Transport: new(headers.Transport)}
//
// A request is sent again after a 429 or a 403, whatever its method, since a denied
// request was not processed. After a 503 it is sent again if it is idempotent by
// its method (GET, HEAD, OPTIONS, TRACE, PUT, DELETE) or has an Idempotency-Key.
// The caller gets every other response, and a denial
//
//   - that does not say how long to wait;
//   - whose wait is longer than MaxWait, or would not end before the deadline of
//     the request's context, which [http.Client.Timeout] sets too;
//   - that follows MaxRetries other denials;
//   - of a request whose body cannot be sent twice, because it has no GetBody.
//
// Each hop of a redirect is a request of its own, with MaxRetries of its own. If the
// request's context ends during a wait, RoundTrip returns the context's cause. A
// server cannot prolong the wait that it asks for by sending the denial slowly: Transport
// closes the body when the wait is over, or after a second if that is later. In a program
// built with Go 1.27 or newer, it closes the body at once.
//
// With a Limiter, Transport also keeps limits that you set, which all processes share. A
// 429 or 403 that says how long to wait then holds back all processes. Without a Limiter, a denial holds back no other
// requests, because the client cannot know which of them share the server's limit.
// Transport ignores the remaining units in responses that are no denials.
//
// Transport does not change requests. It is safe for concurrent use; its fields
// must not change once it is in use.
type Transport struct {
	// Base sends the requests; nil means [http.DefaultTransport].
	Base http.RoundTripper

	// MaxWait is the longest wait before one attempt, for the Limiter or because a denial
	// asks for it; 0 means a minute, below 10 ms is an error. Jitter comes on top.
	MaxWait time.Duration

	// MaxRetries is how often a request is sent again; 0 means 3, negative means never.
	MaxRetries int

	// Jitter is the maximum random fraction added to each wait, so that clients denied
	// together do not return together; 0 means 0.1, negative means none, above 1 is an error.
	// The fraction is smaller if the deadline of the request is near.
	Jitter float64

	// Limiter admits each attempt, as [algorithms.Wait] does; nil means none. If an
	// attempt would wait for longer than MaxWait, or past the deadline of the request's
	// context, RoundTrip returns [algorithms.ErrDenied]. The charges of an attempt stay,
	// whatever its response is.
	//
	// A 429 or 403 that says how long to wait bans the key of the first check for that time, at
	// most an hour, in whole seconds. So the denial holds back all processes that share the
	// Limiter's counts: with each attempt they look at the ban (see [algorithms.Check]), whose
	// rule has the name of the first check's, and "~ban" behind it. A request that had to wait for the Delay of any check
	// (leaky_bucket) peeks at the first check afterwards. If that check's key has been
	// banned meanwhile, the charges of the other checks are refunded, the charge of the
	// first stays, and the request waits for the end of the ban and takes all checks
	// again. A request without a Delay does not peek.
	Limiter algorithms.Limiter

	// Checks returns the checks of an attempt; required with Limiter. The first one
	// identifies the server, such as by its [Host]. A check with in_flight is an error.
	Checks func(*http.Request) []algorithms.Check
}

// RoundTrip sends a request, and sends it again after denials.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	maxRetries := cmp.Or(t.MaxRetries, 3)
	resp, err := t.attempt(req)
	for retries := 0; err == nil && retries < maxRetries && repeatable(req, resp.StatusCode); retries++ {
		wait, ok := t.wait(req.Context(), resp)
		if !ok {
			break
		}
		if err = pause(req.Context(), wait, resp); err != nil {
			return nil, err
		}
		next := req.WithContext(req.Context()) // a shallow copy
		if req.GetBody != nil {
			if next.Body, err = req.GetBody(); err != nil {
				return nil, fmt.Errorf("headers: GetBody of a request to be sent again: %w", err)
			}
		}
		resp, err = t.attempt(next)
	}
	return resp, err
}

// maxHold is the longest time for which a denial holds back all processes. After it, the
// server may deny again.
const maxHold = time.Hour

// attempt sends a request once, when the Limiter lets it.
func (t *Transport) attempt(req *http.Request) (*http.Response, error) {
	checks, err := t.admit(req)
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // as a RoundTripper must
		}
		return nil, err
	}
	resp, err := t.base().RoundTrip(req)
	if err == nil && limited(resp.StatusCode) && len(checks) > 0 {
		if wait, ok := RetryAfter(resp); ok {
			_ = banned.Set(context.WithoutCancel(req.Context()), t.Limiter, &checks[0], min(wait, maxHold)) // if it fails, this request waits all the same
		}
	}
	return resp, err
}

// admit waits until the Limiter admits a request. Without a Limiter, there are no checks.
func (t *Transport) admit(req *http.Request) ([]algorithms.Check, error) {
	if err := t.invalid(); err != nil || t.Limiter == nil {
		return nil, err
	}
	checks := t.Checks(req)
	for i := range checks {
		if checks[i].Limit.Algorithm == algorithms.InFlight {
			return nil, fmt.Errorf("headers: Transport: rule %q: in_flight is not for Transport, which does not know when a response has been read; call algorithms.Wait before the request and algorithms.Refund after it", checks[i].Rule)
		}
	}
	ctx, cancel := context.WithTimeout(req.Context(), t.maxWait())
	defer cancel()
	all := checks
	if len(checks) > 0 {
		all = append(slices.Clip(checks), banned.Look(&checks[0]))
	}
	d, err := algorithms.Wait(ctx, t.Limiter, all...)
	for err == nil && d.Delay() > 0 && t.banned(ctx, checks[0]) {
		// The first check's slot has passed: only the other charges are refunded. A charge that stays errs towards denying.
		_ = algorithms.Refund(ctx, t.Limiter, algorithms.Decision{Results: d.Results[1:]})
		d, err = algorithms.Wait(ctx, t.Limiter, all...)
	}
	switch {
	case err == nil:
		return checks, nil
	case req.Context().Err() != nil:
		return nil, context.Cause(req.Context())
	case ctx.Err() != nil: // while it waited: somebody else was first
		err = algorithms.ErrDenied
	}
	return nil, fmt.Errorf("headers: Transport: %w", err)
}

// invalid says what is wrong with the fields.
func (t *Transport) invalid() error {
	var checks, jitter error
	if t.Limiter != nil && t.Checks == nil {
		checks = errors.New("a Limiter needs Checks, which say what to ask it")
	}
	if !(t.Jitter <= 1) { // NaN is not
		jitter = fmt.Errorf("Jitter %g is above 1; it is a fraction of the wait: write 0.1 for 10%%", t.Jitter)
	}
	if err := errors.Join(checks, jitter, given.TooShort("MaxWait", t.maxWait(), shortest)); err != nil {
		return fmt.Errorf("headers: Transport: %w", err)
	}
	return nil
}

// banned reports whether a denial has banned the key of a check meanwhile.
func (t *Transport) banned(ctx context.Context, check algorithms.Check) bool {
	d, err := t.Limiter.Peek(ctx, banned.Look(&check))
	return err == nil && !d.Allowed
}

func (t *Transport) maxWait() time.Duration { return cmp.Or(t.MaxWait, time.Minute) }

// CloseIdleConnections closes the idle connections of Base. [http.Client.CloseIdleConnections]
// calls it.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (t *Transport) base() http.RoundTripper { return cmp.Or(t.Base, http.DefaultTransport) }

// wait returns how long to wait before the request is sent again; false if it must not be
// sent again. That does not depend on the jitter.
func (t *Transport) wait(ctx context.Context, resp *http.Response) (time.Duration, bool) {
	wait, ok := RetryAfter(resp)
	if !ok || wait > t.maxWait() {
		return 0, false
	}
	jitter := time.Duration(max(cmp.Or(t.Jitter, 0.1), 0) * rand.Float64() * float64(wait)) //nolint:gosec // spreads load, keeps no secret
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline) - wait
		if left <= 0 {
			return 0, false
		}
		jitter = min(jitter, left/2) // the other half is for the request
	}
	return wait + jitter, true
}

// repeatable reports whether a request that was answered with this status may be sent
// again, and whether its body can be.
func repeatable(req *http.Request, status int) bool {
	denied := limited(status) || status == http.StatusServiceUnavailable && idempotent(req)
	return denied && (req.Body == nil || req.Body == http.NoBody || req.GetBody != nil)
}

// limited reports whether a response that says how long to wait is a denial by a rate
// limit. GitHub's have the status 403.
func limited(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusForbidden
}

func idempotent(req *http.Request) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return req.Header.Get("Idempotency-Key") != ""
}

// pause waits. It discards the denial's body meanwhile. If the context ends first,
// it returns the context's cause, as [http.Transport] does.
func pause(ctx context.Context, wait time.Duration, denial *http.Response) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	if denial.Body != nil { // http.Client takes nil from a RoundTripper, too
		discard(ctx, denial, max(wait, time.Second))
	}
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

package headers

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"time"
)

// A Transport is an [http.RoundTripper] that makes a client obey rate limits. It
// waits as long as a denial says ([RetryAfter]) and sends the request again. The
// zero value is ready to use:
//
//	client := &http.Client{Transport: new(headers.Transport)}
//
// A request is sent again after a 429, whatever its method, since a denied
// request was not processed. After a 503 it is sent again if it is idempotent by
// its method (GET, HEAD, OPTIONS, TRACE, PUT, DELETE) or has an Idempotency-Key.
// The caller gets every other response, and a denial
//
//   - that does not say how long to wait;
//   - whose wait is longer than MaxWait, or would not end before the deadline of
//     the request's context, which [http.Client.Timeout] sets too;
//   - that follows MaxRetries others;
//   - of a request whose body cannot be sent twice, because it has no GetBody.
//
// A context that ends during a wait ends the request with the context's error.
// A server cannot make a wait longer than it says by sending the denial slowly:
// Transport closes the body when the wait is over, or after a second if that is
// later, even if a Read is under way.
//
// Transport does not act on what an admitted response says is left, and a denial
// holds back no other requests: limits are per user or route, and a client cannot
// tell which.
//
// Transport does not change requests. It is safe for concurrent use; its fields
// must not change once it is in use.
type Transport struct {
	// Base sends the requests; nil means [http.DefaultTransport].
	Base http.RoundTripper

	// MaxWait is the longest wait that a denial may ask for; 0 means a minute.
	// Jitter comes on top.
	MaxWait time.Duration

	// MaxRetries is how often a request is sent again; 0 means 3, negative never.
	MaxRetries int

	// Jitter is the maximum random fraction added to each wait, so that clients
	// denied together do not return together; 0 means 0.1, negative none. It
	// is smaller where the deadline of the request is near.
	Jitter float64
}

// RoundTrip sends a request, and again when a denial said it may.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	maxRetries := cmp.Or(t.MaxRetries, 3)
	resp, err := t.base().RoundTrip(req)
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
		resp, err = t.base().RoundTrip(next)
	}
	return resp, err
}

// CloseIdleConnections closes those of Base, for [http.Client.CloseIdleConnections].
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

// wait returns how long to wait before the request is sent again; false if it is
// not to be. Only what the server asks for decides that, not the jitter.
func (t *Transport) wait(ctx context.Context, resp *http.Response) (time.Duration, bool) {
	wait, ok := RetryAfter(resp)
	if !ok || wait > cmp.Or(t.MaxWait, time.Minute) {
		return 0, false
	}
	jitter := cmp.Or(t.Jitter, 0.1) * rand.Float64() * float64(wait) //nolint:gosec // spreads load, keeps no secret
	room := math.MaxInt64 - wait
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline) - wait
		if left <= 0 {
			return 0, false
		}
		room = min(room, left/2) // the other half is for the request
	}
	if jitter >= float64(room) {
		return wait + room, true
	}
	return wait + max(0, time.Duration(jitter)), true
}

// repeatable reports whether a request that was answered with this status may be
// sent again, and can be.
func repeatable(req *http.Request, status int) bool {
	switch status {
	case http.StatusTooManyRequests:
	case http.StatusServiceUnavailable:
		if !idempotent(req) {
			return false
		}
	default:
		return false
	}
	return req.Body == nil || req.Body == http.NoBody || req.GetBody != nil
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

// discard reads a short body to its end, so that the connection can be used
// again, and closes it. If the server keeps it waiting, it closes the body after
// timeout, which ends the Read. That does not hold for a body that net/http
// decompresses: its Close waits for the first Read. Such a body is not read.
func discard(ctx context.Context, resp *http.Response, timeout time.Duration) {
	if !resp.Uncompressed {
		reading, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		stop := context.AfterFunc(reading, func() { _ = resp.Body.Close() })
		_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // closing the connection is cheaper than reading more
		if !stop() {
			return
		}
	}
	_ = resp.Body.Close()
}

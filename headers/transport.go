package headers

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"
)

// A Transport is an [http.RoundTripper] that makes a client obey rate limits:
// it waits as long as a denial says ([RetryAfter]), and sends the request again. The
// zero value is ready to use:
//
//	client := &http.Client{Transport: new(headers.Transport)}
//
// A request is sent again after a 429, whatever its method, since what was
// denied was not processed; and after a 503, if it is idempotent by its method
// (GET, HEAD, OPTIONS, TRACE, PUT, DELETE) or has an Idempotency-Key. Every other
// response is returned as it is, and so is a denial
//
//   - that does not say how long to wait;
//   - whose wait is longer than MaxWait, or would not end before the deadline of
//     the request's context ([http.Client.Timeout] is one too);
//   - that follows MaxRetries others;
//   - of a request whose body cannot be sent twice, because it has no GetBody.
//
// A context that ends during a wait ends the request with the context's error.
//
// What an admitted response says is left is not acted on, and one denial does
// not hold back other requests: limits are per user or route, which a client
// cannot tell apart.
//
// A Transport starts no goroutines and does not change requests. It is safe for
// concurrent use; its fields must not change once it is in use.
type Transport struct {
	// Base sends the requests; nil means [http.DefaultTransport].
	Base http.RoundTripper

	// MaxWait is the longest that a denial may ask for; 0 means a minute.
	MaxWait time.Duration

	// MaxRetries is how often one request is sent again at most; 0 means 3, and
	// a negative number never.
	MaxRetries int

	// Jitter is the share of a wait by which it is made longer at most, by
	// chance, so that clients denied together do not return together; 0 means
	// 0.1, and a negative number none. A deadline leaves less room for it.
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
		timer := time.NewTimer(wait) // reading the rest of the denial is part of the wait
		discard(resp.Body)
		select {
		case <-timer.C:
		case <-req.Context().Done():
			timer.Stop()
			return nil, context.Cause(req.Context()) // as http.Transport does
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

// wait is how long to wait before the request is sent again, and false if it is
// not to be. What the server asks for decides that, without the jitter, so that
// chance does not.
func (t *Transport) wait(ctx context.Context, resp *http.Response) (time.Duration, bool) {
	wait, ok := RetryAfter(resp)
	if !ok || wait > cmp.Or(t.MaxWait, time.Minute) {
		return 0, false
	}
	jitter := cmp.Or(t.Jitter, 0.1) * rand.Float64() * float64(wait) //nolint:gosec // spreads load, keeps no secret
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline) - wait
		if left <= 0 {
			return 0, false
		}
		jitter = min(jitter, float64(left/2)) // the other half is for the request
	}
	return wait + max(0, time.Duration(jitter)), true
}

// repeatable reports whether a request that was answered with this status may,
// and can, be sent again.
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

// discard reads a short body to its end, so that the connection can be used
// again, and closes it. Closing the connection is cheaper than reading more.
func discard(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, 64<<10) // if that fails, nobody misses it
	_ = body.Close()
}

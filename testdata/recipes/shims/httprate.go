// Package shims has functions of other limiters over this library, for programs that keep
// their call sites while they migrate.
package shims

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/go-chi/httprate"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// An Option changes what LimitBy tells clients.
type Option func(*answers)

type answers struct {
	denied http.HandlerFunc
	fields httprate.ResponseHeaders
}

// WithLimitHandler responds to denied requests.
func WithLimitHandler(h http.HandlerFunc) Option { return func(a *answers) { a.denied = h } }

// WithResponseHeaders renames the header fields; "" leaves one out.
func WithResponseHeaders(f httprate.ResponseHeaders) Option { return func(a *answers) { a.fields = f } }

type (
	requestLimit struct{}
	increment    struct{}
)

// WithRequestLimit sets the limit of one request.
func WithRequestLimit(ctx context.Context, n int) context.Context {
	return context.WithValue(ctx, requestLimit{}, n)
}

// WithIncrement sets what one request costs; 0 is free.
func WithIncrement(ctx context.Context, n int) context.Context {
	return context.WithValue(ctx, increment{}, n)
}

// LimitBy limits the requests with one key, as httprate's function does.
func LimitBy(requests int, window time.Duration, key keyfunc.Key, options ...Option) func(http.Handler) http.Handler {
	a := &answers{fields: httprate.ResponseHeaders{
		Limit: "X-RateLimit-Limit", Remaining: "X-RateLimit-Remaining", Increment: "X-RateLimit-Increment", Reset: "X-RateLimit-Reset", RetryAfter: "Retry-After",
	}}
	for _, option := range options {
		option(a)
	}
	limit := func(n int) ratelimit.Limit {
		return ratelimit.Limit{Rate: int64(n), Period: window, Algorithm: algorithms.SlidingWindow}
	}
	m, err := ratelimit.New(ratelimit.Config{Headers: a.set, Denied: a.deny, Rules: []ratelimit.Rule{{
		Name: "httprate", Key: key, Limit: limit(requests),
		LimitsFor: func(r *http.Request) []ratelimit.Limit {
			if n, _ := r.Context().Value(requestLimit{}).(int); n > 0 {
				return []ratelimit.Limit{limit(n)}
			}
			return nil
		},
		CostFor: func(r *http.Request) int64 {
			if n, ok := r.Context().Value(increment{}).(int); ok {
				return int64(n)
			}
			return 1
		},
	}}})
	if err != nil {
		panic(err) // LimitBy returns no error
	}
	return m.Handler
}

func (a *answers) set(h http.Header, d ratelimit.Decision) {
	ours := http.Header{}
	headers.XRateLimit(ours, d)
	rename(h, a.fields.Limit, ours.Get("X-RateLimit-Limit"))
	rename(h, a.fields.Remaining, ours.Get("X-RateLimit-Remaining"))
	rename(h, a.fields.Reset, ours.Get("X-RateLimit-Reset"))
	if result, _ := d.Result("httprate"); result.Check.Cost > 1 {
		rename(h, a.fields.Increment, strconv.FormatInt(result.Check.Cost, 10))
	}
}

func (a *answers) deny(w http.ResponseWriter, r *http.Request, d ratelimit.Decision) {
	wait := w.Header().Get("Retry-After")
	w.Header().Del("Retry-After")
	rename(w.Header(), a.fields.RetryAfter, wait)
	if a.denied != nil {
		a.denied(w, r)
		return
	}
	http.Error(w, http.StatusText(headers.Status(d)), headers.Status(d))
}

func rename(h http.Header, name, value string) {
	if name != "" && value != "" {
		h.Set(name, value)
	}
}

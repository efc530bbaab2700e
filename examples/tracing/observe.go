// Package tracing records rate limit decisions in a request's OpenTelemetry span, and
// exports the limiter's metrics. Copy it: the module does not depend on OpenTelemetry.
//
//	limit, err := ratelimit.New(ratelimit.Config{…, Observe: tracing.Observe})
//	handler := otelhttp.NewHandler(limit.Handler(mux), "server")
//
// The handler that starts the span must be in front of the limits.
package tracing

import (
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed75154129/ratelimit/algorithms"
)

// Observe is a Config.Observe. It sets on the span:
//
//	ratelimit.allowed      whether the request passed
//	ratelimit.rule         the rule that denied it for longest, or else the tightest one
//	ratelimit.source       the source of that rule's decision: redis, memory, deny_cache, fallback, fail_open, fail_closed
//	ratelimit.remaining    units left under that rule; absent if it could not be counted
//	ratelimit.retry_after  seconds, if it was denied and may pass later
//	ratelimit.delay        seconds that it waits in a leaky_bucket
//
// and adds an event "ratelimit.denied" for each rule that was over, shadow rules
// included, and "ratelimit.fallback" for each that its store did not decide.
// Keys are left out: traces go to more places than addresses should.
//
// A denial is no error of the server, so the span's status stays unset.
func Observe(r *http.Request, d algorithms.Decision) {
	span := trace.SpanFromContext(r.Context())
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.Bool("ratelimit.allowed", d.Allowed))
	if shown, ok := decisive(d); ok {
		span.SetAttributes(describe(shown)...)
	}
	if delay := d.Delay(); delay > 0 {
		span.SetAttributes(attribute.Float64("ratelimit.delay", delay.Seconds()))
	}
	for _, result := range d.Results {
		if !result.HasRoom && result.Source != algorithms.SourceNone {
			shadow := attribute.Bool("ratelimit.shadow", result.Check.Shadow)
			span.AddEvent("ratelimit.denied", trace.WithAttributes(append(describe(result), shadow)...))
		}
		switch result.Source {
		case algorithms.SourceFallback, algorithms.SourceFailOpen, algorithms.SourceFailClosed:
			span.AddEvent("ratelimit.fallback", trace.WithAttributes(describe(result)...))
		}
	}
}

// decisive is the result to name if there is room for one.
func decisive(d algorithms.Decision) (shown algorithms.Result, ok bool) {
	if d.Allowed {
		if tightest, ok := d.Tightest(); ok {
			return *tightest, true
		}
	}
	for _, result := range d.Results {
		if (result.Denies() || d.Allowed && !result.Check.Shadow) && (!ok || result.RetryAfter > shown.RetryAfter) {
			shown, ok = result, true
		}
	}
	return shown, ok
}

func describe(r algorithms.Result) []attribute.KeyValue {
	attributes := []attribute.KeyValue{
		attribute.String("ratelimit.rule", r.Check.Rule),
		attribute.String("ratelimit.source", r.Source.String()),
	}
	if r.Err == nil {
		attributes = append(attributes, attribute.Int64("ratelimit.remaining", r.Remaining))
	}
	if r.RetryAfter > 0 && r.RetryAfter != algorithms.Never {
		attributes = append(attributes, attribute.Float64("ratelimit.retry_after", r.RetryAfter.Seconds()))
	}
	return attributes
}

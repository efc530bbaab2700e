package tracing_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/examples/tracing"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// away is a store that answers nothing.
type away struct{ algorithms.Memory }

func (*away) Take(context.Context, ...algorithms.Check) (ratelimit.Decision, error) {
	return ratelimit.Decision{}, errors.New("nobody there")
}

// without is a Guard that has to do without its store.
func without(t *testing.T) *failmode.Guard {
	guard := &failmode.Guard{Limiter: new(away), Logger: slog.New(slog.DiscardHandler)}
	t.Cleanup(func() { _ = guard.Close() })
	return guard
}

// spanOf sends requests through otelhttp and the limits, and returns the last
// one's span.
func spanOf(t *testing.T, requests int, c ratelimit.Config) tracetest.SpanStub {
	t.Helper()
	c.Observe = tracing.Observe
	limit, err := ratelimit.New(c)
	if err != nil {
		t.Fatal(err)
	}
	exporter := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(exporter))
	t.Cleanup(func() {
		if err := provider.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	served := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	handler := otelhttp.NewHandler(limit.Handler(served), "server", otelhttp.WithTracerProvider(provider))
	for range requests {
		r := httptest.NewRequest(http.MethodGet, "/search", nil)
		r.RemoteAddr = "203.0.113.9:1234"
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	spans := exporter.GetSpans()
	if len(spans) != requests {
		t.Fatalf("%d spans of %d requests", len(spans), requests)
	}
	return spans[requests-1]
}

// ours are the attributes that Observe set.
func ours(attributes []attribute.KeyValue) map[string]any {
	set := map[string]any{}
	for _, kv := range attributes {
		if name, ok := strings.CutPrefix(string(kv.Key), "ratelimit."); ok {
			set[name] = kv.Value.AsInterface()
		}
	}
	return set
}

func wantAttributes(t *testing.T, attributes []attribute.KeyValue, want map[string]any) {
	t.Helper()
	got := ours(attributes)
	for name, value := range want {
		if got[name] != value {
			t.Errorf("ratelimit.%s = %v, want %v", name, got[name], value)
		}
	}
	for name, value := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("ratelimit.%s = %v, want none", name, value)
		}
	}
}

func wantEvents(t *testing.T, span tracetest.SpanStub, names ...string) {
	t.Helper()
	var got []string
	for _, event := range span.Events {
		if strings.HasPrefix(event.Name, "ratelimit.") {
			got = append(got, event.Name+" "+ours(event.Attributes)["rule"].(string))
		}
	}
	if strings.Join(got, ", ") != strings.Join(names, ", ") {
		t.Errorf("events %q, want %q", got, names)
	}
}

func rule(name string, rate int64) ratelimit.Rule {
	return ratelimit.Rule{
		Name: name, Key: keyfunc.IP,
		Limit: ratelimit.Limit{Rate: rate, Period: 24 * time.Hour, Algorithm: algorithms.GCRA},
	}
}

func TestAllowed(t *testing.T) {
	span := spanOf(t, 3, ratelimit.Config{
		Limiter: new(algorithms.Memory),
		Rules:   []ratelimit.Rule{rule("wide", 200), rule("tight", 5)},
	})
	wantAttributes(t, span.Attributes, map[string]any{
		"allowed": true, "rule": "tight", "source": "memory", "remaining": int64(2),
	})
	wantEvents(t, span)
}

func TestDenied(t *testing.T) {
	span := spanOf(t, 3, ratelimit.Config{
		Limiter: new(algorithms.Memory),
		Rules:   []ratelimit.Rule{rule("wide", 200), rule("tight", 2)},
	})
	retry, ok := ours(span.Attributes)["retry_after"].(float64)
	if day := (24 * time.Hour).Seconds(); !ok || retry <= day/2-60 || retry > day/2 {
		t.Errorf("ratelimit.retry_after = %v s, want half a day", retry)
	}
	wantAttributes(t, span.Attributes, map[string]any{
		"allowed": false, "rule": "tight", "source": "memory", "remaining": int64(0), "retry_after": retry,
	})
	wantEvents(t, span, "ratelimit.denied tight")
	if span.Status.Code == codes.Error {
		t.Error("a denial is shown as an error of the server")
	}
}

func TestOtherThanTheUsual(t *testing.T) {
	open, closed, local := rule("open", 9), rule("closed", 9), rule("local", 9)
	open.Fail, closed.Fail = ratelimit.FailOpen, ratelimit.FailClosed
	queue := rule("queue", 1000)
	queue.Limit = ratelimit.Limit{Rate: 100, Period: time.Second, Burst: 9, Algorithm: algorithms.LeakyBucket}

	t.Run("everything fails open", func(t *testing.T) {
		span := spanOf(t, 1, ratelimit.Config{Limiter: without(t), Rules: []ratelimit.Rule{open}})
		wantAttributes(t, span.Attributes, map[string]any{"allowed": true, "rule": "open", "source": "fail_open"})
		wantEvents(t, span, "ratelimit.fallback open")
	})
	t.Run("one rule fails closed", func(t *testing.T) {
		span := spanOf(t, 1, ratelimit.Config{Limiter: without(t), Rules: []ratelimit.Rule{local, open, closed}})
		wantAttributes(t, span.Attributes, map[string]any{
			"allowed": false, "rule": "closed", "source": "fail_closed", "retry_after": 1.0,
		})
		wantEvents(t, span, "ratelimit.fallback local", "ratelimit.fallback open",
			"ratelimit.denied closed", "ratelimit.fallback closed")
	})
	t.Run("a place in a queue", func(t *testing.T) {
		span := spanOf(t, 2, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{queue}})
		if delay, ok := ours(span.Attributes)["delay"].(float64); !ok || delay <= 0 || delay > 0.01 {
			t.Errorf("ratelimit.delay = %v s, want up to 10 ms", ours(span.Attributes)["delay"])
		}
	})
}

// Who is limited is nobody's business who reads traces.
func TestNoKeys(t *testing.T) {
	const secret = "key-of-alice"
	r := rule("per-key", 1)
	r.Key = keyfunc.Func(func(*http.Request) (string, error) { return secret, nil })
	span := spanOf(t, 2, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{r}})
	attributes := span.Attributes
	for _, event := range span.Events {
		attributes = append(attributes, event.Attributes...)
	}
	for _, kv := range attributes {
		if strings.Contains(kv.Value.String(), secret) {
			t.Errorf("%s = %q", kv.Key, kv.Value.String())
		}
	}
	wantEvents(t, span, "ratelimit.denied per-key")
}

// A shadow denial shows, and does not show as a denial of the request.
func TestShadow(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(exporter))
	ctx, span := provider.Tracer("test").Start(t.Context(), "request")
	check := algorithms.Check{Rule: "trial", Shadow: true}
	tracing.Observe(httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil), ratelimit.Decision{
		Allowed: true,
		Results: []algorithms.Result{{Check: check, Source: algorithms.SourceRedis, RetryAfter: algorithms.Never}},
	})
	span.End()
	stub := exporter.GetSpans()[0]
	wantAttributes(t, stub.Attributes, map[string]any{"allowed": true})
	wantEvents(t, stub, "ratelimit.denied trial")
	wantAttributes(t, stub.Events[0].Attributes, map[string]any{
		"rule": "trial", "source": "redis", "remaining": int64(0), "shadow": true,
	})
}

// What is not recorded costs nothing.
func TestNotRecording(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	d := ratelimit.Decision{Results: make([]algorithms.Result, 3)}
	if allocs := testing.AllocsPerRun(100, func() { tracing.Observe(r, d) }); allocs > 0 {
		t.Errorf("%v allocations", allocs)
	}
}

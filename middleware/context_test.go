package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// summary is a decision's results: the rule and what it has left.
func summary(ctx context.Context) string {
	d, ok := ratelimit.FromContext(ctx)
	if !ok {
		return "none"
	}
	text := []string{fmt.Sprint(d.Allowed)}
	for _, r := range d.Results {
		text = append(text, fmt.Sprint(r.Check.Rule, " ", r.Remaining))
	}
	return strings.Join(text, ", ")
}

// Chained middlewares are found together, the outermost first; each handler in
// between finds what was decided so far.
func TestFromContextFindsAllMiddlewares(t *testing.T) {
	var seen []string
	messages := inMemory(t, perHour("messages", 100)) // whose Take leaves the context as it is
	see := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := messages.Take(r); err != nil {
				t.Error(err)
			}
			seen = append(seen, summary(r.Context()))
			next.ServeHTTP(w, r)
		})
	}
	outer, middle, inner := inMemory(t, perHour("outer", 10), perHour("post", 10, "POST /")), inMemory(t, perHour("b", 10, "/b")), inMemory(t, perHour("inner", 10))
	h := outer.Handler(see(middle.Handler(see(inner.Handler(see(ok))))))
	if got := summary(t.Context()); got != "none" {
		t.Errorf("without a middleware: %s", got)
	}
	for _, c := range []struct{ request, want string }{
		{"GET /a", "true, outer 9; true, outer 9; true, outer 9, inner 9"},
		{"GET /b", "true, outer 8; true, outer 8, b 9; true, outer 8, b 9, inner 8"},
		{"POST /b", "true, outer 7, post 9; true, outer 7, post 9, b 8; true, outer 7, post 9, b 8, inner 7"},
	} {
		seen = nil
		serve(h, c.request)
		if got := strings.Join(seen, "; "); got != c.want {
			t.Errorf("%s: %s, want %s", c.request, got, c.want)
		}
	}
}

// Observe gets every decision. Denied gets a Retry-After, whatever Headers is, and finds the
// decision in its request's context, with those of the middlewares in front.
func TestDeniedFindsTheDecision(t *testing.T) {
	var got string
	var observed []bool
	inner := mustNew(t, ratelimit.Config{
		Limiter: new(algorithms.Memory),
		Rules:   []ratelimit.Rule{perHour("inner", 1)},
		Headers: headers.None,
		Observe: func(_ *http.Request, d algorithms.Decision) { observed = append(observed, d.Allowed) },
		Denied: func(w http.ResponseWriter, r *http.Request, d algorithms.Decision) {
			got = fmt.Sprint(summary(r.Context()), "; ", len(d.Results), "; retry after ", w.Header().Get("Retry-After") != "")
			w.WriteHeader(http.StatusTooManyRequests)
		},
	})
	h := inMemory(t, perHour("outer", 10)).Handler(inner.Handler(ok))
	times(2, h, "GET /")
	if want := "false, outer 8, inner 0; 1; retry after true"; got != want || fmt.Sprint(observed) != "[true false]" {
		t.Errorf("%s, want %s; observed %v", got, want, observed)
	}
}

// The context that handlers get behaves as one of package context does: it ends with
// its parent, has the parent's values, is no goroutine's business, and prints none of
// what handlers may change.
func TestTheContextIsAsOthers(t *testing.T) {
	type key struct{}
	parent, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
	defer cancel()
	m := inMemory(t, perHour("r", 10))
	m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		if got := ctx.Value(key{}); got != "value" {
			t.Errorf("the parent's value is %v", got)
		}
		if text := fmt.Sprint(ctx); !strings.HasSuffix(text, ".WithValue(ratelimit.decision)") || strings.Contains(text, "Results") {
			t.Errorf("prints as %s", text)
		}
		before := runtime.NumGoroutine()
		child, stop := context.WithCancel(ctx)
		defer stop()
		if after := runtime.NumGoroutine(); after > before {
			t.Error("a child starts a goroutine")
		}
		cancel()
		<-child.Done()
		if ctx.Err() == nil {
			t.Error("does not end with its parent")
		}
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(parent, http.MethodGet, "/", nil))
}

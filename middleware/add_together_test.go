package middleware_test

import (
	"context"
	"math"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// A slow limiter takes a millisecond for each decision.
type slow struct{ algorithms.Limiter }

func (l slow) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	time.Sleep(time.Millisecond)
	return l.Limiter.Take(ctx, checks...)
}

// An Add that asks for too much does not deny those that ask beside it.
func TestAddsBesideOneThatIsDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := mustNew(t, ratelimit.Config{Limiter: slow{new(algorithms.Memory)}, Rules: []ratelimit.Rule{perHour("units", 100)}}).
			Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				for i, units := range []int64{10, 1, 1000, 1} { // the first is under way while the others arrive
					go func() {
						if err := ratelimit.Add(r.Context(), "units", units); (err == nil) != (units < 1000) {
							t.Errorf("Add %d of %d units: %v", i, units, err)
						}
					}()
					synctest.Wait()
				}
				time.Sleep(time.Second)
			}))
		serve(h, "GET /")
		if got := serve(h, "GET /").Header().Get("X-RateLimit-Remaining"); got != "87" { // 12 and this request
			t.Errorf("%s left", got)
		}
	})
}

// The sum of a rule in shadow has no bound but that of its type.
func TestAddInShadowDoesNotOverflow(t *testing.T) {
	var got int64
	rule := perHour("units", 100)
	rule.Shadow = true
	h := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{rule},
		Settled: func(_ *http.Request, d algorithms.Decision) { got = d.Results[0].Charged }}).
		Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			for range 2 {
				if err := ratelimit.Add(r.Context(), "units", math.MaxInt64); err != nil {
					t.Error(err)
				}
			}
		}))
	serve(h, "GET /")
	if got <= 100 {
		t.Errorf("charged %d", got)
	}
}

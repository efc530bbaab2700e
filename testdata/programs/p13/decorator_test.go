package p13

import (
	"strings"
	"testing"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// Embedding is enough to be a limiter, and Unwrap to be known as what is wrapped.
func TestDecorators(t *testing.T) {
	guard := &failmode.Guard{Limiter: new(algorithms.Memory), Instances: 1}
	defer guard.Close()
	rules := []ratelimit.Rule{{Name: "r", Key: keyfunc.Everyone, Limit: algorithms.PerMinute(1)}}
	for _, l := range []algorithms.Limiter{audit{guard}, audit{audit{guard}}} {
		if _, err := ratelimit.New(ratelimit.Config{Limiter: l, Rules: rules}); err != nil {
			t.Error(err)
		}
		check := algorithms.Check{Rule: "r", Limit: algorithms.PerMinute(1)}
		if d, err := l.Take(t.Context(), check); err != nil || !d.Allowed {
			t.Error(d, err)
		}
		if err := l.Reset(t.Context(), check); err != nil {
			t.Error(err)
		}
	}
	if _, err := ratelimit.New(ratelimit.Config{Limiter: audit{new(algorithms.Redis)}, Rules: rules}); err == nil || !strings.Contains(err.Error(), "a bare *algorithms.Redis has no fail modes") {
		t.Errorf("a bare Redis in a decorator: %v", err)
	}
}

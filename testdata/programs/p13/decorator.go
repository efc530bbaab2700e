// A decorator and a store of the user's own, to see that embedding is enough.
package p13

import (
	"context"
	"log/slog"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
)

type audit struct{ algorithms.Limiter }

func (a audit) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	d, err := a.Limiter.Take(ctx, checks...)
	slog.InfoContext(ctx, "decision", "allowed", d.Allowed)
	return d, err
}

func (a audit) Unwrap() algorithms.Limiter { return a.Limiter }

type dynamo struct{ algorithms.Memory } // Peek, Settle, Ban and Reset until it has its own

func (d *dynamo) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	return algorithms.Decision{}, nil
}

var _ = []algorithms.Limiter{audit{&failmode.Guard{Limiter: &dynamo{}}}}

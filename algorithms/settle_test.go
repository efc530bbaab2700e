package algorithms

import (
	"context"
	"time"
)

// chargesOf makes each of the results cost this much.
func chargesOf(cost int64, charged ...Result) []Charge {
	charges := make([]Charge, len(charged))
	for i := range charged {
		charges[i] = Charge{Result: charged[i], Cost: cost}
	}
	return charges
}

func settleAll(ctx context.Context, l Limiter, cost int64, charged ...Result) error {
	_, err := l.Settle(ctx, chargesOf(cost, charged...)...)
	return err
}

func perDay(rate int64) Limit { return Limit{Rate: rate, Period: 24 * time.Hour} }

package docs

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/middleware/metrics"
)

func measured(guard algorithms.Limiter, rules []ratelimit.Rule) error {
	limit, err := ratelimit.New(ratelimit.Config{Limiter: guard, Rules: rules})
	if err != nil {
		return err
	}
	return metrics.Register(prometheus.DefaultRegisterer, limit)
}

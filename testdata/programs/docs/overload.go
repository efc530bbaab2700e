package docs

import (
	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/middleware/shed"
)

func sheds(guard *failmode.Guard, rules []ratelimit.Rule) (*ratelimit.Middleware, error) {
	limit, err := ratelimit.New(ratelimit.Config{
		Limiter: guard, Rules: rules, Skip: []string{"GET /healthz"},
		Shedder: &shed.Shedder{Shadow: true},
	})
	return limit, err
}

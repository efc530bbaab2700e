package recipes

import (
	"net/http"

	"github.com/seed75154129/ratelimit"
)

// retriable charges a plan once for all attempts with one Idempotency-Key.
func retriable(perIP, plan *ratelimit.Middleware, replay func(http.Handler) http.Handler, api http.Handler) http.Handler {
	return perIP.Handler(replay(plan.Handler(api)))
}

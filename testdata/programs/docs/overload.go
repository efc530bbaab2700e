package docs

import (
	"net/http"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/middleware/shed"
)

func sheds(limit *ratelimit.Middleware, app http.Handler) http.Handler {
	shedder := &shed.Shedder{Shadow: true}
	return shedder.Handler(limit.Handler(app))
}

package docs

import (
	"bytes"
	"io"
	"net/http"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/middleware/shed"
)

func sheds(limit *ratelimit.Middleware, app http.Handler) http.Handler {
	shedder := &shed.Shedder{Shadow: true}
	return shedder.Handler(limit.Handler(app))
}

// whole reads the body, of up to 1 MB, before next is called.
func whole(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, "the body is too large or not complete", http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

package admin_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/admin"
)

// A program asks what a client has left. A browser gets a page.
func ExampleHandler() {
	limit, err := ratelimit.New(ratelimit.Config{
		Limiter: new(algorithms.Memory),
		Rules:   []ratelimit.Rule{{Name: "per-ip", Key: keyfunc.IP, Limit: algorithms.PerMinute(100)}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	private := http.NewServeMux() // for a listener that clients cannot reach
	private.Handle("/ratelimit/", admin.Handler(limit))

	w := httptest.NewRecorder()
	private.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/ratelimit/?rule=per-ip&value=2001:db8::1", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.Contains(line, "limit") || strings.Contains(line, "remaining") {
			fmt.Println(strings.TrimSpace(line))
		}
	}
	// Output:
	// "limit": "100/1m sliding_window",
	// "remaining": 100,
}

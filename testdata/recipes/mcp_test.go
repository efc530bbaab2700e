package recipes

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

func TestToolsHaveLimitsOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		app := made(t)(tools(new(algorithms.Memory))).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		call := func(body string) func() *http.Request {
			return func() *http.Request {
				r := httptest.NewRequest("POST", "/mcp", strings.NewReader(body))
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Authorization", "Bearer s3cret")
				return r
			}
		}
		query := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"run_query"}}`
		wants(t, "a listed tool", statuses(app, 12, call(query)), 200, 10, 429, 2)
		wants(t, "another one", statuses(app, 60, call(`{"jsonrpc":"2.0","id":7,"params":{"name":"search"}}`)), 200, 60)
		wants(t, "made up", statuses(app, 20, call(`{"jsonrpc":"2.0","id":7,"params":{"name":"a"}}`)), 200, 20)
		wants(t, "a batch", statuses(app, 20, call(`[{"jsonrpc":"2.0","id":7,"params":{"name":"run_query"}}]`)), 200, 10, 429, 10)
		w := httptest.NewRecorder()
		app.ServeHTTP(w, call(query)())
		if got := strings.TrimSpace(w.Body.String()); got != `{"error":{"code":-32000,"data":{"retryAfter":66},"message":"too many calls of this tool"},"id":7,"jsonrpc":"2.0"}` || w.Header().Get("Retry-After") != "66" {
			t.Errorf("%s %v", got, w.Header())
		}
		for range 9 { // the day's other 90
			time.Sleep(2 * time.Minute)
			wants(t, "the day", statuses(app, 10, call(query)), 200, 10)
		}
		time.Sleep(2 * time.Minute)
		w = httptest.NewRecorder()
		app.ServeHTTP(w, call(query)())
		if got := w.Body.String(); !strings.Contains(got, `"retryAfter":3600}`) || w.Header().Get("Retry-After") != "3600" {
			t.Errorf("a used-up day: %s %v", got, w.Header())
		}
	})
}

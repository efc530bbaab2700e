package p04

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// What is known afterwards is charged, to the rule it is about alone.
func TestCostsThatAreKnownAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := &failmode.Guard{Limiter: &algorithms.Redis{Client: limitertest.Redis(t), Namespace: "app", Budget: time.Second}}
		defer guard.Close()
		limit, err := limits(guard, keyfunc.IP)
		if err != nil {
			t.Fatal(err)
		}
		mux := http.NewServeMux()
		mux.HandleFunc("POST /graphql", graphql(func(*http.Request) ([]byte, int64) { return []byte("{}"), 1500 }))
		mux.HandleFunc("PUT /files/{name}", upload(io.Discard))
		mux.HandleFunc("POST /v1/chat", chat(func(_ http.ResponseWriter, r *http.Request) int64 {
			if r.URL.RawQuery == "panic" {
				panic(http.ErrAbortHandler)
			}
			return 96
		}))
		h := limit.Handler(mux)
		send := func(method, target string, body io.Reader) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			defer func() { _ = recover() }()
			h.ServeHTTP(w, httptest.NewRequest(method, target, body))
			return w
		}
		left := func(rule string) int64 {
			t.Helper()
			checks, err := limit.Checks(rule, "192.0.2.1")
			if err != nil {
				t.Fatal(err)
			}
			d, err := guard.Peek(t.Context(), checks...)
			if err != nil {
				t.Fatal(err)
			}
			return d.Results[0].Remaining
		}
		// A query of 1500 points goes 500 into debt, which takes 30 s, and the headers say so.
		if w := send("POST", "/graphql", nil); w.Code != 200 || w.Header().Get("X-RateLimit-Remaining") != "0" || left("graphql") != -500 || left("requests") != 599 {
			t.Errorf("%d %v, %d and %d left", w.Code, w.Header(), left("graphql"), left("requests"))
		}
		if w := send("POST", "/graphql", nil); w.Code != 429 || w.Header().Get("Retry-After") != "31" {
			t.Errorf("%d %v", w.Code, w.Header())
		}
		// An upload of unknown length is reserved 1 KiB and costs what came.
		send("PUT", "/files/a", struct{ io.Reader }{strings.NewReader(strings.Repeat("x", 5000))})
		if got := 1<<20 - left("upload-kib"); got != 5 {
			t.Errorf("an upload of 5000 bytes costs %d KiB", got)
		}
		// Tokens are reserved; a panic keeps them.
		send("POST", "/v1/chat", nil)
		send("POST", "/v1/chat?panic", nil)
		if got := 100_000 - left("llm-tokens"); got != 96+4096 {
			t.Errorf("two chats cost %d tokens", got)
		}
	})
}

package recipes

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// An mcpServer counts how often its tools run.
type mcpServer struct {
	http.Handler
	mu  sync.Mutex
	ran map[string]int
}

func newMCPServer(t *testing.T) *mcpServer {
	s := &mcpServer{ran: make(map[string]int)}
	server := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1"}, nil)
	for _, name := range []string{"run_query", "search"} {
		mcp.AddTool(server, &mcp.Tool{Name: name}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.ran[name]++
			return new(mcp.CallToolResult), nil, nil
		})
	}
	server.AddReceivingMiddleware(limitTools(limited(t, tools()...)))
	perIP := limited(t, ratelimit.Rule{Name: "per-ip", Key: keyfunc.IP, Limit: algorithms.PerMinute(600)})
	s.Handler = perIP.Handler(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true}))
	return s
}

func mcpRequest(body string) *http.Request {
	r := httptest.NewRequest("POST", "/mcp", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Authorization", "Bearer s3cret")
	return r
}

func toolCall(params string) string {
	return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":` + params + `}`
}

var runQuery = toolCall(`{"name":"run_query"}`)

func TestToolsHaveLimitsOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMCPServer(t)
		for i := range 20 {
			answer(s, mcpRequest(toolCall(`{"name":"search"}`)))
			if w := answer(s, mcpRequest(runQuery)); i > 9 && w.Body.String() != `{"jsonrpc":"2.0","id":7,"error":{"code":-32000,"message":"too many calls","data":{"retryAfter":66}}}` {
				t.Error(w.Body)
			}
		}
		if s.ran["search"] != 20 || s.ran["run_query"] != 10 {
			t.Errorf("%v", s.ran)
		}
		unknown := mcpRequest(runQuery)
		unknown.Header.Del("Authorization")
		if w := answer(s, unknown); !strings.Contains(w.Body.String(), "no API key") {
			t.Error(w.Body)
		}
	})
}

// However a call is spelled, the server runs a tool no more often than its limit allows.
func TestToolsCannotBeDisguised(t *testing.T) {
	with := func(change func(*http.Request)) *http.Request {
		r := mcpRequest(runQuery)
		change(r)
		return r
	}
	for name, c := range map[string]struct {
		request func() *http.Request
		runs    int
	}{
		"plain":            {func() *http.Request { return mcpRequest(runQuery) }, 10},
		"the name twice":   {func() *http.Request { return mcpRequest(toolCall(`{"name":"search","name":"run_query"}`)) }, 10},
		"params twice":     {func() *http.Request { return mcpRequest(toolCall(`{"name":"search"},"params":{"name":"run_query"}`)) }, 10},
		"NAME beside name": {func() *http.Request { return mcpRequest(toolCall(`{"NAME":"search","name":"run_query"}`)) }, 10},
		"method twice": {func() *http.Request {
			return mcpRequest(toolCall(`{"name":"run_query"},"method":"ping","method":"tools/call"`))
		}, 10},
		"an escape":       {func() *http.Request { return mcpRequest(toolCall(`{"name":"run\u005fquery"}`)) }, 10},
		"a long body":     {func() *http.Request { return mcpRequest(runQuery + strings.Repeat(" ", 300<<10)) }, 10},
		"a second value":  {func() *http.Request { return mcpRequest(runQuery + toolCall(`{"name":"search"}`)) }, 10},
		"a batch of one":  {func() *http.Request { return mcpRequest("[" + runQuery + "]") }, 10},
		"a query":         {func() *http.Request { return with(func(r *http.Request) { r.URL.RawQuery = "name=search" }) }, 10},
		"another header":  {func() *http.Request { return with(func(r *http.Request) { r.Header.Set("Mcp-Name", "search") }) }, 10},
		"no Content-Type": {func() *http.Request { return with(func(r *http.Request) { r.Header.Del("Content-Type") }) }, 0},
		"another type": {func() *http.Request {
			return with(func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") })
		}, 0},
		"another method":    {func() *http.Request { return with(func(r *http.Request) { r.Method = "PUT" }) }, 0},
		"another path":      {func() *http.Request { return mcpRequest(toolCall(`{"name":"search/../run_query"}`)) }, 0},
		"a path to nowhere": {func() *http.Request { return mcpRequest(toolCall(`{"name":"../../run_query"}`)) }, 0},
		"a batch of 50": {func() *http.Request {
			var calls []string
			for i := range 50 {
				calls = append(calls, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"run_query"}}`, i))
			}
			return mcpRequest("[" + strings.Join(calls, ",") + "]")
		}, 10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newMCPServer(t)
				for range 30 {
					s.ServeHTTP(httptest.NewRecorder(), c.request())
				}
				if s.ran["run_query"] != c.runs {
					t.Errorf("run_query ran %d times in a minute, want %d", s.ran["run_query"], c.runs)
				}
				for range 23 { // to the day's last hour
					time.Sleep(time.Hour)
					for range 12 {
						s.ServeHTTP(httptest.NewRecorder(), c.request())
					}
				}
				if s.ran["run_query"] != 10*c.runs {
					t.Errorf("run_query ran %d times in a day, want %d", s.ran["run_query"], 10*c.runs)
				}
			})
		})
	}
}

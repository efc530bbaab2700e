package recipes

import (
	"context"
	"net/http"
	"net/url"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// tools are the rules of an MCP server: for each API key, run_query has a limit of its own.
func tools() []ratelimit.Rule {
	key := keyfunc.Required(keyfunc.APIKey("Authorization"), http.StatusUnauthorized)
	return []ratelimit.Rule{
		{Name: "calls", Key: key, Limit: ratelimit.PerMinute(60)}, // of all tools together
		{Name: "run_query", Match: []string{"/tools/run_query"}, Key: key, Limits: []ratelimit.Limit{ratelimit.PerMinute(10), ratelimit.PerDay(100, "UTC")}},
	}
}

// limitTools charges each call of a tool: server.AddReceivingMiddleware(limitTools(limit)).
// To the rules, a call is a POST to /tools/ and the tool's name.
func limitTools(limit *ratelimit.Middleware) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			call, ok := req.(*mcp.CallToolRequest)
			if !ok {
				return next(ctx, method, req)
			}
			r := (&http.Request{Method: http.MethodPost, URL: &url.URL{Path: "/tools/" + call.Params.Name}}).WithContext(ctx)
			if call.Extra != nil {
				r.Header = call.Extra.Header
			}
			d, err := limit.Take(r)
			switch {
			case err != nil:
				return nil, &jsonrpc.Error{Code: -32000, Message: "no API key"}
			case !d.Allowed:
				denial, fields := &jsonrpc.Error{Code: -32000, Message: "too many calls"}, http.Header{}
				if headers.SetRetryAfter(fields, d); len(fields) > 0 {
					denial.Data = []byte(`{"retryAfter":` + fields.Get("Retry-After") + `}`)
				}
				return nil, denial
			}
			return next(ctx, method, req)
		}
	}
}

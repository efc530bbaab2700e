package recipes

import (
	"encoding/json"
	"net/http"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// tools limits an MCP server: each listed tool has its own limit, for each API key.
func tools(limiter algorithms.Limiter) (*ratelimit.Middleware, error) {
	return ratelimit.New(ratelimit.Config{Limiter: limiter, Denied: refuseCall, Rules: []ratelimit.Rule{
		{Name: "per-ip", Key: keyfunc.IP, Limit: algorithms.PerMinute(600)},
		{
			Name: "tools", Match: []string{"POST /mcp"}, Key: keyfunc.Required(keyfunc.APIKey("Authorization"), http.StatusUnauthorized),
			TierBy: keyfunc.BodyJSON("/params/name", 256<<10),
			Limit:  algorithms.PerMinute(30), // unlisted tools, other calls and batches share this limit
			Tiers: map[string][]algorithms.Limit{
				"search":    {algorithms.PerMinute(60)},
				"run_query": {algorithms.PerMinute(10), algorithms.PerDay(100, "UTC")},
			},
		},
	}})
}

// refuseCall writes a denial as a JSON-RPC error.
func refuseCall(w http.ResponseWriter, r *http.Request, _ algorithms.Decision) {
	var call struct {
		ID json.RawMessage `json:"id"`
	}
	_ = json.NewDecoder(http.MaxBytesReader(w, r.Body, 256<<10)).Decode(&call) // for a batch, the id is null
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusTooManyRequests)
	refusal := map[string]any{"code": -32000, "message": "too many calls of this tool"}
	if seconds := w.Header().Get("Retry-After"); seconds != "" {
		refusal["data"] = map[string]any{"retryAfter": json.Number(seconds)}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": call.ID, "error": refusal})
}

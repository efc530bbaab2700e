package recipes

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/keyfunc"
	"github.com/seed75154129/ratelimit/middleware/shed"
)

func shop(limit *ratelimit.Middleware, app http.Handler, planOf func(context.Context) string) http.Handler {
	shedder := &shed.Shedder{
		Min: 16, Max: 16, // twice the database connections
		Priority: func(r *http.Request) shed.Priority {
			switch plan := planOf(r.Context()); { // from the session, never from a header
			case plan == "": // nobody is logged in
				return shed.Low
			case r.URL.Path == "/checkout":
				return shed.Critical
			case plan == "pro":
				return shed.High
			}
			return shed.Medium
		},
	}
	mux := http.NewServeMux()
	mux.Handle("/", shedder.Handler(limit.Handler(app)))
	mux.Handle("GET /healthz", app) // needs no place
	return mux
}

// A pace is the part of the limit that batch requests get. It falls while the server
// is full, then rises slowly.
type pace struct {
	mu    sync.Mutex
	share float64
	next  time.Time
}

func (p *pace) at(load float64) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); !now.Before(p.next) {
		if load >= 1 {
			p.share *= 0.7
		} else {
			p.share += 0.05
		}
		p.share, p.next = max(0.1, min(1, p.share)), now.Add(10*time.Second)
	}
	return p.share
}

func batches(user keyfunc.Key, shedder *shed.Shedder) ratelimit.Rule {
	pace := &pace{share: 1}
	return ratelimit.Rule{
		Name: "batch", Match: []string{"/batch/"}, Key: user, Limit: ratelimit.PerMinute(600),
		LimitsFor: func(*http.Request) []ratelimit.Limit {
			return []ratelimit.Limit{ratelimit.PerMinute(int64(600 * pace.at(shedder.Load())))}
		},
	}
}

package recipes

import (
	"io"
	"iter"
	"log"
	"net/http"
	"strconv"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

func expensive(user keyfunc.Key) []ratelimit.Rule {
	return []ratelimit.Rule{
		{Name: "api", Key: user, Limit: algorithms.PerMinute(100), Costs: map[string]int64{"POST /reports": 20, "GET /search": 5}},
		{Name: "reports", Match: []string{"POST /reports"}, Key: keyfunc.Everyone, Limit: algorithms.PerSecond(2), Hidden: true}, // what the database can take
	}
}

func graphQL(execute func(*http.Request) (response []byte, points int64)) (ratelimit.Rule, http.Handler) {
	rule := ratelimit.Rule{
		Name: "graphql", Match: []string{"POST /graphql"}, Key: keyfunc.IP,
		Limit: algorithms.Limit{Rate: 1000, Period: time.Minute, Algorithm: algorithms.TokenBucket}, // a bucket: one query may cost more than is left
	}
	return rule, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		response, points := execute(r)
		if err := ratelimit.Settle(r.Context(), "graphql", points); err != nil {
			log.Print(err) // the charge stays at 1
		}
		_, _ = w.Write(response) // after Settle, so that the headers follow
	})
}

// A chunk is a part of an answer. The last one says how many tokens it has used.
type chunk struct {
	text          string
	input, output int64
}

func completions(tenant keyfunc.Key, upstream func(*http.Request) iter.Seq[chunk]) ([]ratelimit.Rule, http.Handler) {
	maxTokens := func(r *http.Request) int64 {
		n, err := strconv.ParseInt(r.URL.Query().Get("max_tokens"), 10, 64)
		if err != nil || n < 1 {
			return 4096
		}
		return n
	}
	prompt := func(r *http.Request) int64 { return r.ContentLength / 4 }
	match, limit := []string{"POST /completions"}, algorithms.Limit{Rate: 60_000, Period: time.Minute, Burst: 20_000}
	rules := []ratelimit.Rule{ // both reserve, so that parallel requests cannot pass on the same tokens
		{Name: "input", Match: match, Key: tenant, Limit: limit, CostFor: prompt, MaxReserve: 0.5},
		{Name: "output", Match: match, Key: tenant, Limit: limit, CostFor: maxTokens, MaxReserve: 0.5},
	}
	return rules, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, out := r.Context(), http.NewResponseController(w)
		for c := range upstream(r) {
			if c.output > 0 {
				if err := ratelimit.SettleAll(ctx, map[string]int64{"input": c.input, "output": c.output}); err != nil {
					log.Print(err) // the reservations stay
				}
				return
			}
			more := ratelimit.Add(ctx, "output", int64(len(c.text)+3)/4)
			_, err := io.WriteString(w, c.text)
			if !more || err != nil || out.Flush() != nil {
				return // nothing is left, or the client has gone: output costs what was added
			}
		}
	})
}

// 4. Costs that are known afterwards: GraphQL, uploads, LLM tokens.
package p04

import (
	"context"
	"io"
	"log"
	"net/http"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

func limits(guard *failmode.Guard, user keyfunc.Key) (*ratelimit.Middleware, error) {
	return ratelimit.New(ratelimit.Config{Limiter: guard, Rules: []ratelimit.Rule{
		{Name: "requests", Key: user, Limit: algorithms.PerMinute(600)}, // always charged 1
		{Name: "graphql", Match: []string{"POST /graphql"}, Key: user,
			Limit: algorithms.Limit{Rate: 1000, Period: time.Minute, Algorithm: algorithms.TokenBucket}},
		{Name: "upload-kib", Match: []string{"PUT /files/{name}"}, Key: user, // in KiB: Validate wants Rate² < 2^53
			Limit:   algorithms.Limit{Rate: 1 << 20, Period: time.Hour, Algorithm: algorithms.FixedWindow},
			CostFor: func(r *http.Request) int64 { return kib(r.ContentLength) }}, // unknown length: 1, settled below
		{Name: "llm-tokens", Match: []string{"POST /v1/chat"}, Key: user,
			Limit: algorithms.Limit{Rate: 100_000, Period: time.Minute}, Cost: 4096}, // reserved
	}})
}

func graphql(execute func(*http.Request) (body []byte, points int64)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, points := execute(r)
		settle(r.Context(), "graphql", points) // into debt if need be; before the first write, so that headers follow
		_, _ = w.Write(body)
	}
}

func upload(store io.Writer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(store, r.Body)
		settle(r.Context(), "upload-kib", kib(n))
	}
}

func chat(stream func(http.ResponseWriter, *http.Request) (tokens int64)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		tokens := stream(w, r) // a panic or an abort keeps the 4096
		settle(r.Context(), "llm-tokens", tokens)
	}
}

func kib(bytes int64) int64 { return (max(bytes, 0) + 1023) >> 10 }

func settle(ctx context.Context, rule string, cost int64) {
	if err := ratelimit.Settle(ctx, rule, cost); err != nil {
		log.Print(err) // the charge stays as it was
	}
}

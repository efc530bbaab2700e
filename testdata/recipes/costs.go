package recipes

import (
	"log"
	"net/http"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/keyfunc"
)

func expensive(user keyfunc.Key) []ratelimit.Rule {
	return []ratelimit.Rule{
		{Name: "api", Key: user, Limit: ratelimit.PerMinute(100), Costs: map[string]int64{"/reports": 20, "/search": 5}},
		{Name: "reports", Match: []string{"/reports"}, Key: keyfunc.Everyone, Limit: ratelimit.PerSecond(2), Hidden: true}, // Limit: what the database can take
	}
}

func graphQL(execute func(*http.Request) (response []byte, points int64)) (ratelimit.Rule, http.Handler) {
	rule := ratelimit.Rule{
		Name: "graphql", Match: []string{"/graphql"}, Key: keyfunc.IP,
		Limit: ratelimit.MustParse("1000/1m token_bucket"), // a bucket: one query may cost more than is left
	}
	return rule, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		response, points := execute(r)
		if err := ratelimit.Settle(r.Context(), "graphql", points); err != nil {
			log.Print(err) // the charge stays at 1
		}
		_, _ = w.Write(response)
	})
}

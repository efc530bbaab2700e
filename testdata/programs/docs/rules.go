package docs

import (
	"context"
	"log"
	"net/http"
	"time"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

func plans(limiter algorithms.Limiter, user keyfunc.Key, planOf func(context.Context) string) (*ratelimit.Middleware, error) {
	return ratelimit.New(ratelimit.Config{
		Limiter: limiter,
		TierFor: func(r *http.Request) string { return planOf(r.Context()) }, // "" is no tier
		Rules: []ratelimit.Rule{{
			Name:  "plan",
			Key:   user,
			Limit: ratelimit.PerMinute(60),
			Tiers: map[string][]ratelimit.Limit{"pro": {ratelimit.PerMinute(1000)}, "internal": ratelimit.Unlimited()},
			Costs: map[string]int64{"POST /reports": 10, "GET /export/{format}": 10}, // all others cost 1
		}},
	})
}

func perModel(limiter algorithms.Limiter, user keyfunc.Key) (*ratelimit.Middleware, error) {
	model := keyfunc.OneOf(keyfunc.BodyJSON("model", 1<<20), "large", "small")
	rule := ratelimit.Rule{
		Name:  "per-model",
		Key:   keyfunc.Join(user, model),
		Limit: ratelimit.MustParse("5/1m sliding_log"), // of all other models together
		Tiers: map[string][]ratelimit.Limit{"large": {ratelimit.PerMinute(10)}, "small": {ratelimit.PerMinute(100)}},
	}
	tierFor := func(r *http.Request) string {
		if name, _ := model.Resolve(r); name != "other" {
			return name
		}
		return "" // Limit applies
	}
	return ratelimit.New(ratelimit.Config{Limiter: limiter, Rules: []ratelimit.Rule{rule}, TierFor: tierFor})
}

func graphql(execute func(*http.Request) (body []byte, points int64)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, points := execute(r)
		if err := ratelimit.Settle(r.Context(), "graphql", points); err != nil {
			log.Print(err) // the charge stays as it was
		}
		_, _ = w.Write(body)
	}
}

var failedLogins = []ratelimit.Rule{
	{Name: "login", Match: []string{"POST /auth/login"}, Key: keyfunc.IP, ChargeOn: []int{401, 403},
		Limit: ratelimit.MustParse("5/1m sliding_log")},
}

var banned = []ratelimit.Rule{
	{Name: "login", Match: []string{"POST /auth/login"}, Key: keyfunc.IP, Limit: ratelimit.MustParse("5/1m sliding_log"),
		Ban: ratelimit.Ban{After: 10, Within: time.Minute, For: 15 * time.Minute}},
}

func rollOut(limit *ratelimit.Middleware, today ratelimit.Rule, user keyfunc.Key, stage int) error {
	next := ratelimit.Rule{Name: "per-user-60", Key: user, Limit: ratelimit.PerMinute(60)}
	next.Shadow = stage < 2 // stage 0: enforced for no key, 1: for a tenth, 2: for all
	if stage == 1 {
		next.Enforce = 0.1
	}
	return limit.SetRules([]ratelimit.Rule{today, next})
}

func fromFile(ctx context.Context, limiter algorithms.Limiter, proxies keyfunc.Proxies, userID func(context.Context) (string, bool)) (*ratelimit.Middleware, error) {
	loader := &rulefile.Loader{
		Source: rulefile.File("rules.yaml"),
		Keys:   map[string]keyfunc.Key{"ip": proxies.IP(), "user": keyfunc.Optional(keyfunc.Context(userID))},
		Tiers:  []string{"pro", "enterprise"},
	}
	rules, err := loader.Load(ctx)
	if err != nil {
		return nil, err // at start, a bad file is fatal
	}
	limit, err := ratelimit.New(ratelimit.Config{Limiter: limiter, Rules: rules})
	if err != nil {
		return nil, err
	}
	go loader.Watch(ctx, limit) // until ctx ends
	return limit, nil
}

func forgive(ctx context.Context, limit *ratelimit.Middleware, guard algorithms.Limiter) error {
	checks, err := limit.Checks("per-ip", "2001:db8::1") // counted as 2001:db8::/64
	if err != nil {
		return err
	}
	d, err := guard.Peek(ctx, checks...) // what the client has left of the rule's Limit
	if err != nil || d.Allowed {
		return err
	}
	return guard.Reset(ctx, checks...) // its counts start anew
}

func hotKey() ratelimit.Rule {
	all := ratelimit.Rule{Name: "all", Key: keyfunc.Everyone, Limit: ratelimit.PerMinute(1_000_000), Sync: 100 * time.Millisecond}
	return all
}

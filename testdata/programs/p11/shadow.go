// 11. A tighter limit: watched, then enforced for 10 % of the keys, then for all.
package p11

import (
	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

func stages(user keyfunc.Key) (watch, tenth, all []ratelimit.Rule) {
	today := ratelimit.Rule{Name: "per-user", Key: user, Limit: algorithms.PerMinute(100), Fail: failmode.Local}
	next := ratelimit.Rule{Name: "per-user-60", Key: user, Limit: algorithms.PerMinute(60), Shadow: true}
	watch = []ratelimit.Rule{today, next} // outcome="shadow_denied" in the metrics says how much it would deny
	next.Enforce = 0.1
	tenth = []ratelimit.Rule{today, next} // the same 10 % on every instance; they stay among the enforced ones
	next.Shadow, next.Enforce = false, 0
	all = []ratelimit.Rule{next} // its counts are warm
	return watch, tenth, all
}

func rollOut(limit *ratelimit.Middleware, stage []ratelimit.Rule) error { return limit.SetRules(stage) }

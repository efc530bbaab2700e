package recipes

import (
	"net/http"
	"slices"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// migrated has a rule for each limiter that it replaces. All rules decide together.
func migrated(client, user keyfunc.Key) []ratelimit.Rule {
	return []ratelimit.Rule{
		// httprate: LimitByIP(100, time.Minute)
		{Name: "per-ip", Key: client, Limit: ratelimit.PerMinute(100)},
		// ulule/limiter: NewRateFromFormatted("5-M")
		{Name: "login", Match: []string{"POST /login"}, Key: client, Limit: ratelimit.MustParse("5/1m sliding_log")},
		// tollbooth: NewLimiter(10, nil).SetBurst(20); x/time: rate.NewLimiter(10, 20); throttled: RateQuota{PerSec(10), 19}
		{Name: "search", Match: []string{"GET /search"}, Key: client, Limit: ratelimit.MustParse("10/s burst 20")},
		// redis_rate: Limit{Rate: 600, Burst: 50, Period: time.Minute}
		{Name: "per-user", Key: user, Limit: ratelimit.MustParse("600/1m burst 50")},
	}
}

// besideOld lets the old limiter decide, and the new rules watch.
func besideOld(config ratelimit.Config, old func(http.Handler) http.Handler, app http.Handler) (http.Handler, error) {
	config.Rules = slices.Clone(config.Rules)
	for i := range config.Rules {
		config.Rules[i].Shadow = true
	}
	limit, err := ratelimit.New(config)
	if err != nil {
		return nil, err
	}
	return limit.Handler(old(app)), nil // around the old limiter, to see what it denies, too
}

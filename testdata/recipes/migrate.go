package recipes

import (
	"net/http"
	"time"

	"github.com/didip/tollbooth/v8"
	"github.com/didip/tollbooth/v8/limiter"
	"github.com/go-chi/httprate"
	"github.com/go-redis/redis_rate/v10"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

func fromHTTPRate() (theirs func(http.Handler) http.Handler, ours ratelimit.Rule) {
	theirs = httprate.LimitByIP(5, time.Minute)
	ours = ratelimit.Rule{Name: "per-ip", Key: keyfunc.IP, Limit: algorithms.PerMinute(5)}
	return theirs, ours
}

func fromUlule() (theirs func(http.Handler) http.Handler, ours ratelimit.Rule) {
	rate, _ := ulule.NewRateFromFormatted("5-M")
	theirs = stdlib.NewMiddleware(ulule.New(memory.NewStore(), rate)).Handler
	ours = ratelimit.Rule{Name: "per-ip", Key: keyfunc.IP, Limit: fromRate(rate)}
	return theirs, ours
}

func fromRate(rate ulule.Rate) algorithms.Limit {
	return algorithms.Limit{Rate: rate.Limit, Period: rate.Period, Algorithm: algorithms.FixedWindow}
}

func fromTollbooth() (theirs func(http.Handler) http.Handler, ours ratelimit.Rule) {
	lmt := tollbooth.NewLimiter(1, nil).SetBurst(5).SetIPLookup(limiter.IPLookup{Name: "RemoteAddr"})
	theirs = func(next http.Handler) http.Handler { return tollbooth.LimitHandler(lmt, next) }
	ours = ratelimit.Rule{Name: "per-ip", Key: keyfunc.IP, Limit: algorithms.Limit{Rate: 1, Period: time.Second, Burst: 5}}
	return theirs, ours
}

func fromRedisRate() (theirs redis_rate.Limit, ours algorithms.Limit) {
	theirs = redis_rate.Limit{Rate: 10, Burst: 5, Period: time.Minute}
	ours = algorithms.Limit{Rate: 10, Period: time.Minute, Burst: 5, Algorithm: algorithms.GCRA}
	return theirs, ours
}

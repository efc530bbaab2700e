package recipes

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/didip/tollbooth/v8"
	"github.com/didip/tollbooth/v8/libstring"
	"github.com/didip/tollbooth/v8/limiter"
	"github.com/go-chi/httprate"
	"github.com/go-redis/redis_rate/v10"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// The names in docs/recipes.md exist.
var (
	_ = []any{httprate.LimitByIP, httprate.WithKeyFuncs, httprate.KeyByEndpoint, httprate.KeyByRealIP, httprate.WithIncrement, httprate.WithLimitHandler}
	_ = []any{httprate.WithErrorHandler, httprate.WithResponseHeaders, (*httprate.RateLimiter).RespondOnLimit, (*httprate.RateLimiter).OnLimit}
	_ = []any{ulule.NewRateFromFormatted, ulule.WithTrustForwardHeader, (*ulule.Limiter).Peek, (*ulule.Limiter).Reset, stdlib.NewMiddleware}
	_ = []any{tollbooth.NewLimiter, tollbooth.LimitFuncHandler, (*limiter.Limiter).SetMethods, (*limiter.Limiter).SetHeader, (*limiter.Limiter).SetBasicAuthUsers, (*limiter.Limiter).SetMessage, (*limiter.Limiter).SetOnLimitReached}
	_ = []any{(*redis_rate.Limiter).AllowN, (*redis_rate.Limiter).Reset}
)

func fromHTTPRate() (theirs func(http.Handler) http.Handler, ours ratelimit.Rule) {
	theirs = httprate.LimitByIP(10, time.Minute)
	ours = ratelimit.Rule{Name: "per-ip", Key: keyfunc.IP, Limit: algorithms.PerMinute(10)}
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

// The entry of X-Forwarded-For that tollbooth counts from the right, from 0, is the
// one that Hops counts, from 1.
func TestIndexFromRight(t *testing.T) {
	r := from("10.0.0.1:1", "GET", "/")()
	r.Header.Set("X-Forwarded-For", "192.0.2.1, 192.0.2.2, 192.0.2.3")
	for index := range 3 {
		theirs := libstring.RemoteIPFromIPLookup(limiter.IPLookup{Name: "X-Forwarded-For", IndexFromRight: index}, r)
		ours, err := keyfunc.Proxies{Hops: index + 1}.IP().Resolve(r)
		if err != nil || theirs != ours {
			t.Errorf("%d: %q, %v; theirs %q", index, ours, err, theirs)
		}
	}
}

// The table says how their rates are written.
func TestRates(t *testing.T) {
	for theirs, ours := range map[string]string{"5-S": "5/1s", "5-M": "5/1m", "1000-H": "1000/1h", "7-D": "7/24h"} {
		rate, err := ulule.NewRateFromFormatted(theirs)
		if err != nil {
			t.Fatal(err)
		}
		if limit, err := algorithms.ParseLimit(ours + " fixed_window"); err != nil || limit != fromRate(rate) {
			t.Errorf("%s is %+v, and %s is %+v, %v", theirs, fromRate(rate), ours, limit, err)
		}
	}
}

// What a rule replaces admits as many at once, tells clients apart in the same way,
// and so does the rule.
func TestMigrations(t *testing.T) {
	for name, recipe := range map[string]func() (func(http.Handler) http.Handler, ratelimit.Rule){
		"httprate": fromHTTPRate, "ulule": fromUlule, "tollbooth": fromTollbooth,
	} {
		theirs, ours := recipe()
		most := int(ours.Limit.Quota())
		for who, h := range map[string]http.Handler{"theirs": theirs(responds(200)), "ours": limited(t, ours).Handler(responds(200))} {
			ok := false
			for try := range 5 { // a minute of the clock may end in between
				minute := time.Now().Unix() / 60
				one := statuses(h, most+3, from(fmt.Sprintf("192.0.2.%d:1", 2*try), "GET", "/"))
				other := statuses(h, 3, from(fmt.Sprintf("192.0.2.%d:1", 2*try+1), "GET", "/"))
				if ok = one[200] == most && one[429] == 3 && other[200] == 3; ok || time.Now().Unix()/60 == minute {
					break
				}
			}
			if !ok {
				t.Errorf("%s, %s: not %d of %d, and 3 of another client", name, who, most, most+3)
			}
		}
	}
}

// A limit that a handler takes behind a rule is the one that clients see, where it is the
// tighter one, and it denies with its own Retry-After.
func TestRespondOnLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := new(algorithms.Memory)
		rater := httprate.NewRateLimiter(5, time.Minute)
		rule := ratelimit.Rule{Name: "all", Key: keyfunc.IP, Limit: algorithms.PerMinute(60)}
		check := algorithms.Check{Rule: "inner", Key: "alice", Limit: algorithms.PerMinute(5)}
		for who, h := range map[string]http.HandlerFunc{
			"theirs": func(w http.ResponseWriter, r *http.Request) { rater.RespondOnLimit(w, r, "alice") },
			"ours": func(w http.ResponseWriter, r *http.Request) {
				d, err := memory.Take(r.Context(), check)
				if err != nil {
					t.Error(err)
				}
				headers.XRateLimit(w.Header(), d)
				if !d.Allowed {
					headers.Deny(w, r, d)
				}
			},
		} {
			outer := limited(t, rule).Handler(h)
			for i, left := range []string{"4", "3", "2", "1", "0", "0"} {
				w := answer(outer, from("192.0.2.1:1", "GET", "/")())
				denied := w.Code == http.StatusTooManyRequests
				if f := w.Header(); f.Get("X-RateLimit-Limit") != "5" || f.Get("X-RateLimit-Remaining") != left || denied != (i == 5) || denied != (f.Get("Retry-After") != "") {
					t.Errorf("%s, request %d: %d, %v", who, i, w.Code, f)
				}
			}
		}
	})
}

// GCRA decides as redis_rate does, on any schedule.
func TestRedisRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := limitertest.Redis(t)
		theirs, ours := fromRedisRate()
		rater, redis := redis_rate.NewLimiter(client), &algorithms.Redis{Client: client, Namespace: "app"}
		random := rand.New(rand.NewPCG(1, 1))
		denied := 0
		for i := range 500 {
			time.Sleep(time.Duration(random.Int64N(int64(12 * time.Second))).Truncate(time.Millisecond))
			cost := 1 + random.IntN(3)
			was, err := rater.AllowN(t.Context(), "alice", theirs, cost)
			if err != nil {
				t.Fatal(err)
			}
			is, err := redis.Take(t.Context(), algorithms.Check{Rule: "r", Key: "alice", Cost: int64(cost), Limit: ours})
			// They say that nothing is left where a request was denied, and count in doubles.
			if err != nil || is.Allowed != (was.Allowed > 0) || is.Allowed && is.Results[0].Remaining != int64(was.Remaining) ||
				!is.Allowed && (is.RetryAfter()-was.RetryAfter).Abs() > time.Millisecond {
				t.Fatalf("request %d: %+v, %v; theirs %+v", i, is, err, was)
			}
			if !is.Allowed {
				denied++
			}
		}
		if denied < 50 || denied > 450 {
			t.Errorf("%d of 500 denied: that shows little", denied)
		}
	})
}

package recipes

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/didip/tollbooth/v8"
	"github.com/didip/tollbooth/v8/libstring"
	"github.com/didip/tollbooth/v8/limiter"
	"github.com/go-chi/httprate"
	"github.com/go-redis/redis_rate/v10"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// The names in docs/migrating.md exist.
var (
	_ = []any{httprate.LimitByIP, httprate.LimitBy, httprate.JoinKeys, httprate.KeyByEndpoint, httprate.KeyByRealIP, httprate.Key, httprate.WithIncrement, httprate.WithRequestLimit}
	_ = []any{httprate.WithLimitHandler, httprate.WithErrorHandler, httprate.WithResponseHeaders, (*httprate.RateLimiter).RespondOnLimit, (*httprate.RateLimiter).OnLimit}
	_ = []any{ulule.NewRateFromFormatted, ulule.WithTrustForwardHeader, (*ulule.Limiter).Peek, (*ulule.Limiter).Reset, stdlib.WithKeyGetter, stdlib.WithErrorHandler, stdlib.WithLimitReachedHandler}
	_ = []any{tollbooth.NewLimiter, tollbooth.LimitHandler, (*limiter.Limiter).SetMessage, (*limiter.Limiter).SetOnLimitReached, (*limiter.Limiter).SetIgnoreURL}
	_ = []any{(*throttled.GCRARateLimiterCtx).RateLimitCtx, throttled.VaryBy{RemoteAddr: true, Path: true, Headers: nil}}
	_ = []any{(*redis_rate.Limiter).AllowN, (*redis_rate.Limiter).AllowAtMost, (*redis_rate.Limiter).Reset}
	_ = []any{(*rate.Limiter).Allow, (*rate.Limiter).WaitN, (*rate.Limiter).ReserveN, (*rate.Reservation).Cancel}
)

type handlerOf func(http.Handler) http.Handler

func fromHTTPRate() (theirs handlerOf, ours ratelimit.Rule) {
	theirs = httprate.LimitByIP(10, time.Minute)
	ours = ratelimit.Rule{Name: "per-ip", Key: keyfunc.IP, Limit: ratelimit.PerMinute(10)}
	return theirs, ours
}

func fromUlule() (theirs handlerOf, ours ratelimit.Rule) {
	rate, _ := ulule.NewRateFromFormatted("5-M")
	theirs = stdlib.NewMiddleware(ulule.New(memory.NewStore(), rate)).Handler
	ours = ratelimit.Rule{Name: "per-ip", Key: keyfunc.IP, Limit: ratelimit.MustParse("5/1m fixed_window")}
	return theirs, ours
}

func tollboothOf(lmt *limiter.Limiter) handlerOf {
	return func(next http.Handler) http.Handler { return tollbooth.LimitHandler(lmt, next) }
}

func fromTollbooth() (theirs handlerOf, ours ratelimit.Rule) {
	theirs = tollboothOf(tollbooth.NewLimiter(1, nil).SetBurst(5).SetIPLookup(limiter.IPLookup{Name: "RemoteAddr"}))
	ours = ratelimit.Rule{Name: "per-ip", Key: keyfunc.IP, Limit: ratelimit.MustParse("1/s burst 5")}
	return theirs, ours
}

func fromThrottled() (theirs handlerOf, ours ratelimit.Rule) {
	store, _ := memstore.NewCtx(100)
	rater, _ := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerMin(6), MaxBurst: 4})
	theirs = (&throttled.HTTPRateLimiterCtx{RateLimiter: rater, VaryBy: &throttled.VaryBy{RemoteAddr: true}}).RateLimit
	ours = ratelimit.Rule{Name: "per-ip", Key: keyfunc.IP, Limit: ratelimit.MustParse("6/1m burst 5")}
	return theirs, ours
}

func fromRedisRate() (theirs redis_rate.Limit, ours ratelimit.Limit) {
	theirs = redis_rate.Limit{Rate: 10, Burst: 5, Period: time.Minute}
	ours = ratelimit.MustParse("10/1m burst 5")
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
		if limit, err := algorithms.ParseLimit(ours + " fixed_window"); err != nil || limit.Rate != rate.Limit || limit.Period != rate.Period {
			t.Errorf("%s is %+v, and %s is %+v, %v", theirs, rate, ours, limit, err)
		}
	}
}

// What a rule replaces admits as many at once, tells clients apart in the same way,
// and so does the rule.
func TestMigrations(t *testing.T) {
	for name, recipe := range map[string]func() (handlerOf, ratelimit.Rule){
		"httprate": fromHTTPRate, "ulule": fromUlule, "tollbooth": fromTollbooth, "throttled": fromThrottled,
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

// What docs/migrating.md calls different is so: each pair says what the other limiter does,
// and what this one does.
func TestWhatIsDifferent(t *testing.T) {
	perIP := func(limit string, key keyfunc.Key) http.Handler {
		return limited(t, ratelimit.Rule{Name: "per-ip", Key: key, Limit: ratelimit.MustParse(limit)}).Handler(responds(200))
	}
	get := func(path string) *http.Request { return from("192.0.2.1:1", "GET", path)() }
	outerLeft := func(h http.Handler) string { // after seven requests to a limit of five, behind one of twenty
		statuses(h, 7, func() *http.Request { return get("/api") })
		return answer(h, get("/")).Header().Get("X-RateLimit-Remaining")
	}
	forged := func(h http.Handler) string {
		n := 0
		return fmt.Sprint(statuses(h, 10, func() *http.Request {
			r := get("/")
			n++
			r.Header.Set("X-Forwarded-For", fmt.Sprintf("198.51.100.%d", n))
			return r
		})[200])
	}
	field := func(name string, h http.Handler) string { // of the second answer
		answer(h, get("/"))
		if value, err := strconv.Atoi(answer(h, get("/")).Header().Get(name)); err != nil {
			return "none"
		} else if value > 1e9 {
			return "a date"
		}
		return "seconds"
	}
	paths := func(h http.Handler) string { return fmt.Sprint(answer(h, get("/a")).Code, answer(h, get("/b")).Code) }

	inner := http.NewServeMux()
	inner.Handle("/", responds(200))
	inner.Handle("/api", httprate.LimitByIP(5, time.Hour)(responds(200)))
	twoRules := limited(t,
		ratelimit.Rule{Name: "outer", Key: keyfunc.IP, Limit: ratelimit.PerHour(20)},
		ratelimit.Rule{Name: "api", Match: []string{"/api"}, Key: keyfunc.IP, Limit: ratelimit.MustParse("5/1h sliding_log")}).Handler(responds(200))
	ululeOf := func(options ...ulule.Option) http.Handler {
		return stdlib.NewMiddleware(ulule.New(memory.NewStore(), ulule.Rate{Limit: 1, Period: time.Hour}, options...)).Handler(responds(200))
	}
	tollboothAt := func(lookup string) http.Handler {
		return tollboothOf(tollbooth.NewLimiter(1, nil).SetIPLookup(limiter.IPLookup{Name: lookup}))(responds(200))
	}
	throttledOf, _ := fromThrottled()
	proxies := keyfunc.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}.IP()

	const one = "1/1h sliding_log"
	for name, pair := range map[string][2][2]string{
		"left of the outer limit":             {{outerLeft(httprate.LimitByIP(20, time.Hour)(inner)), "12"}, {outerLeft(twoRules), "14"}},
		"admitted, httprate's KeyByRealIP":    {{forged(perIP(one, keyfunc.Func(httprate.KeyByRealIP))), "10"}, {forged(perIP(one, proxies)), "1"}},
		"admitted, ulule's TrustForward":      {{forged(ululeOf(ulule.WithTrustForwardHeader(true))), "10"}, {forged(perIP(one, proxies)), "1"}},
		"admitted, tollbooth without address": {{forged(tollboothAt("X-Real-IP")), "10"}, {forged(perIP(one, keyfunc.IP)), "1"}},
		"tollbooth's paths":                   {{paths(tollboothAt("RemoteAddr")), "200 200"}, {paths(perIP(one, keyfunc.IP)), "200 429"}},
		"ulule's Retry-After":                 {{field("Retry-After", ululeOf()), "none"}, {field("Retry-After", perIP(one, keyfunc.IP)), "seconds"}},
		"tollbooth's Retry-After":             {{field("Retry-After", tollboothAt("RemoteAddr")), "none"}, {field("Retry-After", perIP(one, keyfunc.IP)), "seconds"}},
		"throttled's reset":                   {{field("X-RateLimit-Reset", throttledOf(responds(200))), "seconds"}, {field("X-RateLimit-Reset", perIP(one, keyfunc.IP)), "a date"}},
	} {
		for i, who := range []string{"theirs", "ours"} {
			if got, want := pair[i][0], pair[i][1]; got != want {
				t.Errorf("%s, %s: %s, want %s", name, who, got, want)
			}
		}
	}
}

// New rules beside an old limiter change none of its answers, and tell what they would deny.
func TestBesideOld(t *testing.T) {
	denied := 0
	h, err := besideOld(ratelimit.Config{
		Rules: []ratelimit.Rule{{Name: "per-ip", Key: keyfunc.IP, Limit: ratelimit.MustParse("3/1h sliding_log")}},
		Observe: func(_ *http.Request, d ratelimit.Decision) {
			if !d.Results[0].HasRoom {
				denied++
			}
		},
	}, httprate.LimitByIP(5, time.Hour), responds(200))
	if err != nil {
		t.Fatal(err)
	}
	wants(t, "the old limiter's answers", statuses(h, 9, from("192.0.2.1:1", "GET", "/")), 200, 5, 429, 4)
	if w := answer(h, from("192.0.2.2:1", "GET", "/")()); denied != 6 || w.Header().Get("X-RateLimit-Limit") != "5" {
		t.Errorf("%d denials in shadow, %v", denied, w.Header())
	}
}

// The rules that replace other limiters go together, and nothing is odd about them.
func TestMigrated(t *testing.T) {
	var log bytes.Buffer
	user := keyfunc.Context(func(context.Context) (string, bool) { return "alice", true })
	h := made(t)(ratelimit.New(ratelimit.Config{Rules: migrated(keyfunc.IP, user), Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))})).Handler(responds(200))
	wants(t, "searches", statuses(h, 21, from("192.0.2.1:1", "GET", "/search")), 200, 20, 429, 1)
	wants(t, "logins", statuses(h, 6, from("192.0.2.2:1", "POST", "/login")), 200, 5, 429, 1)
	if log.Len() > 0 {
		t.Errorf("%s", &log)
	}
}

// What takes the place of x/time's limiter admits as many, and its Wait waits.
func TestFromTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		theirs, memory := rate.NewLimiter(10, 20), new(algorithms.Memory)
		check := algorithms.Check{Rule: "calls", Limit: ratelimit.MustParse("10/s burst 20")}
		for i := range 25 {
			d, err := memory.Take(t.Context(), check)
			if allowed := theirs.Allow(); err != nil || d.Allowed != allowed || allowed != (i < 20) {
				t.Errorf("call %d: %v, %v; theirs %v", i, d.Allowed, err, allowed)
			}
		}
		for range 5 {
			begun := time.Now()
			if _, err := algorithms.Wait(t.Context(), memory, check); err != nil {
				t.Fatal(err)
			}
			ours := time.Since(begun)
			if err := theirs.Wait(t.Context()); err != nil || ours != 100*time.Millisecond || time.Since(begun) != ours {
				t.Errorf("waited %s, theirs %s, %v", ours, time.Since(begun), err)
			}
		}
	})
}

// A limit that a handler takes behind a rule is the one that clients see, where it is the
// tighter one, and it denies with its own Retry-After.
func TestRespondOnLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := new(algorithms.Memory)
		rater := httprate.NewRateLimiter(5, time.Minute)
		rule := ratelimit.Rule{Name: "all", Key: keyfunc.IP, Limit: ratelimit.PerMinute(60)}
		check := algorithms.Check{Rule: "inner", Key: "alice", Limit: ratelimit.PerMinute(5)}
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

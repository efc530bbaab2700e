package middleware_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// tokens is a rule with a fixed window of an hour.
func tokens(rate, cost int64) ratelimit.Rule {
	return ratelimit.Rule{Name: "tokens", Key: keyfunc.IP, Cost: cost, Limit: algorithms.Limit{Rate: rate, Period: time.Hour, Algorithm: algorithms.FixedWindow}}
}

// A call is one of Config.Settled.
type call struct {
	charged int64
	failed  bool
}

// settledCalls returns what Config.Settled is told of the rule "tokens".
func settledCalls(c *ratelimit.Config) *[]call {
	calls := new([]call)
	c.Settled = func(_ *http.Request, d algorithms.Decision) {
		r, _ := d.Result("tokens")
		*calls = append(*calls, call{r.Charged, r.Err != nil})
	}
	return calls
}

// Add and Settled beside the other fields of a rule. The limit is 1000; a request
// reserves 200 of them and uses 450. Settled is called for each request that was charged, and
// for no other.
func TestAddBesideOtherFields(t *testing.T) {
	reserving := func(n int64) func(*http.Request) int64 { return func(*http.Request) int64 { return n } }
	for name, c := range map[string]struct {
		change func(*ratelimit.Rule, *ratelimit.Config)
		during func(*store) // what happens while the handler runs
		among  int          // processes; 0 for one
		status int          // 0 for 204
		adds   string       // what the calls of Add return: 300, 100, 50
		used   int64
		calls  []call // of Settled
	}{
		"none":         {adds: "true true true", used: 450, calls: []call{{450, false}}},
		"a higher one": {change: func(r *ratelimit.Rule, _ *ratelimit.Config) { r.CostFor = reserving(400) }, adds: "true true true", used: 450, calls: []call{{450, false}}},
		"a lower one":  {change: func(r *ratelimit.Rule, _ *ratelimit.Config) { r.CostFor = reserving(1) }, adds: "true true true", used: 450, calls: []call{{450, false}}},
		"Tiers": {change: func(r *ratelimit.Rule, c *ratelimit.Config) {
			r.Tiers = map[string][]algorithms.Limit{"free": {tokens(350, 1).Limit}}
			c.TierFor = func(*http.Request) string { return "free" }
		}, adds: "true false true", used: 350, calls: []call{{350, false}}},
		"Unlimited": {change: func(r *ratelimit.Rule, _ *ratelimit.Config) {
			r.LimitsFor = func(*http.Request) []algorithms.Limit { return ratelimit.Unlimited() }
		}, adds: "true true true"},
		"free":    {change: func(r *ratelimit.Rule, _ *ratelimit.Config) { r.CostFor = reserving(0) }, adds: "true true true", used: 450, calls: []call{{450, false}}},
		"skipped": {change: func(_ *ratelimit.Rule, c *ratelimit.Config) { c.Skip = []string{"/"} }, adds: "true true true"},
		"refused": {change: func(_ *ratelimit.Rule, c *ratelimit.Config) { c.Rules = []ratelimit.Rule{required()} }, status: http.StatusUnauthorized, used: 200, calls: []call{{200, false}}},
		"denied":  {change: func(_ *ratelimit.Rule, c *ratelimit.Config) { c.Rules = []ratelimit.Rule{tooTight} }, status: http.StatusTooManyRequests},
		"denied, with a handler": {change: func(_ *ratelimit.Rule, c *ratelimit.Config) {
			c.Rules, c.Denied = []ratelimit.Rule{tooTight}, func(w http.ResponseWriter, r *http.Request, _ algorithms.Decision) {
				_ = ratelimit.Add(r.Context(), "tokens", 5)
				w.WriteHeader(http.StatusTooManyRequests)
			}
		}, status: http.StatusTooManyRequests},
		"Shadow": {change: func(r *ratelimit.Rule, _ *ratelimit.Config) { r.Shadow, r.Limit.Rate = true, 350 }, adds: "true true true", used: 450, calls: []call{{450, false}}},
		"Shadow, denied": {change: func(r *ratelimit.Rule, _ *ratelimit.Config) {
			r.Shadow, r.Limit.Rate, r.CostFor = true, 350, reserving(400)
		},
			adds: "true true true"},
		"Hidden": {change: func(r *ratelimit.Rule, _ *ratelimit.Config) { r.Hidden = true }, adds: "true true true", used: 450, calls: []call{{450, false}}},
		"Match":  {change: func(r *ratelimit.Rule, _ *ratelimit.Config) { r.Match = []string{"/elsewhere"} }, adds: "true true true"},
		"Sync":   {change: func(r *ratelimit.Rule, _ *ratelimit.Config) { r.Sync = time.Second }, adds: "true true true", used: 450, calls: []call{{450, false}}},
		"Ban": {change: func(r *ratelimit.Rule, _ *ratelimit.Config) {
			r.Ban, r.Limit.Rate = ratelimit.Ban{After: 1, For: time.Hour}, 350
		},
			adds: "true false true", used: 350, calls: []call{{350, false}}}, // which a denied request would begin
		"ChargeOn": {change: func(r *ratelimit.Rule, _ *ratelimit.Config) { r.ChargeOn = []int{401} }, adds: "true true true", used: 450, calls: []call{{450, false}}},
		"Share":    {change: func(_ *ratelimit.Rule, c *ratelimit.Config) { c.Share = 0.35 }, adds: "true false true", used: 350, calls: []call{{350, false}}},
		"token_bucket": {change: func(r *ratelimit.Rule, _ *ratelimit.Config) { r.Limit.Algorithm = algorithms.TokenBucket },
			adds: "true true true", used: 450, calls: []call{{450, false}}},
		"sliding_log": {change: func(r *ratelimit.Rule, _ *ratelimit.Config) { r.Limit.Algorithm = algorithms.SlidingLog },
			adds: "true true true", used: 450, calls: []call{{450, false}}},
		"leaky_bucket": {change: func(r *ratelimit.Rule, _ *ratelimit.Config) {
			r.Limit.Algorithm, r.Limit.Burst = algorithms.LeakyBucket, 1000
		},
			adds: "false false false", used: 200, calls: []call{{200, false}}},
		"in_flight": {change: func(r *ratelimit.Rule, _ *ratelimit.Config) {
			r.Limit, r.CostFor = algorithms.MaxInFlight(1000), nil
		},
			adds: "false false false", calls: []call{{1, false}}},
		"an outage, local, of two": {during: away, among: 2, change: func(r *ratelimit.Rule, _ *ratelimit.Config) { r.Limit.Rate, r.CostFor = 800, reserving(160) },
			adds: "true true false", used: 160, calls: []call{{400, false}}}, // the share of the limit, and not that share's
		"an outage, local":  {during: away, adds: "true true true", used: 200, calls: []call{{450, false}}},
		"an outage, open":   {during: away, change: func(r *ratelimit.Rule, _ *ratelimit.Config) { r.Fail = failmode.Open }, adds: "true true true", used: 200, calls: []call{{200, true}}},
		"an outage, closed": {during: away, change: func(r *ratelimit.Rule, _ *ratelimit.Config) { r.Fail = failmode.Closed }, adds: "false true true", used: 200, calls: []call{{200, true}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := new(store)
				rule := tokens(1000, 1)
				rule.CostFor = reserving(200)
				g := guard(t, s, cmp.Or(c.among, 1))
				config := ratelimit.Config{Limiter: g}
				if c.change != nil {
					c.change(&rule, &config)
				}
				config.Rules = append(config.Rules, rule)
				calls := settledCalls(&config)
				m := mustNew(t, config)
				var adds []string
				w := serve(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if c.during != nil {
						c.during(s)
					}
					for _, units := range []int64{300, 100, 50} {
						adds = append(adds, fmt.Sprint(ratelimit.Add(r.Context(), "tokens", units) == nil))
					}
					synctest.Wait() // in an outage, for the probe that opens the circuit
					w.WriteHeader(http.StatusNoContent)
				})), "POST /")
				synctest.Wait() // what is refunded in the background
				if got := strings.Join(adds, " "); w.Code != cmp.Or(c.status, http.StatusNoContent) || got != c.adds {
					t.Errorf("status %d, Add: %s, want %s", w.Code, got, c.adds)
				}
				banned := name == "Ban" && isBanned(t, m)
				_ = g.Close() // tells what it has admitted by copies
				if n := used(t, &s.Memory, rule); n != c.used || !slices.Equal(*calls, c.calls) {
					t.Errorf("used %d, settled %v; want %d, %v", n, *calls, c.used, c.calls)
				}
				if banned {
					t.Error("a denial of Add has begun a ban")
				}
			})
		})
	}
}

func away(s *store) { s.fail(errors.New("away")) }

// A request goes by the rules with which it began. A ban denies what it takes beyond its
// charge. Among chained middlewares, a rule's innermost one counts.
func TestAddWhileRulesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, rule := &spy{Limiter: new(algorithms.Memory)}, tokens(1000, 40)
		outerRule := tokens(1000, 40)
		outerRule.Name = "outer"
		rule.Ban = ratelimit.Ban{After: 1000, For: 24 * time.Hour}
		banner := mustNew(t, ratelimit.Config{Limiter: limiter, Rules: []ratelimit.Rule{rule}})
		outer := mustNew(t, ratelimit.Config{Limiter: limiter, Rules: []ratelimit.Rule{outerRule}})
		m := mustNew(t, ratelimit.Config{Limiter: limiter, Rules: []ratelimit.Rule{rule}})
		add := func(r *http.Request, rule string, want bool) {
			t.Helper()
			if err := ratelimit.Add(r.Context(), rule, 30); (err == nil) != want {
				t.Errorf("%s: %v", rule, err)
			}
		}
		serve(outer.Handler(m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if err := m.SetRules([]ratelimit.Rule{perHour("other", 1)}); err != nil {
				t.Error(err)
			}
			add(r, "tokens", true)
			add(r, "tokens", true) // takes more
			add(r, "outer", true)
			if err := ratelimit.Settle(r.Context(), "outer", 25); err != nil {
				t.Error(err)
			}
			if err := banner.Ban(r.Context(), "tokens", time.Hour, "192.0.2.1"); err != nil {
				t.Error(err)
			}
			add(r, "tokens", false)
		}))), "POST /")
		if inner, outer := used(t, limiter, rule), used(t, limiter, outerRule); inner != 60 || outer != 25 || limiter.settles.Load() != 1 {
			t.Errorf("%d and %d used, settled by %d commands; want 60 and 25, one for the outer", inner, outer, limiter.settles.Load())
		}
	})
}

// The sum of several goroutines is exact. One of them takes more while the others wait.
func TestAddFromSeveralGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, rule := &hook{takes: time.Millisecond}, tokens(1000, 100)
		limiter := &spy{Limiter: slow}
		var stopped atomic.Int64
		err := within(t, mustNew(t, ratelimit.Config{Limiter: limiter, Rules: []ratelimit.Rule{rule}}), func(ctx context.Context, _ http.ResponseWriter) error {
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					for range 140 {
						if err := ratelimit.Add(ctx, "tokens", 1); err != nil {
							stopped.Add(1)
						}
					}
				})
			}
			all.Wait()
			return nil
		})
		if n := used(t, slow, rule); err != nil || n != 1000 || stopped.Load() != 120 {
			t.Errorf("%v, used %d, want 1000; denied %d times, want 120", err, n, stopped.Load())
		}
		if n := limiter.takes.Load(); n > 19+2+100+120 {
			t.Errorf("%d commands, want one for each quarter of the first charge or eighth of all, one for each of the last units, and one for each denial", n)
		}
	})
}

// What Add takes while the request is settled is refunded, and what it takes last is settled.
func TestAddWhileTheRequestEnds(t *testing.T) {
	for name, end := range map[string]func(context.Context) error{
		"settled":  func(ctx context.Context) error { return ratelimit.Settle(ctx, "tokens", 45) },
		"returned": func(context.Context) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow, rule := &hook{takes: 10 * time.Millisecond}, tokens(100, 40)
				err := within(t, mustNew(t, ratelimit.Config{Limiter: slow, Rules: []ratelimit.Rule{rule}}), func(ctx context.Context, _ http.ResponseWriter) error {
					go func() {
						if err := ratelimit.Add(ctx, "tokens", 45); err != nil {
							t.Error("stop")
						}
					}()
					time.Sleep(5 * time.Millisecond)
					return end(ctx)
				})
				synctest.Wait()
				time.Sleep(time.Second)
				if n := used(t, slow, rule); err != nil || n != 45 {
					t.Errorf("%v, used %d, want 45", err, n)
				}
			})
		})
	}
}

// A long request takes more as often as it needs. What is kept of that is bounded: what
// the first calls took is not refunded any more, which is a small part of all.
func TestAddManyTimes(t *testing.T) {
	for cost, want := range map[int64]int64{100_000: 100_000, 280: 280, 100: 100, 0: 53} {
		synctest.Test(t, func(t *testing.T) {
			memory, rule := new(algorithms.Memory), tokens(1_000_000, 4)
			config := ratelimit.Config{Limiter: memory, Rules: []ratelimit.Rule{rule}}
			calls := settledCalls(&config)
			err := within(t, mustNew(t, config), func(ctx context.Context, _ http.ResponseWriter) error {
				for range 100_000 {
					_ = ratelimit.Add(ctx, "tokens", 1)
				}
				return ratelimit.Settle(ctx, "tokens", cost)
			})
			if n := used(t, memory, rule); err != nil || n != want || !slices.Equal(*calls, []call{{want, false}}) {
				t.Errorf("settled at %d: %v, used %d, settled %v; want %d", cost, err, n, *calls, want)
			}
		})
	}
}

// padding is a limiter that adds a result, and fails the window of a minute once.
type padding struct {
	algorithms.Memory
	fails int // the call of Take that fails
}

func (l *padding) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	l.fails--
	var lost []algorithms.Result
	if l.fails == 0 {
		lost, checks = []algorithms.Result{{Check: checks[0], Err: errors.New("away")}}, checks[1:]
	}
	d, err := l.Memory.Take(ctx, checks...)
	d.Results = slices.Concat(lost, d.Results, []algorithms.Result{{Check: algorithms.Check{Rule: "extra"}, HasRoom: true}})
	return d, err
}

// Add knows what each window counts, also if the limiter adds results, and if one window
// has failed open in a call that cannot be refunded any more.
func TestAddKnowsWhatEachWindowCounts(t *testing.T) {
	for _, adds := range []int{1, 3, 30_000} {
		limiter := &padding{fails: 2} // the first Add
		minute, hour := tokens(1e9, 1), tokens(1e9, 1)
		minute.Limit.Period = time.Minute
		rule := minute
		rule.Fail, rule.Limit, rule.Limits = failmode.Open, algorithms.Limit{}, []algorithms.Limit{minute.Limit, hour.Limit}
		var final algorithms.Decision
		m := mustNew(t, ratelimit.Config{Limiter: limiter, Rules: []ratelimit.Rule{rule}, Settled: func(_ *http.Request, d algorithms.Decision) { final = d }})
		err := within(t, m, func(ctx context.Context, _ http.ResponseWriter) (err error) {
			for range adds {
				err = errors.Join(err, ratelimit.Add(ctx, "tokens", 1000))
			}
			return err
		})
		for i, window := range []ratelimit.Rule{minute, hour} {
			if n := used(t, limiter, window); err != nil || final.Results[i].Charged != n || n == 0 {
				t.Errorf("%d adds: %v; %s: Settled is told %d, and %d are counted", adds, err, window.Limit, final.Results[i].Charged, n)
			}
		}
	}
}

// Units are counted as they are charged and refunded, and what is above the limit as debt.
func TestUnitsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry, limiter := prometheus.NewRegistry(), &spy{Limiter: new(algorithms.Memory)}
		m := measured(t, registry, ratelimit.Config{Limiter: limiter, Rules: []ratelimit.Rule{tokens(100, 40), {Name: "at-once", Key: keyfunc.IP, Limit: algorithms.MaxInFlight(5)}}})
		for _, f := range []func(context.Context){
			func(ctx context.Context) { _ = ratelimit.Add(ctx, "tokens", 45) },    // 40, 10 more, 5 back
			func(ctx context.Context) { _ = ratelimit.Settle(ctx, "tokens", 70) }, // 40, 30 more, 15 too many
			func(context.Context) { t.Error("admitted") },                         // denied
		} {
			serve(m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { f(r.Context()) })), "POST /")
		}
		wantSamples(t, registry, map[string]float64{
			"units_total charged tokens": 120, "units_total refunded tokens": 5, "units_total debt tokens": 15,
			"topups_total allowed tokens": 1, "topups_total denied tokens": 0, "settlements_failed_total": 0,
		})
		time.Sleep(2 * time.Hour) // takes no time
		limiter.fails = "tokens"
		err := within(t, m, func(ctx context.Context, _ http.ResponseWriter) error {
			_ = ratelimit.Add(ctx, "tokens", 200)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		wantSamples(t, registry, map[string]float64{"units_total charged tokens": 160, "topups_total denied tokens": 1, "settlements_failed_total": 1})
		for name := range gather(t, registry) {
			if strings.HasPrefix(name, "units_total") && strings.HasSuffix(name, "at-once") {
				t.Errorf("there is %s", name)
			}
		}
	})
}

// A rule that does not apply is no mistake; everything else that counts nothing is.
func TestMistakesInAddAndSettle(t *testing.T) {
	rules := []ratelimit.Rule{
		tokens(10_000, 40), {Name: "at-once", Key: keyfunc.IP, Limit: algorithms.MaxInFlight(50)}, perHour("elsewhere", 5, "/elsewhere"),
		{Name: "pace", Key: keyfunc.IP, Limit: algorithms.Limit{Rate: 1_000_000, Period: time.Second, Burst: 9, Algorithm: algorithms.LeakyBucket}},
	}
	m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: rules, Skip: []string{"/skipped"}})
	only := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{
		perHour("elsewhere", 5, "/elsewhere"), {Name: "keyless", Key: keyfunc.Optional(keyfunc.Header("Nobody")), Limit: algorithms.PerHour(5)},
	}})
	inner := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{perHour("inner", 5, "/elsewhere")}})
	ctxOf := func(line string, chain ...*ratelimit.Middleware) (ctx context.Context) {
		h := http.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			ctx = r.Context() //nolint:fatcontext // of one request, for after its end
			ratelimit.Hold(ctx)
		}))
		for _, m := range chain {
			h = m.Handler(h)
		}
		serve(h, line)
		return ctx
	}
	over := ctxOf("POST /", m)
	for _, c := range []struct {
		ctx   context.Context
		rule  string
		units int64
		err   string // of Add; "" for none
	}{
		{ctxOf("POST /", m), "elsewhere", 5, ""},
		{ctxOf("POST /skipped", m), "tokens", 5, ""},
		{ctxOf("POST /", only), "elsewhere", 5, ""},
		{ctxOf("POST /", only), "keyless", 5, ""},
		{ctxOf("POST /", inner, m), "inner", 5, ""},
		{ctxOf("POST /", m, only), "keyless", 5, ""},
		{ctxOf("POST /", inner, only), "keyless", 5, ""},
		{ctxOf("POST /", inner, m), "tokns", 5, `middleware: no such rule: "tokns"; did you mean "tokens"?`},
		{ctxOf("POST /skipped", m), "tokns", 5, `middleware: no such rule: "tokns"; did you mean "tokens"?`},
		{ctxOf("POST /", only), "nobody-has-it", 5, `middleware: no such rule: "nobody-has-it"; write the Name of a rule`},
		{ctxOf("POST /"), "nobody-has-it", 5, `middleware: no such rule: "nobody-has-it"; write the Name of a rule`},
		{t.Context(), "tokens", 5, `middleware: no such rule: "tokens": this context is of no request; pass on that of the request`},
		{ctxOf("POST /"), "tokens", 5, `middleware: no such rule: "tokens": this context is of no request; pass on that of the request`},
		{t.Context(), "", 5, `middleware: no such rule: ""; write the Name of a rule`},
		{ctxOf("POST /", m), "tokens", -5, `middleware: add: rule "tokens": units must not be negative, got -5; to lower the sum, call Settle`},
		{ctxOf("POST /", m), "at-once", 5, `middleware: add: rule "at-once": 50 in flight counts no units`},
		{ctxOf("POST /", m), "pace", 5, `middleware: add: rule "pace": 1000000/1s burst 9 leaky_bucket counts no units`},
	} {
		err := ratelimit.Add(c.ctx, c.rule, c.units)
		if got := fmt.Sprint(err); (err != nil) != (c.err != "") || !strings.HasPrefix(got, c.err) && c.err != "" {
			t.Errorf("Add to %q: %v, want %q", c.rule, err, c.err)
		}
		unknown := strings.Contains(c.err, "no such rule")
		if errors.Is(err, ratelimit.ErrNoRule) != unknown {
			t.Errorf("Add to %q: %v", c.rule, err)
		}
		if err := ratelimit.Settle(c.ctx, c.rule, max(c.units, 0)); errors.Is(err, ratelimit.ErrNoRule) != unknown || unknown && err.Error() != c.err {
			t.Errorf("Settle of %q: %v, want %q", c.rule, err, c.err)
		}
	}
	if err := ratelimit.Settle(over, "tokens", 5); err != nil { // a Hold keeps it
		t.Error(err)
	}
	if err := ratelimit.Settle(over, "at-once", 0); err == nil || !strings.Contains(err.Error(), "is free when the request is over") {
		t.Errorf("Settle of a place in flight: %v", err)
	}
}

var tooTight = ratelimit.Rule{Name: "tight", Key: keyfunc.IP, Limit: algorithms.PerHour(2), CostFor: func(*http.Request) int64 { return 3 }}

// An Add that asks for too much does not deny those that ask beside it.
func TestAddsBesideOneThatIsDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := mustNew(t, ratelimit.Config{Limiter: &hook{takes: time.Millisecond}, Rules: []ratelimit.Rule{perHour("units", 100)}}).
			Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				for i, units := range []int64{10, 1, 1000, 1} { // the first is under way while the others arrive
					go func() {
						if err := ratelimit.Add(r.Context(), "units", units); (err == nil) != (units < 1000) {
							t.Errorf("Add %d of %d units: %v", i, units, err)
						}
					}()
					synctest.Wait()
				}
				time.Sleep(time.Second)
			}))
		serve(h, "GET /")
		if got := serve(h, "GET /").Header().Get("X-RateLimit-Remaining"); got != "87" { // 12 and this request
			t.Errorf("%s left", got)
		}
	})
}

// The sum of a rule in shadow has no bound but that of its type.
func TestAddInShadowDoesNotOverflow(t *testing.T) {
	var got int64
	rule := perHour("units", 100)
	rule.Shadow = true
	h := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{rule},
		Settled: func(_ *http.Request, d algorithms.Decision) { got = d.Results[0].Charged }}).
		Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			for range 2 {
				if err := ratelimit.Add(r.Context(), "units", math.MaxInt64); err != nil {
					t.Error(err)
				}
			}
		}))
	serve(h, "GET /")
	if got <= 100 {
		t.Errorf("charged %d", got)
	}
}

package middleware_test

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/admin"
)

// An audit decorates a limiter, as an application might.
type audit struct{ algorithms.Limiter }

func (a audit) Unwrap() algorithms.Limiter { return a.Limiter }

// A listed limiter has a list, whose elements point to each other, and itself.
type listed struct {
	itself *listed
	recent *list.List
	algorithms.Limiter
}

func listing(l algorithms.Limiter) *listed {
	d := &listed{recent: list.New(), Limiter: l}
	d.itself = d
	d.recent.PushBack(d)
	return d
}

// A hiding decorator has no Unwrap.
type hiding struct{ limiter algorithms.Limiter }

func (h hiding) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	return h.limiter.Take(ctx, checks...)
}
func (h hiding) Peek(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	return h.limiter.Peek(ctx, checks...)
}
func (h hiding) Settle(ctx context.Context, charges ...algorithms.Charge) ([]algorithms.Result, error) {
	return h.limiter.Settle(ctx, charges...)
}
func (h hiding) Reset(ctx context.Context, checks ...algorithms.Check) error {
	return h.limiter.Reset(ctx, checks...)
}

func TestNewRefusesLimitersThatCannotWork(t *testing.T) {
	var nilClient *redis.Client
	var nilMemory *algorithms.Memory
	redisOf := func(client algorithms.Client, namespace string) *algorithms.Redis {
		return &algorithms.Redis{Client: client, Namespace: namespace}
	}
	client := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { _ = client.Close() })
	good := redisOf(client, "n")
	const bare = "middleware: limiter: a bare *algorithms.Redis has no fail modes; write Limiter: ratelimit.Redis("
	for _, c := range []struct {
		limiter algorithms.Limiter
		want    string // the beginnings of all errors; "" means none
	}{
		{nil, ""},
		{nilMemory, "middleware: limiter: a nil *algorithms.Memory; leave Limiter out"},
		{(*failmode.Guard)(nil), "middleware: limiter: a nil *failmode.Guard"},
		{good, bare},
		{audit{good}, bare},
		{audit{audit{good}}, bare},
		{hiding{good}, "middleware: limiter: middleware_test.hiding hides the *algorithms.Redis in it; give it the method Unwrap() algorithms.Limiter"},
		{&hiding{audit{good}}, "middleware: limiter: *middleware_test.hiding hides the *algorithms.Redis in it"},
		{hiding{&failmode.Guard{Limiter: good}}, "middleware: limiter: middleware_test.hiding hides the *failmode.Guard in it"},
		{audit{hiding{good}}, "middleware: limiter: middleware_test.hiding hides the *algorithms.Redis in it"},
		{hiding{new(algorithms.Memory)}, ""},
		{listing(good), "middleware: limiter: *middleware_test.listed hides the *algorithms.Redis in it"},
		{listing(new(algorithms.Memory)), ""},
		{&failmode.Guard{Limiter: hiding{good}}, ""},
		{failmode.Redis[redis.Options](nil, "n"), "middleware: limiter: client: required"},
		{failmode.Redis(&redis.Options{}, "a b"), "middleware: limiter: namespace: \"a b\""},
		{struct{ algorithms.Limiter }{}, "middleware: limiter: struct { algorithms.Limiter } embeds a nil Limiter, so a method that it does not have itself panics"},
		{redisOf(nil, "n"), bare + "\nmiddleware: limiter: client: required"},
		{&failmode.Guard{Limiter: good}, ""},
		{&failmode.Guard{Limiter: audit{good}}, ""},
		{audit{&failmode.Guard{Limiter: good}}, ""},
		{&failmode.Guard{Limiter: new(algorithms.Memory)}, ""},
		{audit{new(algorithms.Memory)}, ""},
		{new(failing), ""},
		{audit{nil}, "middleware: limiter: middleware_test.audit wraps no limiter: its Unwrap returns nil"},
		{itself{new(algorithms.Memory)}, "middleware: limiter: middleware_test.itself wraps itself, or more than 32 limiters"},
		{&failmode.Guard{Limiter: itself{good}}, "middleware: limiter: *failmode.Guard wraps itself, or more than 32 limiters"},
		{&failmode.Guard{}, "middleware: limiter: limiter: required"},
		{audit{&failmode.Guard{}}, "middleware: limiter: limiter: required"},
		{&failmode.Guard{Limiter: redisOf(nil, "n")}, "middleware: limiter: client: required"},
		{&failmode.Guard{Limiter: redisOf(nilClient, "n")}, "middleware: limiter: client: required, got"},
		{&failmode.Guard{Limiter: redisOf(client, "")}, "middleware: limiter: namespace: required"},
		{&failmode.Guard{Limiter: good, Instances: -1}, "middleware: limiter: instances: must not be"},
		{&failmode.Guard{Limiter: &algorithms.Redis{Client: client, Namespace: "a b", Budget: -1}, Instances: -1},
			"middleware: limiter: namespace: \"a b\"\nmiddleware: limiter: budget: must be from 1 ms to a minute\nmiddleware: limiter: instances: must not be negative"},
	} {
		_, err := ratelimit.New(ratelimit.Config{Limiter: c.limiter, Rules: []ratelimit.Rule{perHour("r", 1)}})
		if c.want == "" && err == nil {
			continue
		}
		if err == nil || !slices.EqualFunc(strings.Split(err.Error(), "\n"), strings.Split(c.want, "\n"), strings.HasPrefix) {
			t.Errorf("%T: got %v, want %q", c.limiter, err, c.want)
		}
	}
	if _, err := ratelimit.New(ratelimit.Config{Limiter: new(algorithms.Memory)}); err == nil || !strings.Contains(err.Error(), "rules: at least one is required") {
		t.Errorf("no rules: %v", err)
	}
}

// A limiter that fails for one rule and says nothing of another has decided neither. An enforced
// rule that was decided and denies answers 429, whatever else failed.
func TestALimiterThatSaysNothingOfARule(t *testing.T) {
	open, closed := perHour("open", 5), perHour("closed", 5)
	open.Fail, closed.Fail = failmode.Open, failmode.Closed
	limiter := &answers{d: algorithms.Decision{Results: []algorithms.Result{{Err: errors.New("away")}, {}}}}
	if w := serve(mustNew(t, ratelimit.Config{Limiter: limiter, Rules: []ratelimit.Rule{open, closed}}).Handler(ok), "GET /"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d", w.Code)
	}
	limiter = &answers{d: algorithms.Decision{Results: []algorithms.Result{{Err: errors.New("away")}, {Source: algorithms.SourceOther}, {}}}}
	if w := serve(mustNew(t, ratelimit.Config{Limiter: limiter, Rules: []ratelimit.Rule{open, perHour("denies", 5), closed}}).Handler(ok), "GET /"); w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), `["denies"]`) {
		t.Errorf("a denial: %d %s", w.Code, w.Body)
	}
}

// A failing limiter is one that never decides.
type failing struct{ algorithms.Memory }

func (*failing) Take(context.Context, ...algorithms.Check) (algorithms.Decision, error) {
	return algorithms.Decision{}, errors.New("away")
}

// modes are rules that apply to every request, one for each mode of a name.
func modes(byName map[string]failmode.Mode) (rules []ratelimit.Rule) {
	for _, name := range []string{"first", "second", "third"} {
		if mode, ok := byName[name]; ok {
			rules = append(rules, ratelimit.Rule{Name: name, Key: keyfunc.IP, Limit: algorithms.PerHour(10), Fail: mode})
		}
	}
	return rules
}

// A limiter that is neither Guard nor Memory may fail: rules in mode open pass,
// all others answer 503.
func TestALimiterThatFailsPassesOnlyOpenRules(t *testing.T) {
	for name, c := range map[string]struct {
		limiter algorithms.Limiter
		modes   map[string]failmode.Mode
		status  int
	}{
		"open":                       {new(failing), map[string]failmode.Mode{"first": failmode.Open}, http.StatusNoContent},
		"closed":                     {new(failing), map[string]failmode.Mode{"first": failmode.Closed}, http.StatusServiceUnavailable},
		"local, which nobody counts": {new(failing), map[string]failmode.Mode{"first": failmode.Local}, http.StatusServiceUnavailable},
		"open and closed":            {new(failing), map[string]failmode.Mode{"first": failmode.Open, "second": failmode.Closed}, http.StatusServiceUnavailable},
		"decorated":                  {audit{new(failing)}, map[string]failmode.Mode{"first": failmode.Open, "second": failmode.Open}, http.StatusNoContent},
		"part of it, open":           {losing("second"), map[string]failmode.Mode{"first": failmode.Local, "second": failmode.Open}, http.StatusNoContent},
		"part of it, closed":         {losing("second"), map[string]failmode.Mode{"first": failmode.Local, "second": failmode.Closed}, http.StatusServiceUnavailable},
		"part of it, local":          {losing("first"), map[string]failmode.Mode{"first": failmode.Local, "second": failmode.Open}, http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			m := mustNew(t, ratelimit.Config{Limiter: c.limiter, Rules: modes(c.modes), Headers: bothFields})
			w := serve(m.Handler(ok), "GET /")
			if w.Code != c.status {
				t.Errorf("status %d, want %d", w.Code, c.status)
			}
			if w.Code == http.StatusServiceUnavailable && (w.Header().Get("Retry-After") != "1" || strings.Contains(w.Body.String(), "away")) {
				t.Errorf("%v %s", w.Header(), w.Body)
			}
			for _, lost := range []string{"first", "second"} { // what nobody counted is not shown
				if l, ok := c.limiter.(*hook); (!ok || l.loses == lost) && strings.Contains(w.Header().Get("RateLimit"), lost) {
					t.Errorf("%v", w.Header())
				}
			}
		})
	}
}

// losing is a limiter that counts, but never the checks of one rule.
func losing(rule string) *hook {
	return &hook{loses: rule, result: func(r *algorithms.Result) error {
		if r.Check.Rule == rule {
			*r = algorithms.Result{Check: r.Check, Err: errors.New("away")}
		}
		return nil
	}}
}

// A request that is answered 503 was not served: the rules that were decided get
// their charges back.
func TestAFailureGivesBackTheOtherCharges(t *testing.T) {
	l := losing("second")
	m := mustNew(t, ratelimit.Config{Limiter: l, Rules: modes(map[string]failmode.Mode{"first": failmode.Local, "second": failmode.Closed, "third": failmode.Open})})
	h := m.Handler(ok)
	for range 10 { // every limit
		if w := serve(h, "GET /"); w.Code != http.StatusServiceUnavailable {
			t.Fatalf("status %d", w.Code)
		}
	}
	for _, rule := range []string{"first", "third"} {
		d, err := l.Memory.Peek(t.Context(), algorithms.Check{Rule: rule, Key: "192.0.2.1", Limit: algorithms.PerHour(10)})
		if err != nil || d.Results[0].Remaining != 10 {
			t.Errorf("%s: %+v, %v", rule, d.Results, err)
		}
	}
	if !slices.Equal(l.settled, slices.Repeat([]string{"first", "third"}, 10)) {
		t.Errorf("settled %q", l.settled)
	}
}

// heeding is a limiter that heeds its context, as a database's client does.
type heeding struct{ algorithms.Memory }

func (l *heeding) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	if err := ctx.Err(); err != nil {
		return algorithms.Decision{}, err
	}
	if _, bounded := ctx.Deadline(); !bounded {
		return algorithms.Decision{}, errors.New("without a bound")
	}
	return l.Memory.Take(ctx, checks...)
}

func (l *heeding) Settle(ctx context.Context, charges ...algorithms.Charge) ([]algorithms.Result, error) {
	if _, bounded := ctx.Deadline(); !bounded || ctx.Err() != nil {
		return nil, errors.New("without a bound, or over")
	}
	return l.Memory.Settle(ctx, charges...)
}

// What is taken, settled, released and refunded by a limiter of the user's own is bounded in
// time, and not by the client: who hangs up is counted, also by a rule that fails open.
func TestOtherLimitersAreBoundedByNoClient(t *testing.T) {
	l, rule, places := new(heeding), tokens(100, 40), ratelimit.Rule{Name: "at-once", Key: keyfunc.IP, Limit: algorithms.MaxInFlight(1)}
	pace := ratelimit.Rule{Name: "pace", Key: keyfunc.IP, Limit: algorithms.Limit{Rate: 1, Period: time.Hour, Burst: 9, Algorithm: algorithms.LeakyBucket}}
	rule.Fail, places.Fail, pace.Fail = failmode.Open, failmode.Open, failmode.Open
	h := mustNew(t, ratelimit.Config{Limiter: l, Rules: []ratelimit.Rule{rule, places, pace}}).
		Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _ = ratelimit.Settle(r.Context(), "tokens", 7) }))
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	for range 2 { // the second gives its slot back
		h.ServeHTTP(httptest.NewRecorder(), request("POST /").WithContext(ctx))
		hangUp()
	}
	if a, b, c := used(t, l, rule), used(t, l, places), used(t, l, pace)+pace.Limit.Burst-pace.Limit.Rate; a != 47 || b != 0 || c != 1 {
		t.Errorf("%d tokens, %d in flight and %d slots are counted, want 47, 0 and 1", a, b, c)
	}
}

func TestALimiterThatFailsIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, log := logged(t, ratelimit.Config{Limiter: new(failing), DenialLogRate: -1, Rules: []ratelimit.Rule{perHour("r", 1)}})
		h := m.Handler(ok)
		times(100, h, "GET /")
		time.Sleep(time.Second)
		times(100, h, "GET /")
		want := `level=ERROR msg="ratelimit: limiter failed; rules in mode open pass, all others answer 503" error=away`
		if got := lines(log); !slices.Equal(got, []string{want, want}) {
			t.Errorf("logged\n%s", strings.Join(got, "\n"))
		}
	})
}

// takesOnly is a limiter of a user's own that can only take.
type takesOnly struct{ counts algorithms.Memory }

var errTakesOnly = fmt.Errorf("takesOnly: %w", errors.ErrUnsupported)

func (l *takesOnly) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	return l.counts.Take(ctx, checks...)
}

func (*takesOnly) Peek(context.Context, ...algorithms.Check) (algorithms.Decision, error) {
	return algorithms.Decision{}, errTakesOnly
}

func (*takesOnly) Settle(context.Context, ...algorithms.Charge) ([]algorithms.Result, error) {
	return nil, errTakesOnly
}

func (*takesOnly) Reset(context.Context, ...algorithms.Check) error { return errTakesOnly }

// A limiter need not do more than take: requests are limited, and the caller who wants
// more of it is told that it cannot, or the log is. With a Guard that is no failure of the limiter:
// nothing is decided in its place, and no circuit opens.
func TestALimiterThatOnlyTakes(t *testing.T) {
	guard := &failmode.Guard{Limiter: new(takesOnly)}
	defer guard.Close()
	for name, l := range map[string]algorithms.Limiter{"alone": new(takesOnly), "in a Guard": guard} {
		t.Run(name, func(t *testing.T) {
			rule := perHour("r", 2)
			rule.Ban = ratelimit.Ban{After: 100, For: 24 * time.Hour}
			m, log := logged(t, ratelimit.Config{Limiter: l, DenialLogRate: -1, Rules: []ratelimit.Rule{rule}})
			h := m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if err := ratelimit.Settle(r.Context(), "r", 0); err != nil {
					t.Error(err)
				}
			}))
			for _, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
				if w := serve(h, "GET /"); w.Code != want {
					t.Errorf("status %d, want %d", w.Code, want)
				}
			}
			for range 50 { // more than would open a circuit
				if d, err := m.Peek(httptest.NewRequest(http.MethodGet, "/", nil)); !errors.Is(err, errors.ErrUnsupported) {
					t.Fatalf("Peek: %+v, %v", d, err)
				}
			}
			if !strings.Contains(log.String(), "charges not settled") || strings.Count(log.String(), "\n") != 1 {
				t.Errorf("logged\n%s", log)
			}
			for _, action := range []string{"reset", "ban&for=1m"} {
				r, w := httptest.NewRequest(http.MethodPost, "http://localhost/", strings.NewReader("rule=r&value=192.0.2.1&action="+action)), httptest.NewRecorder()
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				if admin.Handler(m).ServeHTTP(w, r); w.Code != http.StatusNotImplemented {
					t.Errorf("%s: status %d: %s", action, w.Code, w.Body)
				}
			}
			d, err := l.Take(t.Context(), algorithms.Check{Rule: "r", Key: "other", Limit: algorithms.PerHour(2)})
			if err != nil || d.Results[0].Source != algorithms.SourceMemory || d.Results[0].Remaining != 1 {
				t.Errorf("Take: %+v, %v", d, err)
			}
			if settled, err := l.Settle(t.Context(), algorithms.Charge{Result: d.Results[0]}); name != "alone" && (!errors.Is(err, errors.ErrUnsupported) || len(settled) != 1 || settled[0].Charged != 1) {
				t.Errorf("Settle: %+v, %v", settled, err)
			}
		})
	}
	if n := openShards(guard); n > 0 {
		t.Errorf("%d circuits are open", n)
	}
}

// itself has a mistake in Unwrap.
type itself struct{ algorithms.Limiter }

func (l itself) Unwrap() algorithms.Limiter { return l }

// answers is a limiter of a user's own that says what it is told to.
type answers struct {
	takesOnly
	d algorithms.Decision
}

func (a *answers) Take(context.Context, ...algorithms.Check) (algorithms.Decision, error) {
	return a.d, nil
}

func (a *answers) Peek(context.Context, ...algorithms.Check) (algorithms.Decision, error) {
	return a.d, nil
}

// What a limiter of a user's own leaves out is filled in, or said in the log, and never
// reaches clients as nonsense.
func TestALimiterThatLeavesSomethingOut(t *testing.T) {
	type result = algorithms.Result
	check := func(rule string) algorithms.Check {
		return algorithms.Check{Rule: rule, Key: "192.0.2.1", Limit: algorithms.PerHour(5), Cost: 1}
	}
	undecided := errors.New("away")
	for name, c := range map[string]struct {
		allowed bool
		results []result
		status  int
		reset   string // X-RateLimit-Reset
		retry   string
		log     string // of the limiter's failure; "" if there is none
	}{
		"nothing":            {status: 503, retry: "1", log: "*middleware_test.answers: 0 results for 2 checks"},
		"nothing, allowed":   {allowed: true, status: 503, retry: "1", log: "0 results for 2 checks: return one for each check, in their order"},
		"a result":           {allowed: true, results: []result{{HasRoom: true}}, status: 503, retry: "1", log: "1 results for 2 checks"},
		"all but HasRoom":    {allowed: true, results: []result{{HasRoom: true}, {HasRoom: true}}, status: 204, reset: "946684800"},
		"At and Check":       {allowed: true, results: []result{{HasRoom: true, ResetAfter: time.Minute, Source: algorithms.SourceOther}, {HasRoom: true, Source: algorithms.SourceOther}}, status: 204, reset: "946684860"},
		"Source":             {results: []result{{Check: check("a"), HasRoom: true}, {Check: check("b"), RetryAfter: 7 * time.Second, ResetAfter: 7 * time.Second}}, status: 429, reset: "946684807", retry: "7"},
		"Source and when":    {results: []result{{Check: check("a"), HasRoom: true}, {Check: check("b")}}, status: 429, reset: "946684800", retry: "1"},
		"who denies":         {results: []result{{HasRoom: true}, {HasRoom: true}}, status: 503, retry: "1", log: "the decision is not Allowed, and every result has room"},
		"HasRoom":            {allowed: true, results: []result{{Source: algorithms.SourceOther}, {HasRoom: true}}, status: 503, retry: "1", log: `the result of rule \"a\" has no room: set HasRoom`},
		"HasRoom and Source": {allowed: true, results: []result{{HasRoom: true}, {}}, status: 503, retry: "1", log: `the result of rule \"b\" has no room`},
		"Allowed":            {results: []result{{HasRoom: true, Err: undecided}, {HasRoom: true}}, status: 503, retry: "1", log: "away"},
		"another rule's":     {allowed: true, results: []result{{HasRoom: true}, {HasRoom: true}, {Check: check("c"), HasRoom: true}}, status: 204, reset: "946684800"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := &answers{d: algorithms.Decision{Allowed: c.allowed, Results: c.results}}
				before := slices.Clone(c.results)
				m, log := logged(t, ratelimit.Config{Limiter: limiter, DenialLogRate: -1, Rules: []ratelimit.Rule{perHour("a", 5), perHour("b", 5)}})
				w := serve(m.Handler(ok), "GET /")
				if w.Code != c.status || w.Header().Get("X-RateLimit-Reset") != c.reset || w.Header().Get("Retry-After") != c.retry {
					t.Errorf("%d %v", w.Code, w.Header())
				}
				if got := log.String(); !strings.Contains(got, c.log) || (c.log == "") != (got == "") {
					t.Errorf("logged %s; want %s", got, c.log)
				}
				if !reflect.DeepEqual(c.results, before) {
					t.Errorf("the limiter's own results were changed: %+v", c.results)
				}
				if d, err := m.Peek(request("GET /")); err != nil || d.Allowed != (c.status == http.StatusNoContent) {
					t.Errorf("Peek: %+v, %v", d, err)
				}
			})
		})
	}
}

package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/view"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/admin"
)

var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })

// times sends a request of a client several times, and returns the last status.
func times(n int, h http.Handler, line string, header ...string) int {
	w := httptest.NewRecorder()
	for range n {
		w = httptest.NewRecorder()
		method, target, _ := strings.Cut(line, " ")
		r := httptest.NewRequest(method, target, nil)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		h.ServeHTTP(w, r)
	}
	return w.Code
}

func mustNew(t testing.TB, c ratelimit.Config) *ratelimit.Middleware {
	t.Helper()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	m, err := ratelimit.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func inMemory(t testing.TB, rules ...ratelimit.Rule) *ratelimit.Middleware {
	t.Helper()
	return mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: rules})
}

func perHour(name string, rate int64, match ...string) ratelimit.Rule {
	return ratelimit.Rule{Name: name, Match: match, Key: keyfunc.IP, Limit: algorithms.PerHour(rate)}
}

// bannable gives a rule a ban that no test reaches, so that operators can ban by it.
func bannable(r ratelimit.Rule) ratelimit.Rule {
	r.Ban = ratelimit.Ban{After: 10_001, Within: time.Hour, For: 24 * time.Hour}
	return r
}

func guardOf(t *testing.T, client algorithms.Client) *failmode.Guard {
	t.Helper()
	guard := &failmode.Guard{Limiter: &algorithms.Redis{Client: client, Namespace: "shop", Budget: 5 * time.Second}, Logger: slog.New(slog.DiscardHandler)}
	t.Cleanup(func() { _ = guard.Close() })
	return guard
}

// limiters are those that a test in fake time can have.
var limiters = map[string]func(*testing.T) algorithms.Limiter{
	"memory": func(*testing.T) algorithms.Limiter { return new(algorithms.Memory) },
	"redis":  func(t *testing.T) algorithms.Limiter { return guardOf(t, limitertest.Redis(t)) },
}

// An operator sends requests to a handler.
type operator struct {
	http.Handler
	t      testing.TB
	accept string // "" is a program's
}

// send sends a request; form is a query, or what is posted.
func (o operator) send(method, form string, header ...string) *httptest.ResponseRecorder {
	var r *http.Request
	if method == http.MethodPost {
		r = httptest.NewRequest(method, "http://localhost/ratelimit/", strings.NewReader(form))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	} else {
		r = httptest.NewRequest(method, "http://localhost/ratelimit/?"+form, nil)
	}
	r.Header.Set("Accept", o.accept)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	o.ServeHTTP(w, r)
	return w
}

// do sends a request, and follows its redirect.
func (o operator) do(method, form string, header ...string) *httptest.ResponseRecorder {
	w := o.send(method, form, header...)
	if query, ok := strings.CutPrefix(w.Header().Get("Location"), "?"); ok && w.Code == http.StatusSeeOther {
		return o.get(query)
	}
	return w
}

func (o operator) get(query string) *httptest.ResponseRecorder {
	return o.do(http.MethodGet, query)
}

func (o operator) post(form string) *httptest.ResponseRecorder { return o.do(http.MethodPost, form) }

// browser is an operator with one.
func (o operator) browser() operator {
	o.accept = "text/html,application/xhtml+xml,*/*;q=0.8"
	return o
}

// each is what a client has left by each of its limits, and which of them apply.
func (o operator) each(w *httptest.ResponseRecorder) (left []int64, applies []string) {
	o.t.Helper()
	var client struct {
		Counts []struct {
			Remaining int64
			Applies   string
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &client); err != nil || w.Code != http.StatusOK || len(client.Counts) == 0 {
		o.t.Fatalf("%d %s, %v", w.Code, w.Body, err)
	}
	for _, c := range client.Counts {
		left, applies = append(left, c.Remaining), append(applies, c.Applies)
	}
	return left, applies
}

// left is what a client has left by its rule's own limit.
func (o operator) left(w *httptest.ResponseRecorder) int64 {
	o.t.Helper()
	left, _ := o.each(w)
	return left[0]
}

// A listed ban is one of the overview.
type listed struct {
	Rule, Key, ID, By, Since string
	EndsIn                   float64 `json:"ends_in"`
}

func (o operator) bans() []listed {
	o.t.Helper()
	var overview struct{ Bans []listed }
	if err := json.Unmarshal(o.get("").Body.Bytes(), &overview); err != nil {
		o.t.Fatal(err)
	}
	return overview.Bans
}

func TestAdminLooksAndResets(t *testing.T) {
	for name, limiter := range limiters {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				m := mustNew(t, ratelimit.Config{Limiter: limiter(t), Rules: []ratelimit.Rule{perHour("a", 5, "/a"), perHour("b", 9)},
					Logger: slog.New(slog.NewTextHandler(&log, nil)), LogKeys: true, DenialLogRate: -1})
				log.Reset() // of hints
				o, app := operator{admin.Handler(m), t, ""}, m.Handler(ok)
				times(4, app, "GET /a")
				if a, b := o.left(o.get("rule=a&value=192.0.2.1")), o.left(o.post("action=peek&rule=b&value=192.0.2.1")); a != 1 || b != 5 {
					t.Errorf("%d and %d left, want 1 and 5", a, b)
				}
				if log.Len() > 0 {
					t.Errorf("looking is logged: %s", &log)
				}
				if left := o.left(o.post("action=reset&rule=a&value=192.0.2.1")); left != 5 {
					t.Errorf("%d left after a reset", left)
				}
				if a, b := o.left(o.get("rule=a&value=192.0.2.1")), o.left(o.get("rule=b&value=192.0.2.1")); a != 5 || b != 5 {
					t.Errorf("%d and %d left, want 5 and 5", a, b)
				}
				if status := times(1, app, "GET /a"); status != http.StatusNoContent {
					t.Error(status)
				}
				if want := `level=INFO msg="ratelimit: changed by an operator" action=reset rule=a keys=[192.0.2.1] from=192.0.2.1:1234`; strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), want) {
					t.Errorf("the log has %s", &log)
				}
			})
		})
	}
}

// "used is N" sets one count, also above its limit, and leaves the others.
func TestAdminSetsWhatIsUsed(t *testing.T) {
	for name, limiter := range limiters {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				plan := perHour("plan", 5)
				plan.Limits, plan.Limit = []algorithms.Limit{plan.Limit, algorithms.PerMonth(100, "UTC")}, algorithms.Limit{}
				plan.Ban = ratelimit.Ban{After: 100, Within: time.Minute, For: time.Hour}
				bucket, held, tiers := perHour("bucket", 5), perHour("held", 5), perHour("tiers", 5)
				tiers.Tiers = map[string][]algorithms.Limit{"pro": {algorithms.PerHour(50)}} // in the same count
				buckets := tiers
				buckets.Name, buckets.Limit.Algorithm = "buckets", algorithms.TokenBucket
				buckets.Tiers = map[string][]algorithms.Limit{"pro": {{Rate: 50, Period: time.Hour, Algorithm: algorithms.TokenBucket}}}
				bucket.Limit.Algorithm, held.Limit = algorithms.TokenBucket, algorithms.MaxInFlight(3)
				m := mustNew(t, ratelimit.Config{Limiter: limiter(t), Rules: []ratelimit.Rule{plan, bucket, held, tiers, buckets}, TierFor: func(*http.Request) string { return "" },
					Logger: slog.New(slog.NewTextHandler(&log, nil)), DenialLogRate: -1})
				o, app := operator{admin.Handler(m), t, ""}, m.Handler(ok)
				want := func(step, form string, left ...int64) {
					t.Helper()
					if got, _ := o.each(o.post("action=used&value=192.0.2.1&" + form)); !slices.Equal(got, left) {
						t.Errorf("%s: %d left, want %d", step, got, left)
					}
				}
				times(2, app, "GET /")
				log.Reset()
				const month = "rule=plan&limit=100/month@UTC"
				want("restored", month+"&n=40", 3, 60)
				want("topped up", month+"&n=10", 3, 90)
				if want := "action=used rule=plan "; strings.Count(log.String(), want) != 2 || !strings.Contains(log.String(), ` n=40 limit="100/month@UTC calendar_window"`) {
					t.Errorf("the log has %s", &log)
				}
				o.post("action=ban&for=15m&rule=plan&value=192.0.2.1")
				if o.post("action=used&value=192.0.2.1&rule=plan&n=1"); len(o.bans()) != 1 {
					t.Errorf("an order that is refused ends a ban: %v", o.bans())
				}
				want("above the limit", month+"&n=150", 3, -50)
				if status := times(1, app, "GET /"); status != http.StatusTooManyRequests {
					t.Errorf("%d with 150 of 100 used", status)
				}
				want("nothing", "rule=plan&limit=100/month@UTC+calendar_window&n=0", 3, 100)
				if status := times(1, app, "GET /"); status != http.StatusNoContent {
					t.Errorf("%d: the ban was not lifted", status)
				}
				want("a bucket", "rule=bucket&n=5", 0)

				for form, says := range map[string]string{
					"rule=plan&n=1":                                  "2 counts are meant; send the limit of one",
					"rule=plan&n=1&limit=1/h":                        "0 counts are meant",
					"rule=tiers&n=10":                                "",
					"rule=buckets&n=1":                               "several limits share this count",
					"rule=buckets&n=1&tier=":                         "",
					"rule=plan&n=1&limit=1":                          `limit: `,
					"rule=bucket&n=6":                                "at most 5 can be used, got 6",
					"rule=held&n=1":                                  "3 in flight counts nothing that could be set",
					"rule=bucket":                                    "send one such as n=0 or n=4000",
					"rule=bucket&n=-1":                               "is no number of units",
					"rule=bucket&n=99999999999999999999":             "is no number of units",
					month + "&n=" + fmt.Sprint(int64(math.MaxInt64)): "not all of it was charged again",
					"rule=bucket&n=1&value=192.0.2.2":                "takes one value, got 2",
				} {
					if w := o.post("action=used&value=192.0.2.1&" + form); (w.Code < 400) != (says == "") || !strings.Contains(w.Body.String(), says) {
						t.Errorf("%s: %d %s, want %s", form, w.Code, w.Body, says)
					}
				}
				page := o.browser().get("rule=plan&value=192.0.2.1").Body.String()
				if strings.Count(page, `value="used">`) != 2 || !strings.Contains(page, `<input type="hidden" name="limit" value="100/month@UTC calendar_window">`) {
					t.Error(page)
				}
			})
		})
	}
}

// "used is N" works under every rule whose count can be set, whatever else the rule has,
// and the next request is decided by it.
func TestAdminSetsWhatIsUsedUnderEveryRule(t *testing.T) {
	limits := []string{"5/1h fixed_window", "5/1h sliding_window", "5/1h sliding_log", "5/1h token_bucket", "5/1h gcra", "5/month@UTC"}
	options := map[string]func(*ratelimit.Rule){
		"plain":     func(*ratelimit.Rule) {},
		"ban":       func(r *ratelimit.Rule) { r.Ban = ratelimit.Ban{After: 3, Within: time.Minute, For: time.Hour} },
		"sync":      func(r *ratelimit.Rule) { r.Sync = time.Second },
		"shadow":    func(r *ratelimit.Rule) { r.Shadow = true },
		"enforce":   func(r *ratelimit.Rule) { r.Shadow, r.Enforce = true, 1 },
		"charge_on": func(r *ratelimit.Rule) { r.ChargeOn = []int{http.StatusNoContent} },
		"cost":      func(r *ratelimit.Rule) { r.Cost = 2 },
		"several": func(r *ratelimit.Rule) {
			r.Limits, r.Limit = []algorithms.Limit{r.Limit, algorithms.PerSecond(1000)}, algorithms.Limit{}
		},
		"override": func(r *ratelimit.Rule) {
			r.Overrides = []ratelimit.Override{{Client: []string{"192.0.2.1"}, Limits: []algorithms.Limit{r.Limit}}}
		},
		"shadow, ban": func(r *ratelimit.Rule) {
			r.Shadow, r.Ban = true, ratelimit.Ban{After: 3, Within: time.Minute, For: time.Hour}
		},
		"override, ban": func(r *ratelimit.Rule) {
			r.Overrides, r.Ban = []ratelimit.Override{{Client: []string{"192.0.2.1"}, Limits: []algorithms.Limit{r.Limit}}}, ratelimit.Ban{After: 3, Within: time.Minute, For: time.Hour}
		},
	}
	for store, limiter := range limiters {
		t.Run(store, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				set := 0
				for _, limit := range limits {
					for option, change := range options {
						rule := ratelimit.Rule{Name: "r", Key: keyfunc.IP}
						rule.Limit, _ = algorithms.ParseLimit(limit)
						change(&rule)
						m, err := ratelimit.New(ratelimit.Config{Limiter: limiter(t), Rules: []ratelimit.Rule{rule}, Logger: slog.New(slog.DiscardHandler)})
						if err != nil {
							continue // a limit that the option does not allow
						}
						set++
						o, app := operator{admin.Handler(m), t, ""}, m.Handler(ok)
						times(4, app, "GET /")
						if !rule.Shadow {
							o.post("action=ban&for=15m&rule=r&value=192.0.2.1")
						}
						form := "action=used&rule=r&value=192.0.2.1&override=&limit=" + url.QueryEscape(limit)
						if left := o.left(o.post(form + "&n=1")); left != 4 {
							t.Errorf("%s, %s: %d left of 5 after used=1", limit, option, left)
						}
						if len(o.bans()) > 0 {
							t.Errorf("%s, %s: the ban stays", limit, option)
						}
						if status := times(1, app, "GET /"); status != http.StatusNoContent {
							t.Errorf("%s, %s: %d after used=1", limit, option, status)
						}
						o.left(o.post(form + "&n=5"))
						want := http.StatusTooManyRequests
						if rule.Shadow && rule.Enforce == 0 {
							want = http.StatusNoContent
						}
						if status := times(1, app, "GET /"); status != want {
							t.Errorf("%s, %s: %d after used=5, want %d", limit, option, status, want)
						}
					}
				}
				if set < 50 {
					t.Errorf("%d rules were tried", set)
				}
			})
		})
	}
}

// A ban by hand holds until it ends, or is lifted; counts stay.
func TestAdminBansAndUnbans(t *testing.T) {
	for name, limiter := range limiters {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := mustNew(t, ratelimit.Config{Limiter: limiter(t), Rules: []ratelimit.Rule{bannable(perHour("a", 5))}})
				o, app := operator{admin.Handler(m), t, ""}, m.Handler(ok)
				want := func(step string, status int, banned bool) {
					t.Helper()
					if got := times(1, app, "GET /"); got != status {
						t.Errorf("%s: %d, want %d", step, got, status)
					}
					if text := o.get("rule=a&value=192.0.2.1").Body.String(); strings.Contains(text, `"banned": true`) != banned {
						t.Errorf("%s: %s", step, text)
					}
					if page := o.browser().get("rule=a&value=192.0.2.1").Body.String(); strings.Contains(page, ">banned<") != banned || strings.Contains(page, `<b>15m0s</b> until the ban ends`) != banned {
						t.Errorf("%s: %s", step, page)
					}
				}
				want("at first", http.StatusNoContent, false)
				for _, ends := range []func(){
					func() {
						if left := o.left(o.post("action=unban&rule=a&value=192.0.2.1")); left != 4 {
							t.Errorf("%d left, want what was left before the ban", left)
						}
					},
					func() { time.Sleep(15*time.Minute + time.Second) },
					func() { o.post("action=reset&rule=a&value=192.0.2.1") },
				} {
					if w := o.post("action=ban&for=15m&rule=a&value=192.0.2.1"); w.Code != http.StatusOK {
						t.Fatalf("%d %s", w.Code, w.Body)
					}
					want("banned", http.StatusTooManyRequests, true)
					ends()
					want("over", http.StatusNoContent, false)
				}
			})
		})
	}
}

// A ban that would deny nothing is refused with the reason, and is in no list.
func TestAdminBansOnlyWhereItDenies(t *testing.T) {
	until := func(d time.Duration) []ratelimit.Override {
		return []ratelimit.Override{{Client: []string{"1:192.0.2.1"}, Limits: ratelimit.Unlimited(), Until: time.Now().Add(d)}}
	}
	for name, tt := range map[string]struct {
		change func(*ratelimit.Rule)
		why    string // "" bans
	}{
		"plain":             {func(*ratelimit.Rule) {}, ""},
		"no ban":            {func(r *ratelimit.Rule) { r.Ban = ratelimit.Ban{} }, "the rule has no ban, so its requests look at none"},
		"shadow":            {func(r *ratelimit.Rule) { r.Shadow = true }, "the rule is in shadow for this client"},
		"shadow, enforced":  {func(r *ratelimit.Rule) { r.Shadow, r.Enforce = true, 1 }, ""},
		"unlimited":         {func(r *ratelimit.Rule) { r.Overrides = until(time.Hour) }, "an override makes this client unlimited"},
		"once unlimited":    {func(r *ratelimit.Rule) { r.Overrides = until(-time.Hour) }, ""},
		"another unlimited": {func(r *ratelimit.Rule) { r.Overrides = until(time.Hour); r.Overrides[0].Client[0] = "1:192.0.2.7" }, ""},
		"limited": {func(r *ratelimit.Rule) {
			r.Overrides = until(time.Hour)
			r.Overrides[0].Limits = []algorithms.Limit{r.Limit}
		}, ""},
		// The value is also a key that is limited.
		"one key of two": {func(r *ratelimit.Rule) {
			r.Key, r.Overrides = keyfunc.First(keyfunc.IP, keyfunc.Header("User")), until(time.Hour)
		}, ""},
		"one key of two, in shadow": {func(r *ratelimit.Rule) {
			r.Key, r.Overrides, r.Shadow = keyfunc.First(keyfunc.IP, keyfunc.Header("User")), until(time.Hour), true
		}, "a ban would deny nothing"},
	} {
		rule := bannable(perHour("r", 5))
		rule.Key = keyfunc.First(keyfunc.IP)
		tt.change(&rule)
		o := operator{admin.Handler(inMemory(t, rule)), t, ""}
		w := o.post("action=ban&for=15m&rule=r&value=192.0.2.1")
		if status := o.browser().post("action=ban&for=15m&rule=r&value=192.0.2.1").Code; status != w.Code {
			t.Errorf("%s: a browser gets %d", name, status)
		}
		want, listed := http.StatusOK, 1
		if tt.why != "" {
			want, listed = http.StatusConflict, 0
		}
		if name == "one key of two" {
			listed = 2
		}
		if w.Code != want || !strings.Contains(w.Body.String(), tt.why) || len(o.bans()) != listed {
			t.Errorf("%s: %d %s, %v", name, w.Code, w.Body, o.bans())
		}
	}
}

// A bans is a limiter that remembers what it is asked to ban.
type bans struct {
	algorithms.Memory
	asked []string
	err   error
}

// Peek is how a ban begins, and Reset of its counts how it ends.
func (b *bans) Peek(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	if c := checks[0]; !c.Look && strings.HasSuffix(c.Rule, "~ban") {
		b.asked = append(b.asked, fmt.Sprint(time.Duration(c.Limit.Burst-1)*time.Second, " ", c.Rule, " ", c.Key))
		if b.err != nil {
			return algorithms.Decision{}, b.err
		}
	}
	return b.Memory.Peek(ctx, checks...)
}

func (b *bans) Reset(ctx context.Context, checks ...algorithms.Check) error {
	for _, c := range checks {
		if strings.HasSuffix(c.Rule, "~ban") {
			b.asked = append(b.asked, fmt.Sprint("0s ", c.Rule, " ", c.Key))
		}
	}
	return errors.Join(b.err, b.Memory.Reset(ctx, checks...))
}

func TestAdminBans(t *testing.T) {
	var log bytes.Buffer
	limiter := new(bans)
	m := mustNew(t, ratelimit.Config{Limiter: limiter, Rules: []ratelimit.Rule{bannable(perHour("a", 5))}, Logger: slog.New(slog.NewTextHandler(&log, nil)), LogKeys: true})
	o := operator{admin.Handler(m), t, ""}
	for form, want := range map[string]string{
		"action=ban&rule=a&value=2001:db8::1&for=15m": "15m0s a~ban 2001:db8::/64",
		"action=ban&rule=a&value=2001:db8::1&for=30d": "720h0m0s a~ban 2001:db8::/64",
		"action=unban&rule=a&value=2001:db8::1":       "0s a~ban 2001:db8::/64",
		// of no use to who lifts a ban, and no ban
		"action=unban&rule=a&value=2001:db8::1&for=15m": "0s a~ban 2001:db8::/64",
	} {
		limiter.asked = nil
		if w := o.post(form); w.Code != http.StatusOK || len(limiter.asked) != 1 || limiter.asked[0] != want {
			t.Errorf("%s: %d %s, %q", form, w.Code, w.Body, limiter.asked)
		}
	}
	limiter.asked = nil
	for _, length := range []string{"", "0", "0s", "-1m", "15", "1e3s", "15m token_bucket", "1m burst 3", " 15m", "forever", "9999999999h", strings.Repeat("9", 9000) + "m"} {
		w := o.post("action=ban&rule=a&value=2001:db8::1&for=" + url.QueryEscape(length))
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "such as 90s") || w.Body.Len() > 300 {
			t.Errorf("%.20q: %d %.300s", length, w.Code, w.Body)
		}
	}
	if limiter.asked != nil {
		t.Errorf("%q", limiter.asked)
	}
	limiter.err = errors.New("the store is away")
	log.Reset()
	if w := o.post("action=ban&rule=a&value=2001:db8::1&for=1m"); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), `ban: the store is away"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if want := `level=ERROR msg="ratelimit: change by an operator failed" action=ban rule=a keys=[2001:db8::/64]`; !strings.Contains(log.String(), want) {
		t.Error(log.String())
	}
}

// The bans that a process has begun or met are listed until they end, wherever they are
// lifted.
func TestAdminListsBans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, login := limitertest.Redis(t), perHour("login", 2)
		login.Limits = []algorithms.Limit{algorithms.PerMonth(1000, "UTC"), login.Limit} // the first leads to no ban
		login.Limit, login.Ban = algorithms.Limit{}, ratelimit.Ban{After: 3, Within: time.Hour, For: 24 * time.Hour}
		instance := func() (operator, *ratelimit.Middleware) {
			m := mustNew(t, ratelimit.Config{Limiter: guardOf(t, client), LogKeys: true, Rules: []ratelimit.Rule{login, bannable(perHour("plain", 5))}})
			return operator{admin.Handler(m), t, ""}, m
		}
		o, m := instance()
		app := m.Handler(ok)
		other, otherM := instance()
		want := func(step string, o operator, bans ...listed) {
			t.Helper()
			if got := o.bans(); fmt.Sprint(got) != fmt.Sprint(bans) {
				t.Errorf("%s: %+v, want %+v", step, got, bans)
			}
		}
		times(9, app, "POST /")
		time.Sleep(time.Hour)
		o.post("action=ban&for=24h&rule=plain&value=2001:db8::9")
		id := func(key string) string { // any list shows it
			for _, b := range o.bans() {
				if b.Key == key {
					return b.ID
				}
			}
			return ""
		}
		byRule := listed{"login", "192.0.2.1", id("192.0.2.1"), "the rule", "2000-01-01T00:00:00Z", 23 * 3600}
		byHand := listed{"plain", "2001:db8::/64", id("2001:db8::/64"), "an operator at 192.0.2.1:1234", "2000-01-01T01:00:00Z", 24 * 3600}
		want("banned", o, byHand, byRule)
		want("another process", other)
		times(1, otherM.Handler(ok), "POST /")
		byRule.By, byRule.Since = "", "2000-01-01T01:00:00Z"
		want("another process that has met it", other, byRule)
		for _, text := range []string{">Banned<", "<b>23h0m0s</b> left, met, <span class=\"when\">2000-01-01 01:00 UTC<"} {
			if page := other.browser().get("").Body.String(); !strings.Contains(page, text) {
				t.Errorf("no %s:\n%s", text, page)
			}
		}
		other.post("action=unban&rule=login&id=" + byRule.ID)
		want("lifted", other)
		time.Sleep(time.Second)
		want("lifted elsewhere", o, listed{byHand.Rule, byHand.Key, byHand.ID, byHand.By, byHand.Since, 24*3600 - 1})
		time.Sleep(24 * time.Hour)
		want("over", o)
		if err := m.Ban(t.Context(), "plain", time.Hour, "192.0.2.1"); err != nil {
			t.Fatal(err)
		}
		want("by the program", o, listed{"plain", "192.0.2.1", byRule.ID, "the program", "2000-01-02T01:00:01Z", 3600})
	})
}

// A value without a rule is looked up under all rules that count by it, and a client
// without counts is said to have none.
func TestAdminLooksEverywhere(t *testing.T) {
	m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), LogKeys: true, Rules: []ratelimit.Rule{
		perHour("a", 5), bannable(ratelimit.Rule{Name: "user", Key: keyfunc.Header("User"), Limit: algorithms.PerHour(9)}), {Name: "all", Key: keyfunc.Everyone, Limit: algorithms.PerHour(99)},
		{Name: "two", Key: keyfunc.Join(keyfunc.Header("User"), keyfunc.IP), Limit: algorithms.PerHour(9)}, {Name: "key", Key: keyfunc.APIKey("Key"), Limit: algorithms.PerHour(9)},
	}})
	times(2, m.Handler(ok), "GET /", "User", "alice")
	o := operator{admin.Handler(m), t, ""}
	for query, want := range map[string]string{"value=192.0.2.1": "[a 3 user 9 key 9]", "value=alice": "[user 7 key 9]", "value=alice&value=192.0.2.1": "[two 7]"} {
		for _, w := range []*httptest.ResponseRecorder{o.get(query), o.post("action=peek&" + query)} {
			var seen struct {
				Clients []struct {
					Rule   string
					Counts []struct{ Remaining int64 }
				}
			}
			if err := json.Unmarshal(w.Body.Bytes(), &seen); err != nil {
				t.Errorf("%s: %d %s", query, w.Code, w.Body)
			}
			var got []any
			for _, c := range seen.Clients {
				got = append(got, c.Rule, c.Counts[0].Remaining)
			}
			if fmt.Sprint(got) != want {
				t.Errorf("%s: %v, want %s", query, got, want)
			}
		}
	}
	const none = "Nothing is counted for this client."
	page := o.browser().get("value=alice").Body.String()
	if strings.Contains(page, none) || !strings.Contains(page, "Nothing is counted for this client under key.<") || !strings.Contains(page, ">One client of user<") || strings.Contains(page, "<h3>alice</h3>") { // which may be an API key
		t.Error(page)
	}
	for query, want := range map[string]bool{"rule=user&value=alice": false, "rule=user&value=ALICE": true} {
		if page := o.browser().get(query).Body.String(); strings.Contains(page, none) != want {
			t.Errorf("%s: %s", query, page)
		}
	}
	o.post("action=ban&for=1m&rule=user&value=bob")
	if page := o.browser().get("rule=user&value=bob").Body.String(); strings.Contains(page, none) {
		t.Error(page)
	}
}

// The denied most can be looked up without knowing their keys, also where keys
// are hashed and where there is none.
func TestAdminFindsTheDenied(t *testing.T) {
	for _, logKeys := range []bool{false, true} {
		m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), LogKeys: logKeys, Rules: []ratelimit.Rule{
			{Name: "user", Key: keyfunc.Header("User"), Limit: algorithms.PerHour(1)}, {Name: "shadow", Key: keyfunc.Everyone, Limit: algorithms.PerHour(1), Shadow: true},
		}})
		o, app := operator{admin.Handler(m), t, ""}, m.Handler(ok)
		long, fake := strings.Repeat("long", 99), "#"+strings.Repeat("ab", 16)
		users := []string{"", "alice", long, fake, "5 > 3 & 'x' \u202e\x00"}
		for i, user := range users {
			times(6-i+2, app, "GET /", "User", user)
		}
		var seen struct {
			TopDenied []struct {
				Rule, Key, ID string
				Count         int64
			} `json:"top_denied"`
		}
		text := o.get("").Body.Bytes()
		if err := json.Unmarshal(text, &seen); err != nil || len(seen.TopDenied) != len(users) {
			t.Fatalf("%s\n%v", text, err)
		}
		if !logKeys && (bytes.Contains(text, []byte("alice")) || bytes.Contains(text, []byte("5 \\u003e"))) {
			t.Errorf("keys are shown: %s", text)
		}
		for i, user := range users {
			d := seen.TopDenied[i]
			w := o.post("action=reset&rule=user&id=" + url.QueryEscape(d.ID))
			if user == long || user == fake { // which of the two cannot be told
				if w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), "name the client by its values") {
					t.Errorf("%d %s", w.Code, w.Body)
				}
				continue
			}
			if left := o.left(w); left != 1 || d.Count != int64(6-i+1) {
				t.Errorf("%q: %+v, %d left", user, d, left)
			}
			if got := times(1, app, "GET /", "User", user); got != http.StatusNoContent {
				t.Errorf("%q: %d", user, got)
			}
		}
		for _, form := range []string{"rule=user&id=0123456789abcdef", "rule=shadow&id=" + seen.TopDenied[1].ID, "rule=user&id=" + url.QueryEscape(seen.TopDenied[1].Key+"x")} {
			w := o.get(form)
			if w.Code != http.StatusNotFound {
				t.Errorf("%s: %d %s", form, w.Code, w.Body)
			}
			if other := strings.HasPrefix(form, "rule=shadow"); other != strings.Contains(w.Body.String(), `this id is of a key of rule \"user\": send rule=user`) || other == strings.Contains(w.Body.String(), "no key in the lists") {
				t.Errorf("%s: %s", form, w.Body)
			}
		}
	}
}

// What is shown is what is in force: every field of a Rule, and what is wrong.
func TestAdminShowsTheRules(t *testing.T) {
	full := ratelimit.Rule{
		Name: "full", Match: []string{"POST /a", "/b/{x}"}, Key: keyfunc.Join(keyfunc.IP, keyfunc.OneOf(keyfunc.Header("User"), "alice", "bob")),
		Limits: []algorithms.Limit{{Rate: 10, Period: time.Minute, Algorithm: algorithms.FixedWindow}, algorithms.PerMonth(1000, "UTC")},
		Tiers:  map[string][]algorithms.Limit{"pro": {algorithms.PerMinute(50)}, "staff": ratelimit.Unlimited()}, LimitsFor: func(*http.Request) []algorithms.Limit { return nil },
		Overrides: []ratelimit.Override{{Client: []string{"192.0.2.1", "alice"}, Limits: []algorithms.Limit{algorithms.PerMinute(70)}, Until: time.Date(2026, 12, 31, 23, 0, 0, 0, time.UTC), Note: "OPS-4711"}},
		Cost:      2, Costs: map[string]int64{"POST /a": 3}, CostFor: func(*http.Request) int64 { return 0 }, ChargeOn: []int{401, 403},
		Ban: ratelimit.Ban{After: 10, Within: time.Minute, For: 15 * time.Minute}, Fail: failmode.Closed, Hidden: true, Shadow: true, Enforce: 0.25, Note: "5 > 3, ask ops",
	}
	for i := range reflect.TypeFor[ratelimit.Rule]().NumField() {
		name := reflect.TypeFor[ratelimit.Rule]().Field(i).Name
		if name != "Sync" && name != "Limit" && name != "RetryAfter" && reflect.ValueOf(full).Field(i).IsZero() {
			t.Errorf("%s is not tested", name)
		}
		if _, shown := reflect.TypeFor[view.Rule]().FieldByName(name); !shown && name != "Limits" {
			t.Errorf("%s is not in view.Rule, which viewOf fills and page.html shows", name)
		}
	}
	plain := perHour("plan", 4)
	plain.Ban = ratelimit.Ban{After: 3, For: 15 * time.Minute}
	m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), LogKeys: true, Share: 0.5, TierFor: func(*http.Request) string { return "" }, Rules: []ratelimit.Rule{full, plain}})
	if err := m.SetRules(m.Rules()); err != nil {
		t.Fatal(err)
	}
	o := operator{admin.Handler(m), t, ""}
	want := `{"generation":2,"share":"0.5","rules":[{"name":"full","match":["POST /a","/b/{x}"],"key":"[ip, oneof(header:User=alice|bob)]","limit":["10/1m fixed_window","1000/month@UTC calendar_window"],` +
		`"tiers":{"pro":"50/1m sliding_window","staff":"unlimited"},"limits_for":true,"overrides":1,"cost":2,"costs":{"POST /a":3},"cost_for":true,"charge_on":[401,403],` +
		`"ban":{"after":10,"within":"1m","for":"15m"},"fail":"closed","shadow":true,"enforce":0.25,"hidden":true,"note":"5 \u003e 3, ask ops","overridden":[{"client":"9:192.0.2.1,5:alice","limit":"70/1m sliding_window","until":"2026-12-31T23:00:00Z","note":"OPS-4711"}]},{"name":"plan","key":"ip","limit":"4/1h sliding_window","cost":1,"ban":{"after":3,"within":"1h","for":"15m"},"fail":"local"}],"top_denied":[],"bans":[]}`
	var got bytes.Buffer
	if err := json.Compact(&got, o.get("").Body.Bytes()); err != nil || got.String() != want {
		t.Errorf("%s\nwant\n%s\n%v", &got, want, err)
	}
	for field := range reflect.TypeFor[view.Rule]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name != "-" && name != "sync" && name != "retry_after" && !strings.Contains(got.String(), `"`+name+`":`) {
			t.Errorf("viewOf does not fill %s", field.Name)
		}
	}
	m.RulesFailed(errors.New("rules.yaml:5:12: no period\nrules.yaml:6:1: no such field"))
	if text := o.get("").Body.String(); !strings.Contains(text, `"rules_error": "rules.yaml:5:12: no period\nrules.yaml:6:1: no such field"`) {
		t.Error(text)
	}
	page := o.browser().get("")
	for _, text := range []string{
		"2 rules, generation 2", "New rules are refused", "rules.yaml:5:12: no period\nrules.yaml:6:1", "This region has 0.5 of each limit", ">full<", ">shadow: enforced for 25 %<", ">fail closed<", ">hidden<",
		"<code>10/1m fixed_window</code>, <code>1000/month@UTC calendar_window</code>", ">1 override<", "<code>9:192.0.2.1,5:alice</code>: <code>70/1m sliding_window</code>", `until <span class="when">2026-12-31 23:00 UTC</span> (OPS-4711)<`, ">tier pro<", ">unlimited<", ">[ip, oneof(header:User=alice|bob)]<", ">POST /a<", ">/b/{x}<", ">cost 3<", ">401 403<", ">after 10 denials within 1m, for 15m<", ">5 &gt; 3, ask ops<", `placeholder="ip" aria-label="full: ip"`, `placeholder="oneof(header:User=alice|bob)"`, "or what the program says",
	} {
		if !strings.Contains(page.Body.String(), text) {
			t.Errorf("the page does not say %s", text)
		}
	}
	if err := m.SetRules(m.Rules()); err != nil {
		t.Fatal(err)
	}
	if text := o.get("").Body.String(); strings.Contains(text, "rules_error") || !strings.Contains(text, `"generation": 3`) {
		t.Error(text)
	}
}

// All limits that a client may have are shown, with what it has left by each.
func TestAdminShowsTiers(t *testing.T) {
	m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), TierFor: func(*http.Request) string { return "" }, Rules: []ratelimit.Rule{{
		Name: "r", Key: keyfunc.IP, Limit: algorithms.PerHour(5), Tiers: map[string][]algorithms.Limit{"pro": {algorithms.PerHour(50)}, "gold": {{Rate: 7, Period: time.Hour, Burst: 7}}, "staff": ratelimit.Unlimited()},
	}}})
	times(9, m.Handler(ok), "GET /")
	o := operator{admin.Handler(m), t, ""}
	text := o.get("rule=r&value=192.0.2.1").Body.String()
	for _, want := range []string{`"remaining": 0`, `"remaining": 45`, `"remaining": 7`, `"tier": "gold"`, `"tier": "pro"`, `"allowed": false`} {
		if strings.Count(text, want) != 1 {
			t.Errorf("%s: %s", want, text)
		}
	}
	if left := o.left(o.post("action=reset&rule=r&value=192.0.2.1")); left != 5 {
		t.Error(left)
	}
	page := o.browser().get("rule=r&value=192.0.2.1").Body.String()
	if got := regexp.MustCompile(`<b>(\d+)</b> of (\d+) left`).FindAllString(page, -1); len(got) != 3 {
		t.Errorf("%q", got)
	}
}

// What is used beyond a limit is no negative number, and long spans are in days. A
// count of denials that may be too high is a range.
func TestAdminShowsNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := inMemory(t, ratelimit.Rule{Name: "r", Key: keyfunc.IP, Limits: []algorithms.Limit{algorithms.PerMonth(2, "UTC"), algorithms.PerHour(5)}},
			ratelimit.Rule{Name: "held", Key: keyfunc.IP, Limit: algorithms.MaxInFlight(3)}, bannable(ratelimit.Rule{Name: "user", Match: []string{"/user"}, Key: keyfunc.Header("User"), Limit: algorithms.PerHour(1)}))
		app, o := m.Handler(ok), operator{admin.Handler(m), t, ""}.browser()
		times(9, app, "GET /")
		for _, limit := range []string{"2/month@UTC calendar_window", "5/1h sliding_window"} {
			o.post("action=used&n=5&rule=r&value=192.0.2.1&override=&limit=" + url.QueryEscape(limit))
		}
		client := o.get("rule=r&value=192.0.2.1")
		banned := o.post("action=ban&for=30d&rule=user&value=bob")
		o.post("action=unban&rule=user&value=bob")
		o.post("action=reset&rule=r&value=192.0.2.1")
		for i := range 300 { // more than are counted one by one
			r := httptest.NewRequest(http.MethodGet, "/user", nil)
			r.RemoteAddr = fmt.Sprintf("198.51.%d.%d:1", i/250, i%250)
			r.Header.Set("User", strconv.Itoa(i))
			app.ServeHTTP(httptest.NewRecorder(), r)
			app.ServeHTTP(httptest.NewRecorder(), r)
		}
		for _, tt := range []struct {
			page *httptest.ResponseRecorder
			want string
		}{
			{client, `<b class="over">3</b> over the limit of 2<`},
			{client, `<meter max="2" value="0">0<`},
			{client, "All is free in 31d0h."},
			{client, `<b>0</b> of 5 left`},
			{client, "Admits again in "},
			{banned, `<b>30d0h</b> until the ban ends`}, // and no request in flight
			{o.get(""), "<b>1</b> to <b>2</b> denied"},
		} {
			if !strings.Contains(tt.page.Body.String(), tt.want) {
				t.Errorf("no %s:\n%s", tt.want, tt.page.Body)
			}
		}
	})
}

// A browser is sent from what it posted to a look-up that can be reloaded, whose URL has
// nothing of the client.
func TestAdminRedirects(t *testing.T) {
	rules := []ratelimit.Rule{bannable(perHour("a", 5)), bannable(ratelimit.Rule{Name: "key", Key: keyfunc.APIKey("Key"), Limit: algorithms.PerHour(9)})}
	limiter := new(bans)
	m := mustNew(t, ratelimit.Config{Limiter: limiter, Rules: rules})
	o := operator{admin.Handler(m), t, ""}
	post := func(form string) *httptest.ResponseRecorder { return o.browser().send(http.MethodPost, form) }
	first := ""
	for form, says := range map[string]string{
		"action=ban&for=15m&rule=key&value=s3cret": "Banned at ", "action=unban&rule=a&value=192.0.2.1": "Ban lifted at ", "action=reset&rule=a&value=192.0.2.1": "Reset at ",
		"action=used&n=2&rule=a&value=192.0.2.1": "Set at ", "action=peek&rule=a&value=192.0.2.1": "", "action=peek&value=192.0.2.1": "",
	} {
		w := post(form)
		to := w.Header().Get("Location")
		if w.Code != http.StatusSeeOther || !regexp.MustCompile(`^\?look=[A-Z2-7]{26}$`).MatchString(to) || w.Body.Len() > 0 {
			t.Errorf("%s: %d to %s", form, w.Code, to)
			continue
		}
		first = to[1:]
		asked := len(limiter.asked)
		for range 2 {
			page := o.browser().get(to[1:])
			if page.Code != http.StatusOK || strings.Contains(page.Body.String(), `role="status"`) != (says != "") || !strings.Contains(page.Body.String(), says) || !strings.Contains(page.Body.String(), ">One client of ") && !strings.Contains(page.Body.String(), "Nothing is counted for this client under a") {
				t.Errorf("%s: %d %s", form, page.Code, page.Body)
			}
		}
		if len(limiter.asked) != asked {
			t.Errorf("%s: a reload bans: %q", form, limiter.asked)
		}
	}
	if w := o.get(first); w.Code != http.StatusOK || strings.Contains(w.Body.String(), "s3cret") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	for range 64 { // and no more are kept
		post("action=peek&rule=a&value=192.0.2.1")
	}
	for _, query := range []string{first, "look=x", "look=x&rule=a&value=192.0.2.1"} {
		if w := o.browser().get(query); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "look the client up again") {
			t.Errorf("%s: %d", query, w.Code)
		}
	}
	for form, want := range map[string]int{"action=reset&rule=b&value=1": 404, "action=ban&rule=a&value=192.0.2.1": 400, "look=x": 400, "action=reset&rule=a&value=192.0.2.1&look=x": 303} {
		if w := post(form); w.Code != want {
			t.Errorf("%s: %d, want %d", form, w.Code, want)
		}
	}
}

// A look-up says which of the limits apply to the client.
func TestAdminSaysWhichLimitApplies(t *testing.T) {
	pro, hour := map[string][]algorithms.Limit{"pro": {algorithms.PerHour(50)}}, time.Now().Add(time.Hour)
	override := func(value string, until time.Time, limits ...algorithms.Limit) []ratelimit.Override {
		return []ratelimit.Override{{Client: []string{value}, Limits: limits, Until: until}}
	}
	for name, tt := range map[string]struct {
		rule ratelimit.Rule
		want string
	}{
		"one":                  {ratelimit.Rule{}, "yes"},
		"tiers":                {ratelimit.Rule{Tiers: pro}, "by tier, by tier"},
		"a function":           {ratelimit.Rule{LimitsFor: func(*http.Request) []algorithms.Limit { return nil }}, "by request"},
		"an override":          {ratelimit.Rule{Tiers: pro, Overrides: override("alice", hour, algorithms.PerHour(7))}, "no, no, yes"},
		"another's":            {ratelimit.Rule{Overrides: override("bob", hour, algorithms.PerHour(7))}, "yes"},
		"an override that was": {ratelimit.Rule{Overrides: override("alice", time.Unix(1e9, 0), algorithms.PerHour(7))}, "yes, no"},
		"unlimited":            {ratelimit.Rule{Overrides: override("alice", hour, ratelimit.Unlimited()...)}, "no, yes"},
		"one key of two":       {ratelimit.Rule{Key: keyfunc.First(keyfunc.Header("User"), keyfunc.Header("Name")), Overrides: override("2:alice", hour, algorithms.PerHour(7))}, "yes, no, yes"},
	} {
		r := tt.rule
		r.Name, r.Limit = "r", algorithms.PerHour(5)
		if r.Key == nil {
			r.Key = keyfunc.Header("User")
		}
		o := operator{admin.Handler(mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{r}, TierFor: func(*http.Request) string { return "" }})), t, ""}
		_, got := o.each(o.get("rule=r&value=alice"))
		if strings.Join(got, ", ") != tt.want {
			t.Errorf("%s: %q, want %s", name, got, tt.want)
		}
		page := o.browser().get("rule=r&value=alice").Body.String()
		for text, want := range map[string]int{">does not apply<": strings.Count(tt.want, "no"), ">no listed tier<": strings.Count(tt.want+" ", "tier "), ">applies<": 0} {
			if text == ">applies<" && strings.Contains(tt.want, "no") {
				want = strings.Count(tt.want, "yes")
			}
			if strings.Count(page, text) != want {
				t.Errorf("%s: %d of %s, want %d", name, strings.Count(page, text), text, want)
			}
		}
	}
}

// What the page offers as an override is one that the rule takes, and shows no more of the
// client than the page does.
func TestAdminWritesAnOverride(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		user, ended := keyfunc.Header("User"), " until: 2000-01-08@UTC}"
		for name, tt := range map[string]struct {
			key    keyfunc.Key
			limits []algorithms.Limit
			hidden bool // keys are hashed in the log
			query  string
			want   string
		}{
			"address":      {keyfunc.IP, nil, true, "value=2001:db8::1", `- {client: "2001:db8::1", limit: 5/1h sliding_window,` + ended},
			"windows":      {user, []algorithms.Limit{algorithms.PerHour(5), algorithms.PerMonth(9, "UTC")}, true, "value=alice", `- {client: "alice", limit: [5/1h sliding_window, 9/month@UTC calendar_window],` + ended},
			"parts":        {keyfunc.Join(user, keyfunc.IP), nil, true, "value=a%22b&value=192.0.2.1", `- {client: ["a\"b", "192.0.2.1"], limit: 5/1h sliding_window,` + ended},
			"either":       {keyfunc.First(keyfunc.IP, user), nil, true, "value=192.0.2.1", `- {client: "1:192.0.2.1", limit: 5/1h sliding_window,` + ended + "\n" + `- {client: "2:192.0.2.1", limit: 5/1h sliding_window,` + ended},
			"secret":       {keyfunc.APIKey("Key"), nil, true, "value=s3cret", `- {client: "the client", limit: 5/1h sliding_window,` + ended},
			"shown secret": {keyfunc.APIKey("Key"), nil, false, "value=s3cret", `- {client: "apikey:`},
			"everyone":     {keyfunc.Everyone, nil, true, "", ""},
		} {
			rule := ratelimit.Rule{Name: "r", Key: tt.key, Limits: tt.limits}
			if tt.limits == nil {
				rule.Limit = algorithms.PerHour(5)
			}
			o := operator{admin.Handler(mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), LogKeys: !tt.hidden, Rules: []ratelimit.Rule{rule}})), t, ""}
			page := html.UnescapeString(o.browser().get("rule=r&" + tt.query).Body.String())
			_, got, _ := strings.Cut(page, "<pre>")
			got, _, _ = strings.Cut(got, "</pre>")
			if got != tt.want && (name != "shown secret" || !strings.HasPrefix(got, tt.want)) || strings.Contains(strings.ReplaceAll(page, `name="value" value="s3cret"`, ""), "s3cret") {
				t.Errorf("%s: %s, want %s", name, got, tt.want)
			}
		}
	})
}

// However many overrides a rule has, the page shows some of them, and their number.
func TestAdminShowsSomeOverrides(t *testing.T) {
	for n, more := range map[int]bool{1: false, 20: false, 21: true, 1000: true} {
		rule := perHour("r", 5)
		rule.Key = keyfunc.Header("User")
		for i := range n {
			rule.Overrides = append(rule.Overrides, ratelimit.Override{Client: []string{fmt.Sprint("user", i)}, Limits: ratelimit.Unlimited()})
		}
		o := operator{admin.Handler(inMemory(t, rule)), t, ""}
		page := o.browser().get("").Body.String()
		if got := strings.Count(page, ": <code>unlimited</code>"); got != min(n, 20) || strings.Contains(page, "The first 20 are shown") != more || strings.Contains(page, "user0") {
			t.Errorf("%d overrides: %d are shown\n%s", n, got, page)
		}
		if text := o.get("").Body.String(); !strings.Contains(text, fmt.Sprintf(`"overrides": %d,`, n)) || strings.Contains(text, "user0") {
			t.Errorf("%.500s", text)
		}
	}
}

// A partner is an API key by another name.
type partner struct{ keyfunc.Described }

func (partner) String() string { return "partner" }

// The page repeats the values of a key, unless they are secret.
func TestAdminShowsNoSecrets(t *testing.T) {
	for key, shown := range map[keyfunc.Key]bool{
		partner{keyfunc.Describe(keyfunc.APIKey("Key"))}: false, keyfunc.First(keyfunc.IP, keyfunc.APIKey("Key")): false, keyfunc.Hashed(keyfunc.Header("User"), nil): false, keyfunc.Header("User"): true,
	} {
		o := operator{admin.Handler(inMemory(t, ratelimit.Rule{Name: "r", Key: key, Limit: algorithms.PerHour(5)})), t, ""}
		if page := o.browser().get("rule=r&value=s3cret").Body.String(); strings.Contains(page, "<h3>s3cret</h3>") != shown || strings.Contains(page, "<h3>a secret</h3>") == shown {
			t.Errorf("%v:\n%s", key, page)
		}
	}
}

// While the store is away, counts are those of this process, and what cannot be done
// is said.
func TestAdminWhenTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := limitertest.RedisServer(t)
		m := mustNew(t, ratelimit.Config{Limiter: guardOf(t, client), Rules: []ratelimit.Rule{perHour("a", 5)}})
		o, app := operator{admin.Handler(m), t, ""}, m.Handler(ok)
		times(2, app, "GET /")
		server.SetError("LOADING Redis is loading the dataset in memory")
		times(6, app, "GET /") // calls the probe that opens the circuit
		synctest.Wait()
		for _, want := range []string{`"source": "fallback"`, `"remaining": 0`} {
			if text := o.get("rule=a&value=192.0.2.1").Body.String(); !strings.Contains(text, want) {
				t.Errorf("no %s: %s", want, text)
			}
		}
		if text := o.get("").Body.String(); !strings.Contains(text, `"down": 1`) {
			t.Error(text)
		}
		if page := o.browser().get("rule=a&value=192.0.2.1").Body.String(); !strings.Contains(page, "Servers out of reach: 1.") || !strings.Contains(page, "Counted by fallback.") {
			t.Error(page)
		}
		if w := o.post("action=reset&rule=a&value=192.0.2.1"); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), `"error": "reset: not done on servers that are out of reach, repeat it when they are back: `) {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if w := o.browser().post("action=reset&rule=a&value=192.0.2.1"); w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "Reset.<") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if w := o.post("action=used&n=3&rule=a&value=192.0.2.1"); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), `"error": "used: not set, and forgotten in this process: failmode: circuit open`) {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		server.SetError("")
		time.Sleep(10 * time.Second)
		if left := o.left(o.post("action=reset&rule=a&value=192.0.2.1")); left != 5 {
			t.Errorf("%d left, once it is back", left)
		}
	})
}

// Operators look while rules are replaced and requests are denied.
func TestAdminWhileRulesChange(t *testing.T) {
	m := inMemory(t, perHour("a", 1))
	o, app := operator{admin.Handler(m), t, ""}, m.Handler(ok)
	var work sync.WaitGroup
	for _, step := range []func(){
		func() { times(1, app, "GET /") },
		func() { _ = m.SetRules([]ratelimit.Rule{perHour("a", 2), perHour("b", 3)}) },
		func() { m.RulesFailed(errors.New("bad")); _ = m.SetRules([]ratelimit.Rule{perHour("a", 1)}) },
		func() {
			if w := o.get("rule=a&value=192.0.2.1"); w.Code != http.StatusOK {
				t.Error(w.Code)
			}
		},
		func() {
			if w := o.browser().get(""); w.Code != http.StatusOK {
				t.Error(w.Code)
			}
		},
		func() {
			if w := o.post("action=reset&rule=b&value=192.0.2.1"); w.Code != http.StatusOK && w.Code != http.StatusNotFound {
				t.Error(w.Code)
			}
		},
	} {
		work.Go(func() {
			for range 200 {
				step()
			}
		})
	}
	work.Wait()
}

func TestAdminRefuses(t *testing.T) {
	m := inMemory(t, perHour("a", 5), ratelimit.Rule{Name: "all", Key: keyfunc.Everyone, Limit: algorithms.PerHour(1)})
	o := operator{admin.Handler(m), t, ""}
	for _, tt := range []struct {
		method, form string
		status       int
		says         string
	}{
		{"GET", "rule=b&value=192.0.2.1", 404, `rule \"b\": no such rule`},
		{"GET", "rule=al&value=192.0.2.1", 404, `rule \"al\": no such rule (did you mean all?)`},
		{"GET", "rule=a", 400, "takes one value, got 0; send value="},
		{"GET", "rule=a&value=", 400, "is no address"},
		{"GET", "rule=a&value=1&value=2", 400, "takes one value, got 2"},
		{"GET", "rule=all&value=1", 400, "takes no value"},
		{"GET", "rule=a&value=%zz", 400, "invalid URL escape"},
		{"GET", "rule=a&value=a%00b", 400, "control characters"},
		{"GET", "rule=a&value=a%0ab", 400, "control characters"},
		{"GET", "rule=a&value=%ff", 400, "not UTF-8"},
		{"GET", "rule=a&value=192.0.2.1&id=1", 400, "send one of them"},
		{"GET", "rule=a&value=192.0.2.1&action=reset", 405, "an action takes POST"},
		{"GET", "action=reset", 405, "an action takes POST"},
		{"HEAD", "rule=a&value=192.0.2.1&action=reset", 405, ""},
		{"PUT", "", 405, "takes GET and POST"},
		{"DELETE", "rule=a&value=192.0.2.1", 405, "takes GET and POST"},
		{"POST", "", 400, "no rule"},
		{"POST", "rule=a&value=192.0.2.1", 400, "no such action"},
		{"POST", "action=drop&rule=a&value=192.0.2.1", 400, `no such action: \"drop\"`},
		{"POST", "action=reset&value=192.0.2.1", 400, "no rule"},
		{"POST", "action=ban&for=1m&value=192.0.2.1", 400, "no rule"},
		{"POST", "action=peek", 400, "no rule"},
		{"GET", "value=hello", 400, "no rule counts by such a value; name a rule to see what it takes"},
		{"GET", "value=", 400, "no rule counts by such a value"},
		{"GET", "value=192.0.2.1&id=1", 400, "send one of them"},
		{"POST", "action=reset&rule=a" + strings.Repeat("&value=1", 17), 400, "more than 16 values"},
		{"POST", "action=reset&rule=a&value=" + strings.Repeat("1", 70<<10), 413, "more than 65536 bytes"},
		{"GET", "rule=a&value=" + strings.Repeat("1", 70<<10), 414, "more than 65536 bytes"},
		{"GET", "rule=" + strings.Repeat("a", 60<<10) + "&value=1", 404, "no such rule"},
		{"POST", "action=" + strings.Repeat("a", 60<<10) + "&rule=a&value=1", 400, "no such action"},
	} {
		for _, o := range []operator{o, o.browser()} {
			w := o.do(tt.method, tt.form)
			if w.Code != tt.status || o.accept == "" && !strings.Contains(w.Body.String(), tt.says) || w.Body.Len() > 16<<10 {
				t.Errorf("%s %.60s: %d, %d bytes: %.200s; want %d %s", tt.method, tt.form, w.Code, w.Body.Len(), w.Body, tt.status, tt.says)
			}
			if tt.status == 405 && tt.method != "GET" && tt.method != "HEAD" && w.Header().Get("Allow") != "GET, HEAD, POST" {
				t.Errorf("Allow: %q", w.Header().Get("Allow"))
			}
		}
	}
	// Only what is posted counts, and only as a form.
	for contentType, body := range map[string]string{
		"application/x-www-form-urlencoded": "",
		"application/json":                  `{"action":"reset","rule":"a","value":"192.0.2.1"}`,
		"text/plain":                        "action=reset&rule=a&value=192.0.2.1",
		"multipart/form-data; boundary=x":   "--x\r\nContent-Disposition: form-data; name=\"rule\"\r\n\r\na\r\n--x--\r\n",
	} {
		r := httptest.NewRequest(http.MethodPost, "http://localhost/?action=reset&rule=a&value=192.0.2.1", strings.NewReader(body))
		r.Header.Set("Content-Type", contentType)
		w := httptest.NewRecorder()
		o.ServeHTTP(w, r)
		if w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", contentType, w.Code, w.Body)
		}
	}
}

package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// limiters are those that a test in fake time can have.
var limiters = map[string]func(*testing.T) algorithms.Limiter{
	"memory": func(*testing.T) algorithms.Limiter { return new(algorithms.Memory) },
	"redis":  func(t *testing.T) algorithms.Limiter { return guardOf(t, limitertest.Redis(t)) },
}

// One client, as it comes in a request and as an operator names it.
func TestChecksAreThoseOfRequests(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("POST /b/{id}", ok)
	type userKey struct{}
	userOf := func(ctx context.Context) (string, bool) { s, ok := ctx.Value(userKey{}).(string); return s, ok }
	user, secret := keyfunc.Context(userOf), []byte("0123456789abcdef")
	keys := map[string]struct {
		key    keyfunc.Key
		values []string
	}{
		"ip":       {keyfunc.IP, []string{" 2001:db8::1 "}},
		"network":  {keyfunc.IP, []string{"2001:db8::/64"}},
		"everyone": {keyfunc.Everyone, nil},
		"header":   {keyfunc.Header("User"), []string{"alice"}},
		"api key":  {keyfunc.APIKey("Authorization"), []string{"Bearer s3cret"}},
		"bare key": {keyfunc.APIKey("Authorization"), []string{"s3cret"}},
		"hashed":   {keyfunc.Hashed(keyfunc.Required(user, 401), secret), []string{"bob"}},
		"joined":   {keyfunc.Join(keyfunc.IP, keyfunc.Mux(mux), user), []string{"2001:db8::2", "POST /b/{id}", "bob"}},
		"first":    {keyfunc.First(keyfunc.Header("None"), keyfunc.IP), []string{"2001:db8::1"}},
		"body":     {keyfunc.BodyJSON("email", 100), []string{"Alice@Example.com"}},
		"func":     {keyfunc.Func(func(r *http.Request) (string, error) { return r.Header.Get("User"), nil }), []string{"alice"}},
	}
	var rules []ratelimit.Rule
	for name, k := range keys {
		rules = append(rules, ratelimit.Rule{Name: strings.ReplaceAll(name, " ", "-"), Key: k.key, Limit: algorithms.PerHour(10)})
	}
	for name, limiter := range limiters {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t)
				m := mustNew(t, ratelimit.Config{Limiter: l, Rules: rules, Share: 0.5})
				send := func() algorithms.Decision {
					r := httptest.NewRequest(http.MethodPost, "/b/7", strings.NewReader(`{"email":" alice@example.COM"}`))
					r.RemoteAddr = "[2001:db8::3]:4711"
					r.Header.Set("User", "alice")
					r.Header.Set("Authorization", "bearer s3cret")
					r.Header.Set("Content-Type", "application/json")
					d, err := m.Take(r.WithContext(context.WithValue(r.Context(), userKey{}, "bob")))
					if err != nil {
						t.Fatal(err)
					}
					return d
				}
				send()
				d := send()
				if len(d.Results) != len(rules) {
					t.Fatalf("%d results", len(d.Results))
				}
				for name, k := range keys {
					name = strings.ReplaceAll(name, " ", "-")
					checks, err := m.Checks(name, k.values...)
					if err != nil {
						t.Error(err)
						continue
					}
					peeked, err := l.Peek(t.Context(), checks...)
					counted, _ := d.Result(name)
					if err != nil || len(peeked.Results) > 2 {
						t.Errorf("%s: %v, %d results", name, err, len(peeked.Results))
						continue
					}
					same := slices.IndexFunc(peeked.Results, func(r algorithms.Result) bool { return r.Check == counted.Check })
					if same < 0 || peeked.Results[same].Remaining != 3 || counted.Remaining != 3 {
						t.Errorf("%s: peeked %+v, counted %+v", name, peeked.Results, counted)
					}
					if err := l.Reset(t.Context(), checks...); err != nil {
						t.Error(err)
					}
				}
				for _, r := range send().Results {
					if r.Remaining != 4 {
						t.Errorf("%s: %d left after a Reset", r.Check.Rule, r.Remaining)
					}
				}
			})
		})
	}
}

// Each count that a tier may have has one check, with this region's share.
func TestChecksOfTiers(t *testing.T) {
	bucket := func(n int64) algorithms.Limit {
		return algorithms.Limit{Rate: n, Period: time.Minute, Algorithm: algorithms.TokenBucket}
	}
	m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Share: 0.5, TierFor: func(*http.Request) string { return "" }, Rules: []ratelimit.Rule{
		{Name: "r", Key: keyfunc.IP, Limit: bucket(100), Cost: 2, Shadow: true, Fail: 2, Tiers: map[string][]algorithms.Limit{
			"a": {bucket(1000)}, "b": {algorithms.PerMinute(60)}, "c": {algorithms.PerMinute(80)}, "d": {algorithms.PerHour(90)}, "e": ratelimit.Unlimited(),
			"f": {{Rate: 200, Period: time.Minute, Burst: 20}},
		}},
	}})
	checks, err := m.Checks("r", "203.0.113.9")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range checks {
		if c.Rule != "r" || c.Key != "203.0.113.9" || c.Cost != 2 || !c.Shadow || c.Fail != 2 {
			t.Errorf("%+v", c)
		}
		got = append(got, c.Limit.String())
	}
	if want := "[50/1m token_bucket 30/1m 45/1h]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
	// They go into one call.
	if _, err := new(algorithms.Memory).Peek(t.Context(), checks...); err != nil {
		t.Error(err)
	}
}

// A fixed is a Key with a method Keys of its own.
type fixed struct {
	keyfunc.Described
	keys []string
}

func (f fixed) Keys(...string) ([]string, error) { return f.keys, nil }

func TestChecksRefuse(t *testing.T) {
	custom := keyfunc.Func(func(*http.Request) (string, error) { return "", keyfunc.ErrNoKey })
	m := inMemory(t, perHour("ip", 1), ratelimit.Rule{Name: "all", Key: keyfunc.Everyone, Limit: algorithms.PerHour(1)},
		ratelimit.Rule{Name: "both", Key: keyfunc.Join(keyfunc.IP, keyfunc.Header("User")), Limit: algorithms.PerHour(1)},
		ratelimit.Rule{Name: "custom", Key: custom, Limit: algorithms.PerHour(1)},
		ratelimit.Rule{Name: "none", Key: fixed{keyfunc.Describe(custom), nil}, Limit: algorithms.PerHour(1)},
		ratelimit.Rule{Name: "empty", Key: fixed{keyfunc.Describe(custom), []string{"a", ""}}, Limit: algorithms.PerHour(1)},
	)
	for _, tt := range []struct{ want, rule, values string }{
		{`no such rule: "nope"`, "nope", "1"},
		{`no such rule: ""`, "", "1"},
		{`no such rule: "` + strings.Repeat("x", 64) + `"`, strings.Repeat("x", 1<<20), "1"},
		{`rule "ip": key: keyfunc: ip: takes one value, got 0`, "ip", ""},
		{`rule "ip": key: keyfunc: ip: takes one value, got 2`, "ip", "192.0.2.1;192.0.2.2"},
		{`rule "ip": key: keyfunc: ip: "alice" is no address`, "ip", "alice"},
		{`rule "ip": key: keyfunc: ip: "10.0.0.0/8" is not one client`, "ip", "10.0.0.0/8"},
		{`rule "all": key: keyfunc: everyone: takes no value, got 1`, "all", "1"},
		{`rule "both": key: keyfunc: [ip, header:User]: takes 2 values, got 1`, "both", "192.0.2.1"},
		{`rule "custom": key: keyfunc: keyfunc.Func: takes one value, got 0`, "custom", ""},
		{`rule "custom": key: keyfunc: keyfunc.Func: takes one value, got 2`, "custom", "a;b"},
		{`rule "none": key: the value is empty`, "none", "a"},
		{`rule "empty": key: the value is empty`, "empty", "a"},
	} {
		var values []string
		if tt.values != "" {
			values = strings.Split(tt.values, ";")
		}
		if checks, err := m.Checks(tt.rule, values...); err == nil || checks != nil || !strings.HasPrefix(err.Error(), "middleware: "+tt.want) {
			t.Errorf("%.20s %q: %v, %v; want %s", tt.rule, values, checks, err, tt.want)
		}
	}
	if _, err := m.Checks("custom", ""); err == nil {
		t.Error("an empty value would be the count of all who have no key")
	}
}

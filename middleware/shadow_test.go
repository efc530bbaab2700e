package middleware_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// enforced returns those of the first keys for which a rule in shadow is enforced.
func enforcedKeys(t testing.TB, rule string, fraction float64, keys int) (all []int) {
	t.Helper()
	m := inMemory(t, ratelimit.Rule{Name: rule, Key: keyfunc.Header("Key"), Limit: algorithms.PerHour(9), Shadow: true, Enforce: fraction})
	for i := range keys {
		d, err := m.Peek(request("GET /", "Key", fmt.Sprint("10.0.0.", i)))
		if err != nil {
			t.Fatal(err)
		}
		if !d.Results[0].Check.Shadow {
			all = append(all, i)
		}
	}
	return all
}

func TestEnforceIsAFractionOfTheKeys(t *testing.T) {
	const keys = 1000
	var before []int
	for _, fraction := range []float64{0, 0.001, 0.1, 0.5, 0.9, 0.999, 1} {
		now := enforcedKeys(t, "r", fraction, keys)
		// Five standard deviations: the keys are fixed, so this does not flicker.
		if want := fraction * keys; float64(len(now)) < want-5*16 || float64(len(now)) > want+5*16 || fraction == 0 && len(now) > 0 || fraction == 1 && len(now) < keys {
			t.Errorf("%v: %d of %d keys", fraction, len(now), keys)
		}
		for _, i := range before {
			if _, stays := slices.BinarySearch(now, i); !stays {
				t.Fatalf("key %d is enforced for a smaller fraction and not for %v", i, fraction)
			}
		}
		before = now
		if again := enforcedKeys(t, "r", fraction, keys); !slices.Equal(now, again) {
			t.Errorf("%v: another instance has other keys", fraction)
		}
	}
	// A process of another version has the same keys.
	if got, want := enforcedKeys(t, "r", 0.1, 100), []int{7, 13, 34, 35, 37, 61, 66}; !slices.Equal(got, want) {
		t.Errorf("keys %v are enforced, want %v", got, want)
	}
	both := 0
	half, other := enforcedKeys(t, "r", 0.5, keys), enforcedKeys(t, "s", 0.5, keys)
	for _, i := range half {
		if _, found := slices.BinarySearch(other, i); found {
			both++
		}
	}
	if both < keys/4-70 || both > keys/4+70 {
		t.Errorf("%d keys are enforced for two rules: not independent", both)
	}
}

// bystanders are rules that enforce nothing, whatever they say.
func bystanders() []ratelimit.Rule {
	limits := []algorithms.Limit{
		algorithms.PerHour(1),
		{Rate: 1, Period: time.Hour, Algorithm: algorithms.FixedWindow},
		{Rate: 1, Period: time.Hour, Burst: 1},
		{Rate: 1, Period: time.Hour, Burst: 2, Algorithm: algorithms.LeakyBucket},
		{Rate: 2, Period: time.Hour, Algorithm: algorithms.SlidingLog},
	}
	var rules []ratelimit.Rule
	for i, limit := range limits {
		for j, key := range []keyfunc.Key{
			keyfunc.Header("User"), keyfunc.Everyone, keyfunc.Required(keyfunc.Header("Nobody"), 400), keyfunc.Required(keyfunc.BodyJSON("account", 64), 400),
		} {
			r := ratelimit.Rule{Name: fmt.Sprintf("by-%d-%d", i, j), Key: key, Limit: limit, Fail: failmode.Closed, Hidden: j == 1, Shadow: true}
			if i == 1 {
				r.ChargeOn = []int{401}
			}
			if i < 3 && j != 1 { // everyone is not banned
				r.Ban = ratelimit.Ban{After: 1, For: time.Hour}
			}
			rules = append(rules, r)
		}
	}
	return rules
}

// The same traffic with and without rules that enforce nothing: all that clients
// see is the same, and so is what the enforced rules have counted.
func TestShadowChangesNothing(t *testing.T) {
	enforced := []ratelimit.Rule{
		{Name: "ip", Key: keyfunc.IP, Limit: algorithms.PerMinute(40)},
		{Name: "user", Key: keyfunc.Header("User"), Limit: algorithms.Limit{Rate: 6, Period: time.Minute, Burst: 9}, Costs: map[string]int64{"/b": 3}},
		{Name: "queue", Match: []string{"/b"}, Key: keyfunc.Everyone, Limit: algorithms.Limit{Rate: 10, Period: time.Minute, Burst: 4, Algorithm: algorithms.LeakyBucket}},
		{Name: "login", Match: []string{"POST /a"}, Key: keyfunc.IP, Limit: algorithms.PerMinute(3), ChargeOn: []int{401}},
		{Name: "account", Match: []string{"POST /a"}, Key: keyfunc.BodyJSON("account", 64), Limit: algorithms.PerMinute(3)},
	}
	traffic := func(t *testing.T, limiter algorithms.Limiter, rules []ratelimit.Rule) (seen []string, registry *prometheus.Registry) {
		registry = prometheus.NewRegistry()
		shadows := 0
		m := measured(t, registry, ratelimit.Config{
			Limiter: limiter, Rules: rules, Headers: headers.All(headers.XRateLimit, headers.IETFDraft11), MaxWaiting: 2,
			Observe: func(_ *http.Request, d algorithms.Decision) {
				for _, r := range d.Results {
					if r.Check.Shadow && !r.HasRoom {
						shadows++
					}
				}
			},
		})
		h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(map[string]int{"1": 401, "2": 200}[r.Header.Get("User")])
		}))
		random := rand.New(rand.NewPCG(1, 2))
		for range 300 {
			time.Sleep(time.Duration(random.IntN(4000)) * time.Millisecond)
			body := fmt.Sprintf(`{"account":"%d"}`, random.IntN(3))
			r := httptest.NewRequest([]string{"GET", "POST"}[random.IntN(2)], []string{"/a", "/b", "/c"}[random.IntN(3)], strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("User", fmt.Sprint(1+random.IntN(2)))
			ctx, cancel := context.WithTimeout(r.Context(), time.Hour)
			w := do(h, r.WithContext(ctx))
			cancel()
			seen = append(seen, fmt.Sprint(w.Code, w.Header(), w.Body))
		}
		for _, r := range enforced {
			for _, key := range []string{"192.0.2.1", "1", "2", "0", ""} {
				d, err := limiter.Peek(t.Context(), algorithms.Check{Rule: r.Name, Key: key, Limit: r.Limit})
				if err != nil {
					t.Fatal(err)
				}
				seen = append(seen, fmt.Sprint(r.Name, key, d.Results[0].Remaining, d.Results[0].ResetAfter))
			}
		}
		for _, k := range m.TopDenied(100) {
			if strings.HasPrefix(k.Rule, "by-") {
				t.Errorf("%+v was not denied", k)
			}
		}
		if len(rules) > len(enforced) == (shadows == 0) {
			t.Errorf("Observe saw %d would-be denials", shadows)
		}
		return seen, registry
	}
	for name, limiter := range limiters {
		t.Run(name, func(t *testing.T) {
			var with, without []string
			var registry *prometheus.Registry
			synctest.Test(t, func(t *testing.T) { without, _ = traffic(t, limiter(t), enforced) })
			synctest.Test(t, func(t *testing.T) {
				with, registry = traffic(t, limiter(t), append(bystanders()[:10:10], append(slices.Clone(enforced), bystanders()[10:]...)...))
			})
			statuses := make(map[string]bool)
			for i := range without {
				if statuses[without[i][:3]] = true; with[i] != without[i] {
					t.Fatalf("%d:\n%s\nwithout:\n%s", i, with[i], without[i])
				}
			}
			if !statuses["200"] || !statuses["401"] || !statuses["429"] {
				t.Errorf("the traffic saw only %v", statuses)
			}
			would := 0.0
			for sample, n := range gather(t, registry) {
				if strings.HasPrefix(sample, "decisions_total") && strings.Contains(sample, " by-") {
					if strings.Contains(sample, " shadow_denied ") {
						would += n
					} else if strings.Contains(sample, " denied ") && n > 0 {
						t.Errorf("%s %v", sample, n)
					}
				}
			}
			if would == 0 {
				t.Error("no would-be denials in the metrics")
			}
		})
	}
}

// While a new limit is enforced for a part of the keys, only they are denied and banned.
func TestShadowEnforcesTheRest(t *testing.T) {
	m := inMemory(t, ratelimit.Rule{Name: "r", Key: keyfunc.Header("Key"), Limit: algorithms.PerHour(1), Shadow: true, Enforce: 0.5, Ban: ratelimit.Ban{After: 1, For: 24 * time.Hour}})
	h := m.Handler(ok)
	limited := enforcedKeys(t, "r", 0.5, 100)
	for i := range 100 {
		key := fmt.Sprint("10.0.0.", i)
		_, denied := slices.BinarySearch(limited, i)
		serve(h, "GET /", "Key", key)
		if w := serve(h, "GET /", "Key", key); (w.Code == http.StatusTooManyRequests) != denied || (w.Header().Get("X-RateLimit-Limit") != "") != denied {
			t.Errorf("%s, enforced %v: %d %v", key, denied, w.Code, w.Header())
		}
		if d, err := m.Peek(request("GET /", "Key", key)); err != nil || d.Results[0].BannedFor > 0 != denied {
			t.Errorf("%s, enforced %v: %+v, %v", key, denied, d, err)
		}
	}
}

// A queue that is not enforced takes no place from those who wait in one that is.
func TestShadowQueuesTakeNoPlaces(t *testing.T) {
	queue := algorithms.Limit{Rate: 60, Period: time.Minute, Burst: 9, Algorithm: algorithms.LeakyBucket}
	shadow := ratelimit.Rule{Name: "shadow", Key: keyfunc.Everyone, Limit: queue, Shadow: true}
	synctest.Test(t, func(t *testing.T) {
		m := mustNew(t, ratelimit.Config{
			Limiter: new(algorithms.Memory), MaxWaiting: 4, // two of one key
			Rules: []ratelimit.Rule{shadow, {Name: "queue", Key: keyfunc.Header("Key"), Limit: queue}},
		})
		h := m.Handler(ok)
		codes := make(chan int, 8)
		for _, key := range []string{"a", "b", "c", "d"} {
			go func() { codes <- serve(h, "GET /", "Key", key).Code }()
			synctest.Wait()
			go func() { codes <- serve(h, "GET /", "Key", key).Code }() // waits for a second
			synctest.Wait()
		}
		for range cap(codes) {
			if code := <-codes; code != http.StatusNoContent {
				t.Error(code)
			}
		}
	})
}

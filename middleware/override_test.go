package middleware_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/admin"
)

// override is one of a client's limits.
func override(l algorithms.Limit, client ...string) ratelimit.Override {
	return ratelimit.Override{Client: client, Limits: []algorithms.Limit{l}}
}

func exempt(client ...string) ratelimit.Override {
	return ratelimit.Override{Client: client, Limits: ratelimit.Unlimited()}
}

// An override stands for one client, whatever others call themselves.
func TestOverrides(t *testing.T) {
	user := keyfunc.First(keyfunc.Header("User"), keyfunc.IP)
	rule := func(name string, key keyfunc.Key, overrides ...ratelimit.Override) ratelimit.Rule {
		r := perHour(name, 5)
		r.Key, r.Overrides = key, overrides
		return r
	}
	shadow := rule("shadow", keyfunc.Header("User"), override(algorithms.PerHour(50), "acme"))
	shadow.Shadow = true
	m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Share: 0.5, Rules: []ratelimit.Rule{
		rule("user", user, override(algorithms.PerHour(50), "2:192.0.2.1"), override(algorithms.PerHour(80), "1:acme"), exempt("1:staff")),
		rule("joined", keyfunc.Join(keyfunc.Header("User"), keyfunc.IP), override(algorithms.PerHour(50), "acme", "192.0.2.1")),
		shadow,
	}})
	for _, tc := range []struct{ user, address, want string }{ // this region's half, rounded down
		{"", "192.0.2.1:1", "map[joined:2/1h 1 shadow:2/1h 1 shadow user:25/1h 1]"},
		{"192.0.2.1", "192.0.2.2:1", "map[joined:2/1h 1 shadow:2/1h 1 shadow user:2/1h 1]"},
		{"2:192.0.2.1", "192.0.2.2:1", "map[joined:2/1h 1 shadow:2/1h 1 shadow user:2/1h 1]"},
		{"acme", "192.0.2.1:1", "map[joined:25/1h 1 shadow:25/1h 1 shadow user:40/1h 1]"},
		{"acme", "192.0.2.2:1", "map[joined:2/1h 1 shadow:25/1h 1 shadow user:40/1h 1]"},
		{"Acme", "192.0.2.2:1", "map[joined:2/1h 1 shadow:2/1h 1 shadow user:2/1h 1]"},
		{"staff", "192.0.2.2:1", "map[joined:2/1h 1 shadow:2/1h 1 shadow]"},
	} {
		r := request("GET /")
		if r.RemoteAddr = tc.address; tc.user != "" {
			r.Header.Set("User", tc.user)
		}
		if got := fmt.Sprint(checked(t, m, r)); got != tc.want {
			t.Errorf("%+v: got %s", tc, got)
		}
	}
}

// An override ends for everybody at its instant, and is logged once, without its client.
func TestOverridesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := perHour("plan", 2)
		r.Key, r.Overrides = keyfunc.Header("User"), []ratelimit.Override{override(algorithms.PerHour(4), "acme")}
		r.Overrides[0].Until, r.Overrides[0].Note = time.Now().Add(time.Minute).In(time.FixedZone("", 3600)), "ticket 4711"
		m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{r}, Logger: slog.New(slog.NewTextHandler(&log, nil)), DenialLogRate: -1})
		app := m.Handler(ok)
		log.Reset() // of hints
		for i, want := range []int{204, 204, 204, 429, 429} {
			if i == 3 {
				time.Sleep(time.Minute)
			}
			if got := serve(app, "GET /", "User", "acme").Code; got != want {
				t.Errorf("request %d: %d, want %d", i, got, want)
			}
		}
		if text := log.String(); strings.Count(text, `an override has ended; the rule's other limits apply" rule=plan override="overrides[0]: ticket 4711"`) != 1 || strings.Contains(text, "acme") {
			t.Errorf("the log has %s", text)
		}
		log.Reset()
		if err := m.SetRules(m.Rules()); err != nil || !strings.Contains(log.String(), "overrides[0]: ticket 4711 ended at 2000-01-01T00:01:00Z; remove it") {
			t.Errorf("%v, %s", err, &log)
		}
	})
}

// A client that was denied is admitted at once when its override arrives, in the same
// count, and an operator sees and resets that of another period.
func TestOverridesArriveAtOnce(t *testing.T) {
	for name, limiter := range limiters {
		t.Run(name, func(t *testing.T) {
			r := perHour("plan", 2)
			m := mustNew(t, ratelimit.Config{Limiter: limiter(t), Rules: []ratelimit.Rule{r}, LogKeys: true})
			app := m.Handler(ok)
			for i, want := range []int{204, 204, 429, 429, 204, 429, 204, 204, 429} {
				switch i {
				case 4:
					r.Overrides = []ratelimit.Override{override(algorithms.PerHour(3), "192.0.2.1")}
				case 6:
					r.Overrides = []ratelimit.Override{override(algorithms.Limit{Rate: 2, Period: time.Hour, Algorithm: algorithms.FixedWindow}, "192.0.2.1")}
				}
				setRules(t, m, r)
				if got := serve(app, "GET /").Code; got != want {
					t.Errorf("request %d: %d, want %d", i, got, want)
				}
			}
			var client struct {
				Counts []struct {
					Limit, Override string
					Remaining       int64
				}
			}
			if err := json.Unmarshal(serve(admin.Handler(m), "GET http://localhost/?rule=plan&value=192.0.2.1").Body.Bytes(), &client); err != nil || fmt.Sprint(client) != "{[{2/1h sliding_window  -1} {2/1h fixed_window overrides[0] 0}]}" {
				t.Errorf("%+v, %v", client, err)
			}
			if err := m.Limiter().Reset(t.Context(), checksOf(t, m, "plan", "192.0.2.1")...); err != nil {
				t.Error(err)
			}
			if got := serve(app, "GET /").Code; got != 204 {
				t.Errorf("after a reset: %d", got)
			}
		})
	}
}

// In an outage a process counts models and overrides apart, too, and requests wait in them.
func TestTiersAndOverridesInOutagesAndQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tiered := perHour("tiered", 2)
		tiered.Key, tiered.Tiers = keyfunc.Join(keyfunc.Header("User"), keyfunc.OneOf(keyfunc.Header("Model"), "large")), map[string][]algorithms.Limit{"large": {algorithms.PerHour(3)}}
		one := perHour("one", 1)
		one.Overrides = []ratelimit.Override{override(algorithms.Limit{Rate: 1, Period: time.Second, Burst: 2, Algorithm: algorithms.LeakyBucket}, "192.0.2.1")}
		guard := &failmode.Guard{Limiter: new(failing)}
		defer guard.Close()
		m := mustNew(t, ratelimit.Config{Limiter: guard, TierFor: func(r *http.Request) string { return r.Header.Get("Model") }, Rules: []ratelimit.Rule{tiered, one}})
		begun := time.Now()
		for i, want := range []int{204, 204, 204, 429} {
			if got := serve(m.Handler(ok), "GET /", "User", "alice", "Model", "large").Code; got != want {
				t.Errorf("request %d: %d, want %d", i, got, want)
			}
		}
		if got := serve(m.Handler(ok), "GET /", "User", "alice", "Model", "").Code; got != 204 {
			t.Errorf("another model: %d", got)
		}
		if waited := time.Since(begun); waited != 3*time.Second {
			t.Errorf("waited for %s", waited)
		}
	})
}

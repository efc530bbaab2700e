package recipes

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
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

// tenantKey counts by the tenant that as has put into the context.
var tenantKey = keyfunc.Required(keyfunc.Context(func(ctx context.Context) (string, bool) {
	s, ok := ctx.Value(contextKey("tenant")).(string)
	return s, ok
}), http.StatusUnauthorized)

func planIn(ctx context.Context) string { s, _ := ctx.Value(contextKey("plan")).(string); return s }

// as makes a request of a tenant, which has the plan.
func as(tenant, plan string, request func() *http.Request) func() *http.Request {
	return func() *http.Request {
		ctx := context.WithValue(context.Background(), contextKey("plan"), plan)
		if tenant != "" {
			ctx = context.WithValue(ctx, contextKey("tenant"), tenant)
		}
		return request().WithContext(ctx)
	}
}

// priceList returns the rules of plans.yaml.
func priceList(t *testing.T) []ratelimit.Rule {
	loader := &rulefile.Loader{Source: rulefile.File("plans.yaml"), Keys: map[string]keyfunc.Key{"tenant": tenantKey}}
	rules, err := loader.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func answer(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestPlans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // begins at midnight of 2000-01-01, UTC
		guard := &failmode.Guard{Limiter: &algorithms.Redis{Client: limitertest.Redis(t), Namespace: "shop"}}
		defer guard.Close()
		limit := made(t)(plans(guard, priceList(t), planIn))
		mux := http.NewServeMux()
		mux.Handle("GET /rate_limit", limit.QuotaHandler())
		mux.Handle("/", responds(200))
		h := limit.Handler(mux)
		spread := func(n int, request func() *http.Request) map[int]int {
			got := make(map[int]int)
			for range n {
				got[answer(h, request()).Code]++
				time.Sleep(time.Second / 5)
			}
			return got
		}
		get := from("192.0.2.1:1", "GET", "/v1/")
		free, pro := as("umbrella", "", get), as("umbrella", "pro", get)

		wants(t, "free, at once", statuses(h, 15, free), 200, 10, 429, 5)
		time.Sleep(2 * time.Second)
		wants(t, "the month", spread(1000, free), 200, 990, 402, 10)
		w := answer(h, free())
		if text := w.Body.String(); w.Code != 402 || w.Header().Get("Retry-After") != "" || text != "this needs more than your plan has left until 2000-02-01T00:00:00Z\n" {
			t.Errorf("%d %q %v", w.Code, text, w.Header())
		}
		wants(t, "upgraded", spread(100, pro), 200, 100)
		w = answer(h, pro())
		const policy = `"plan/1s";q=50;w=1, "plan/month@UTC";q=100000`
		if got := w.Header().Get("RateLimit-Policy"); got != policy {
			t.Errorf("RateLimit-Policy: %s", got)
		}
		time.Sleep(time.Minute)
		w = answer(h, as("umbrella", "pro", from("192.0.2.1:1", "GET", "/rate_limit"))())
		if text := w.Body.String(); !strings.Contains(text, `{"name":"plan","window":"month@UTC","limit":100000,"remaining":98899,"reset_after":2678118,"resets_at":"2000-02-01T00:00:00Z"}`) {
			t.Error(text) // 1000 by free, 101 by pro
		}
		wants(t, "downgraded", statuses(h, 1, free), 402, 1)
		w = answer(h, as("umbrella", "", from("192.0.2.1:1", "GET", "/rate_limit"))())
		if text := w.Body.String(); w.Code != 200 || !strings.Contains(text, `{"name":"plan","window":"month@UTC","limit":1000,"remaining":0,`) {
			t.Errorf("a used-up plan: %d, %s", w.Code, text)
		}
		wants(t, "an override", statuses(h, 150, as("acme", "", get)), 200, 100, 429, 50)
		month := algorithms.Check{Rule: "plan", Key: "wayne", Limit: algorithms.PerMonth(1_000_000, "UTC"), Cost: 1_000_000}
		if d, err := guard.Take(t.Context(), month); err != nil || d.Results[0].Charged != month.Cost {
			t.Fatal(d, err)
		}
		wants(t, "beyond the largest quota", statuses(h, 1, as("wayne", "business", from("192.0.2.3:1", "GET", "/v1/"))), 402, 1)
		wants(t, "downgraded", statuses(h, 1, as("wayne", "pro", from("192.0.2.3:1", "GET", "/v1/"))), 402, 1)
		wants(t, "internal", statuses(h, 400, as("ourselves", "internal", get)), 200, 400)
		time.Sleep(time.Until(time.Date(2000, 2, 1, 0, 0, 1, 0, time.UTC)))
		wants(t, "a new month", statuses(h, 15, free), 200, 10, 429, 5)
		wants(t, "not logged in", statuses(h, 100, as("", "", from("192.0.2.4:1", "GET", "/v1/"))), 401, 100)
		wants(t, "not logged in", statuses(h, 700, as("", "", from("192.0.2.2:1", "GET", "/"))), 200, 600, 429, 100)
	})
	synctest.Test(t, func(t *testing.T) {
		h := made(t)(plans(new(algorithms.Memory), priceList(t), planIn)).Handler(responds(200))
		acme := as("acme", "", from("192.0.2.1:1", "GET", "/v1/"))
		time.Sleep(time.Until(time.Date(2027, 1, 31, 23, 59, 50, 0, time.UTC)))
		wants(t, "the last day of an override", statuses(h, 150, acme), 200, 100, 429, 50)
		time.Sleep(12 * time.Second)
		wants(t, "the day after", statuses(h, 50, acme), 200, 10, 429, 40)
	})
}

func TestOtherDenialsThanOfPlans(t *testing.T) {
	month := algorithms.Check{Rule: "plan", Limit: algorithms.PerMonth(1, "UTC")}
	for name, c := range map[string]struct {
		result algorithms.Result
		want   int
	}{
		"used up":           {algorithms.Result{Check: month, Source: algorithms.SourceRedis}, 402},
		"known to be":       {algorithms.Result{Check: month, Source: algorithms.SourceDenyCache}, 402},
		"an outage, local":  {algorithms.Result{Check: month, Source: algorithms.SourceFallback}, 429},
		"an outage, closed": {algorithms.Result{Check: month, Source: algorithms.SourceFailClosed, Err: context.DeadlineExceeded}, 503},
		"banned by hand":    {algorithms.Result{Check: month, Source: algorithms.SourceRedis, BannedFor: time.Hour}, 429},
		"too fast":          {algorithms.Result{Check: algorithms.Check{Limit: algorithms.PerSecond(1)}, Source: algorithms.SourceRedis}, 429},
	} {
		w := httptest.NewRecorder()
		deny(w, httptest.NewRequest("GET", "/", nil), algorithms.Decision{Results: []algorithms.Result{c.result}})
		if w.Code != c.want {
			t.Errorf("%s: %d, want %d", name, w.Code, c.want)
		}
	}
}

func TestBill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rows []string
		settled := bill("plan", func(r *http.Request) string { return r.URL.Query().Get("id") }, func(id, tenant string, units int64) {
			rows = append(rows, fmt.Sprint(id, " ", tenant, " ", units))
		})
		limit := made(t)(ratelimit.New(ratelimit.Config{Limiter: new(algorithms.Memory), Settled: settled, Rules: []ratelimit.Rule{
			{Name: "plan", Key: tenantKey, Limits: []algorithms.Limit{algorithms.PerSecond(2), algorithms.PerMonth(100, "UTC")}},
		}}))
		h := limit.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			switch r.URL.Query().Get("id") {
			case "a":
				_ = ratelimit.Settle(r.Context(), "plan", 7)
			case "b":
				_ = ratelimit.Settle(r.Context(), "plan", 0)
			}
		}))
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			answer(h, as("acme", "", from("192.0.2.1:1", "GET", "/?id="+id))())
			time.Sleep(10 * time.Second)
		}
		if want := []string{"a acme 7", "c acme 1", "d acme 1", "e acme 1"}; !slices.Equal(rows, want) {
			t.Errorf("%q, want %q", rows, want)
		}
	})
}

func TestWarnings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mails []string
		tell := warn(func(tenant string, percent int64, renewed time.Time) {
			if mail := fmt.Sprint(tenant, " ", percent, " ", renewed.UTC().Format(time.DateOnly)); !slices.Contains(mails, mail) {
				mails = append(mails, mail)
			}
		})
		limit := made(t)(ratelimit.New(ratelimit.Config{Limiter: new(algorithms.Memory), Observe: tell, Settled: tell, Rules: []ratelimit.Rule{
			{Name: "plan", Key: tenantKey, Limits: []algorithms.Limit{algorithms.PerSecond(50), algorithms.PerMonth(20, "UTC")}},
		}}))
		h := limit.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/large" {
				_ = ratelimit.Settle(r.Context(), "plan", 5)
			}
		}))
		get := as("acme", "", from("192.0.2.1:1", "GET", "/"))
		wants(t, "three quarters", statuses(h, 15, get), 200, 15)
		wants(t, "a large request", statuses(h, 1, as("acme", "", from("192.0.2.1:1", "GET", "/large"))), 200, 1)
		if want := []string{"acme 80 2000-02-01", "acme 100 2000-02-01"}; !slices.Equal(mails, want) {
			t.Errorf("%q, want %q", mails, want)
		}
		wants(t, "used up", statuses(h, 3, get), 429, 3)
		time.Sleep(32 * 24 * time.Hour)
		wants(t, "a new month", statuses(h, 15, get), 200, 15)
		if len(mails) != 2 {
			t.Errorf("%q", mails)
		}
		wants(t, "four fifths", statuses(h, 1, get), 200, 1)
		if want := []string{"acme 80 2000-03-01"}; !slices.Equal(mails[2:], want) {
			t.Errorf("%q, want %q", mails[2:], want)
		}
	})
}

// replayed stores responses with status 200 by tenant and Idempotency-Key.
func replayed(next http.Handler) http.Handler {
	stored := make(map[string]string)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tenant, _ := r.Context().Value(contextKey("tenant")).(string)
		id := tenant + " " + r.Header.Get("Idempotency-Key")
		if body, ok := stored[id]; ok {
			_, _ = w.Write([]byte(body))
			return
		}
		response := answer(next, r)
		if response.Code == http.StatusOK {
			stored[id] = response.Body.String()
		}
		w.WriteHeader(response.Code)
		_, _ = w.Write(response.Body.Bytes())
	})
}

func TestRetriesAreChargedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		perIP := limited(t, ratelimit.Rule{Name: "per-ip", Key: keyfunc.IP, Limit: algorithms.PerMinute(60)})
		plan := limited(t, ratelimit.Rule{Name: "plan", Key: tenantKey, Limit: algorithms.PerMonth(2, "UTC"), ChargeOn: []int{200}})
		status := 500
		h := retriable(perIP, plan, replayed, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		with := func(tenant, id string) func() *http.Request {
			return as(tenant, "", func() *http.Request {
				r := from("192.0.2.1:1", "POST", "/")()
				r.Header.Set("Idempotency-Key", id)
				return r
			})
		}
		wants(t, "failures", statuses(h, 5, with("acme", "1")), 500, 5)
		status = 200
		wants(t, "retries", statuses(h, 10, with("acme", "1")), 200, 10)
		wants(t, "another request", statuses(h, 10, with("acme", "2")), 200, 10)
		wants(t, "a third", statuses(h, 5, with("acme", "3")), 429, 5)
		wants(t, "a retry of the first", statuses(h, 5, with("acme", "1")), 200, 5)
		wants(t, "another tenant", statuses(h, 3, with("globex", "4")), 200, 3)
		wants(t, "a flood of retries", statuses(h, 40, with("acme", "1")), 200, 22, 429, 18)
	})
}

func TestFairShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := made(t)(fairShares(new(algorithms.Memory), tenantKey)).Handler(responds(200))
		get := from("192.0.2.1:1", "GET", "/")
		wants(t, "one tenant, a service that is idle", statuses(h, 300, as("a", "", get)), 200, 300)
		time.Sleep(2 * time.Second)
		// When 800 of 1000 are used, each has 100.
		wants(t, "one tenant", statuses(h, 900, as("a", "", get)), 200, 800, 429, 100)
		wants(t, "another", statuses(h, 150, as("b", "", get)), 200, 100, 429, 50)
		time.Sleep(2 * time.Second)
		for i := range 10 {
			wants(t, "ten tenants", statuses(h, 100, as(fmt.Sprint(i), "", get)), 200, 100)
		}
	})
}

package middleware_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// The login rules of docs/trust-model.md: nobody learns from the one by account
// how active the account is.
func logins(perAccount int64) []ratelimit.Rule {
	return []ratelimit.Rule{
		perHour("login-ip", 100),
		{Name: "login-account", Key: keyfunc.BodyForm("account", 1<<10), Limit: algorithms.PerHour(perAccount), Hidden: true},
	}
}

// told is all that a client reads.
func told(w *httptest.ResponseRecorder) string {
	return fmt.Sprintln(w.Code, w.Header(), w.Body)
}

// What is told of an account that others use all the time is what is told of one
// that nobody uses.
func TestAHiddenRuleTellsNothingOfItsCounts(t *testing.T) {
	answers := func(busy int) (texts []string) {
		h := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: logins(50), Headers: bothFields}).Handler(ok)
		for range busy {
			r := from("203.0.113.9", post("/login", formType, "account=victim"))
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
		for range 3 {
			text := told(login(h, "victim"))
			if strings.Contains(text, "account") {
				t.Errorf("named: %s", text)
			}
			texts = append(texts, withoutReset(text))
		}
		return texts
	}
	if idle, active := answers(0), answers(40); strings.Join(idle, "") != strings.Join(active, "") {
		t.Errorf("idle: %s\nactive: %s", idle, active)
	}
}

// withoutReset drops the times, which differ between runs.
func withoutReset(text string) string {
	var kept []string
	for field := range strings.FieldsSeq(text) {
		if !strings.HasPrefix(field, "X-Ratelimit-Reset") && !strings.Contains(field, ";t=") {
			kept = append(kept, field)
		}
	}
	return strings.Join(kept, " ")
}

// At its denial a hidden rule says when to come back, and no more: not that it bans, nor that
// nobody can count.
func TestAHiddenDenialIsUnnamed(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*ratelimit.Config)
		status int
		retry  string // "" for any
	}{
		"by default": {func(*ratelimit.Config) {}, http.StatusTooManyRequests, ""},
		"by the application, which shows all that it is given": {func(c *ratelimit.Config) {
			c.Denied = func(w http.ResponseWriter, _ *http.Request, d algorithms.Decision) {
				w.WriteHeader(headers.Status(d))
				fmt.Fprintf(w, "%+v", d)
			}
		}, http.StatusTooManyRequests, ""},
		"by a ban": {func(c *ratelimit.Config) { c.Rules[1].Ban = ratelimit.Ban{After: 1, For: 24 * time.Hour} }, http.StatusTooManyRequests, "86400"},
		"failing closed": {func(c *ratelimit.Config) {
			c.Limiter, c.Rules[0].Fail, c.Rules[1].Fail = new(failing), failmode.Open, failmode.Closed
		}, http.StatusServiceUnavailable, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			config := ratelimit.Config{Limiter: new(algorithms.Memory), Rules: logins(2), Headers: bothFields}
			c.change(&config)
			h := mustNew(t, config).Handler(ok)
			for range 4 { // the third may begin a ban
				login(h, "victim")
			}
			w := login(h, "victim")
			retry := w.Header().Get("Retry-After")
			if w.Code != c.status || retry == "" || c.retry != "" && retry != c.retry || w.Header().Get("RateLimit") != "" {
				t.Errorf("%d %v", w.Code, w.Header())
			}
			if got, ok := w.Header()["X-Ratelimit-Remaining"]; ok {
				t.Errorf("remaining %s, of a rule that had room", got)
			}
			if text := told(w); strings.Contains(text, "login-account") || strings.Contains(text, "victim") || strings.Contains(text, headers.AbnormalUsageDetected) {
				t.Errorf("named: %s", text)
			}
		})
	}
}

// The application itself sees everything: in the context, in Observe, and by Take.
func TestTheApplicationSeesHiddenRules(t *testing.T) {
	var observed, found algorithms.Decision
	m := mustNew(t, ratelimit.Config{
		Limiter: new(algorithms.Memory), Rules: logins(1),
		Observe: func(_ *http.Request, d algorithms.Decision) { observed = d },
		Denied: func(w http.ResponseWriter, r *http.Request, d algorithms.Decision) {
			found, _ = ratelimit.FromContext(r.Context())
			if _, shown := d.Result("login-account"); shown {
				t.Error("Denied is given the hidden rule by name")
			}
			w.WriteHeader(headers.Status(d))
		},
	})
	h := m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { found, _ = ratelimit.FromContext(r.Context()) }))
	for i, denied := range []bool{false, true} {
		w := login(h, "victim")
		if (w.Code == http.StatusTooManyRequests) != denied {
			t.Errorf("request %d: %d", i, w.Code)
		}
		for who, d := range map[string]algorithms.Decision{"Observe": observed, "FromContext": found} {
			if r, ok := d.Result("login-account"); !ok || r.Denies() != denied || r.Check.Key != "victim" {
				t.Errorf("request %d: %s has %+v", i, who, d)
			}
		}
	}
	d, err := m.Take(post("/login", formType, "account=victim"))
	if r, ok := d.Result("login-account"); err != nil || !ok || !r.Denies() {
		t.Errorf("%+v, %v", d, err)
	}
}

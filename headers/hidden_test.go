package headers_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/internal/hidden"
)

const hiddenName = "account-of-a-victim"

func redact(d algorithms.Decision) algorithms.Decision {
	return hidden.Redact(d, func(rule string) bool { return rule == hiddenName })
}

// told is everything that a client gets, by all Writers and Deny.
func told(d algorithms.Decision) string {
	var b strings.Builder
	for _, write := range []headers.Writer{headers.XRateLimit, headers.XRateLimitDelta, headers.IETFDraft11, headers.SetRetryAfter} {
		h := http.Header{}
		write(h, d)
		fmt.Fprintln(&b, fields(h))
	}
	if !d.Allowed {
		w := httptest.NewRecorder()
		headers.Deny(w, httptest.NewRequest(http.MethodGet, "/", nil), d)
		fmt.Fprintln(&b, w.Code, fields(w.Header()), w.Body)
	}
	return b.String()
}

func TestADenialByAHiddenRuleIsTold(t *testing.T) {
	account := denied(result(hiddenName, algorithms.PerMinute(5), 0, 50*time.Second), 40*time.Second)
	never := denied(account, algorithms.Never)
	notCounted := closed
	notCounted.Check.Rule = hiddenName
	const quota, reduced = headers.QuotaExceeded, headers.TemporaryReducedCapacity
	for name, c := range map[string]struct {
		results        []algorithms.Result
		status         int
		kind, retry    string
		violated, left string // in JSON; X-RateLimit-Remaining
	}{
		"alone":                             {[]algorithms.Result{account}, 429, quota, "40", `[]`, ""},
		"beside a rule with room":           {[]algorithms.Result{account, login(3)}, 429, quota, "40", `[]`, ""},
		"beside one that denies for less":   {[]algorithms.Result{denied(login(0), 4*time.Second), account}, 429, quota, "40", `["login"]`, "0"},
		"beside one that denies for longer": {[]algorithms.Result{denied(login(0), 44*time.Second), account}, 429, quota, "44", `["login"]`, "0"},
		"beside one that nobody counted":    {[]algorithms.Result{closed, account}, 429, quota, "40", `[]`, ""},
		"not counted":                       {[]algorithms.Result{notCounted}, 503, reduced, "1", `[]`, ""},
		"not counted, beside one":           {[]algorithms.Result{notCounted, closed}, 503, reduced, "1", `["per-user"]`, ""},
		"not counted, beside a denial":      {[]algorithms.Result{notCounted, denied(login(0), 4*time.Second)}, 429, quota, "4", `["login"]`, "0"},
		"never":                             {[]algorithms.Result{never}, 429, quota, "", `[]`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := redact(decision(c.results...))
			w := httptest.NewRecorder()
			headers.All(headers.XRateLimit, headers.IETFDraft11)(w.Header(), d)
			headers.Deny(w, httptest.NewRequest(http.MethodGet, "/", nil), d)
			body := w.Body.String()
			if w.Code != c.status || !strings.Contains(body, c.kind) || !strings.Contains(body, `"violated-policies":`+c.violated+"}") {
				t.Errorf("%d %s", w.Code, body)
			}
			if got := w.Header().Get("Retry-After"); got != c.retry || c.retry != "" && !strings.Contains(body, "Retry in "+c.retry+" s.") {
				t.Errorf("Retry-After %q, want %q: %s", got, c.retry, body)
			}
			if got := w.Header().Get("X-RateLimit-Remaining"); got != c.left {
				t.Errorf("X-RateLimit-Remaining %q, want %q", got, c.left)
			}
			if got := w.Header().Get("RateLimit"); strings.Contains(got, `""`) || strings.Contains(got, hiddenName) {
				t.Errorf("RateLimit: %s", got)
			}
		})
	}
}

// Two decisions that differ only in the name, limit, key and counts of a hidden
// rule are told in the same words, and an admission as if there were no hidden rule.
func TestNothingOfAHiddenRuleIsTold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, other := drawDecision(t), drawDecision(t)
		var without []algorithms.Result
		for i := range d.Results {
			r := &d.Results[i]
			if r.Check.Rule == hiddenName || rapid.Bool().Draw(t, "hidden") {
				r.Check.Rule = hiddenName
			} else {
				without = append(without, *r)
			}
		}
		same := algorithms.Decision{Allowed: d.Allowed, Results: slices.Clone(d.Results)}
		for i := range same.Results {
			if r := &same.Results[i]; r.Check.Rule == hiddenName && i < len(other.Results) {
				o := other.Results[i]
				r.Check.Key, r.Check.Limit, r.Check.Cost = o.Check.Key, o.Check.Limit, o.Check.Cost
				r.Remaining, r.ResetAfter = o.Remaining, o.ResetAfter
			}
		}
		got := told(redact(d))
		if again := told(redact(same)); got != again {
			t.Errorf("by counts:\n%s\n%s", got, again)
		}
		if strings.Contains(got, hiddenName) {
			t.Errorf("named: %s", got)
		}
		if d.Allowed {
			if want := told(algorithms.Decision{Allowed: true, Results: without}); got != want {
				t.Errorf("an admission: %s\nwithout: %s", got, want)
			}
		} else if headers.Status(redact(d)) != headers.Status(d) || redact(d).RetryAfter() != d.RetryAfter() {
			t.Errorf("status %d and %v, want %d and %v", headers.Status(redact(d)), redact(d).RetryAfter(), headers.Status(d), d.RetryAfter())
		}
	})
}

func TestJitterOfAHiddenDenial(t *testing.T) {
	d := redact(decision(denied(result(hiddenName, algorithms.PerMinute(5), 0, time.Minute), 40*time.Second)))
	h := http.Header{}
	headers.Jitter(time.Second, headers.All(headers.XRateLimit, headers.IETFDraft11))(h, d)
	headers.SetRetryAfter(h, d)
	if got := h.Get("Retry-After"); len(h) != 1 || got != "41" {
		t.Errorf("%v", h)
	}
}

package headers_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
)

// deny denies a request with these Accept lines.
func deny(d algorithms.Decision, there http.Header, accept ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header["Accept"] = accept
	w := httptest.NewRecorder()
	maps.Copy(w.Header(), there)
	headers.Deny(w, r, d)
	return w
}

func TestStatus(t *testing.T) {
	over, room := denied(login(0), time.Second), result("wide", algorithms.PerMinute(9), 1, 0)
	shadow := over
	shadow.Check.Shadow = true
	for name, c := range map[string]struct {
		d    algorithms.Decision
		want int
	}{
		"admitted":                 {decision(room, shadow), http.StatusOK},
		"over a limit":             {decision(room, over), http.StatusTooManyRequests},
		"nobody could count":       {decision(room, closed), http.StatusServiceUnavailable},
		"both":                     {decision(closed, over), http.StatusTooManyRequests},
		"nobody, and a shadow":     {decision(shadow, closed), http.StatusServiceUnavailable},
		"passed without a count":   {decision(open), http.StatusOK},
		"over, beside a fail open": {decision(open, over), http.StatusTooManyRequests},
		"denied by no result":      {algorithms.Decision{Results: []algorithms.Result{room, shadow}}, http.StatusTooManyRequests},
	} {
		if got := headers.Status(c.d); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// The problem document is what encoding/json makes of it.
func TestDenyWritesJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDecision(t)
		if d.Allowed {
			return
		}
		w := deny(d, nil)
		type problem struct {
			Type     string   `json:"type"`
			Title    string   `json:"title"`
			Status   int      `json:"status"`
			Detail   string   `json:"detail"`
			Violated []string `json:"violated-policies"`
		}
		var p problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			t.Fatalf("%v: %s", err, w.Body)
		}
		if want, err := json.Marshal(p); err != nil || w.Body.String() != string(want)+"\n" {
			t.Errorf("got %s, want %s", w.Body, want)
		}
		violated := []string{}
		for _, r := range d.Results {
			name := spelled(r.Check.Rule)
			if !r.HasRoom && !r.Check.Shadow && (r.Err == nil || p.Status == 503) && name != "" && !slices.Contains(violated, name) {
				violated = append(violated, name)
			}
		}
		if !slices.Equal(p.Violated, violated) {
			t.Errorf("violated %q, want %q", p.Violated, violated)
		}
	})
}

func TestDenyAnswersWhatTheClientAccepts(t *testing.T) {
	const text, problem = "text/plain; charset=utf-8", "application/problem+json"
	for _, c := range []struct {
		accept []string
		want   string
	}{
		{nil, problem},
		{[]string{""}, problem},
		{[]string{" , "}, problem},
		{[]string{"*/*"}, problem},
		{[]string{"application/*"}, problem},
		{[]string{"application/json"}, problem},
		{[]string{"APPLICATION/JSON ; charset=utf-8"}, problem},
		{[]string{"application/problem+json"}, problem},
		{[]string{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}, problem},
		{[]string{"text/html", "application/json;q=0.1"}, problem},
		{[]string{"application/json;q=0.001"}, problem},
		{[]string{"application/json;version=1;q=0, application/json"}, problem},
		{[]string{"application/json, application/json;version=1;q=0"}, problem},
		{[]string{"application/problem+json, application/json;q=0"}, problem},
		{[]string{"application/json;q=-1"}, problem},
		{[]string{"application/json, application/*;q=0, */*;q=0"}, problem},
		{[]string{"application/json;q=x"}, problem},
		{[]string{"application/json;q=7"}, problem},
		{[]string{"*/*;q=0, application/json;q=0, application/json;version=1;q=1"}, problem},
		{[]string{"text/html"}, text},
		{[]string{"text/*, image/png"}, text},
		{[]string{"text/plain, application/xml"}, text},
		{[]string{"application/json;q=0"}, text},
		{[]string{"application/json; Q = 0.000"}, text},
		{[]string{"*/*, application/*;q=0"}, text},
		{[]string{"*/*, application/json;q=0"}, text},
		{[]string{"application/json;q=0", "*/*"}, text},
		{[]string{"application/json, application/problem+json;q=0"}, text},
		{[]string{"*/*;q=0"}, text},
		{[]string{"json"}, text},
	} {
		w := deny(decision(denied(login(0), time.Second)), nil, c.accept...)
		if got := w.Header().Get("Content-Type"); got != c.want || json.Valid(w.Body.Bytes()) != (c.want == problem) {
			t.Errorf("Accept %q: got %s %s", c.accept, got, w.Body)
		}
		if got := w.Header().Get("Vary"); got != "Accept" {
			t.Errorf("Accept %q: Vary %q", c.accept, got)
		}
	}
}

func TestDenyMendsHeadersThatWereSetForAnotherBody(t *testing.T) {
	w := deny(decision(denied(login(0), time.Second)), http.Header{
		"Cache-Control": {"public, max-age=60"}, "Content-Length": {"5"}, "Content-Type": {"text/css"}, "Retry-After": {"77"},
	})
	h := w.Header()
	if h.Get("Cache-Control") != "no-store" || h.Get("Content-Length") != "" || h.Get("Content-Type") != "application/problem+json" || h.Get("Retry-After") != "77" {
		t.Errorf("%v", h)
	}
	if !strings.Contains(w.Body.String(), "Retry in 77 s") {
		t.Errorf("does not say what Retry-After says: %s", w.Body)
	}
	for _, c := range []struct{ there, want []string }{
		{[]string{"Origin"}, []string{"Origin", "Accept"}},
		{[]string{"Origin, accept"}, []string{"Origin, accept"}},
		{[]string{"Origin", "Cookie, ACCEPT"}, []string{"Origin", "Cookie, ACCEPT"}},
		{[]string{"Accept-Encoding"}, []string{"Accept-Encoding", "Accept"}},
		{[]string{"*"}, []string{"*"}},
	} {
		w := deny(decision(denied(login(0), time.Second)), http.Header{"Vary": c.there})
		if got := w.Header()["Vary"]; !slices.Equal(got, c.want) {
			t.Errorf("Vary %q became %q, want %q", c.there, got, c.want)
		}
	}
}

package headers_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
)

func ExampleAll() {
	loud := func(h http.Header, d algorithms.Decision) {
		if t, ok := d.Tightest(); ok && t.Remaining == 0 {
			h.Set("X-Slow-Down", t.Check.Rule)
		}
	}
	write := headers.All(headers.XRateLimit, loud)

	h := http.Header{}
	write(h, decision(result("login", algorithms.PerMinute(5), 0, 10*time.Second)))
	fmt.Println(h.Get("X-RateLimit-Limit"), h.Get("X-RateLimit-Remaining"), h.Get("X-Slow-Down"))
	// Output: 5 0 login
}

func ExampleIETFDraft11() {
	h := http.Header{}
	headers.IETFDraft11(h, decision(
		result("per-ip", algorithms.PerMinute(200), 150, time.Minute),
		result("login", algorithms.PerMinute(5), 3, 42*time.Second)))
	fmt.Println(h.Get("RateLimit-Policy"))
	fmt.Println(h.Get("RateLimit"))
	// Output:
	// "per-ip";q=200;w=60, "login";q=5;w=60
	// "login";r=3;t=42
}

func ExampleDeny() {
	over := decision(denied(result("login", algorithms.PerMinute(5), 0, 42*time.Second), 4200*time.Millisecond))
	w := httptest.NewRecorder()
	headers.Deny(w, httptest.NewRequest(http.MethodPost, "/login", nil), over)
	fmt.Println(w.Code, w.Header().Get("Retry-After"), w.Header().Get("Content-Type"))
	fmt.Println(w.Body)
	// Output:
	// 429 5 application/problem+json
	// {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"detail":"Too many requests. Retry in 5 s.","violated-policies":["login"]}
}

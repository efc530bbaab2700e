package headers_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// Writers are functions, so one of your own stands beside the others.
func ExampleAll() {
	loud := func(h http.Header, d algorithms.Decision) {
		if t, ok := d.Tightest(); ok && t.Remaining == 0 {
			h.Set("X-Slow-Down", t.Check.Rule)
		}
	}
	write := headers.All(headers.XRateLimit, loud)

	d, err := new(algorithms.Memory).Take(context.Background(), algorithms.Check{Rule: "login", Limit: algorithms.Limit{Rate: 1, Period: time.Minute, Algorithm: algorithms.SlidingLog}})
	if err != nil {
		panic(err)
	}
	h := make(http.Header)
	write(h, d)
	fmt.Println(h.Get("X-RateLimit-Limit"), h.Get("X-RateLimit-Remaining"), h.Get("X-Slow-Down"))
	// Output: 1 0 login
}

// RateLimit-Policy lists all rules, RateLimit the one that is closest to its limit.
func ExampleIETFDraft11() {
	bucket := func(n int64) algorithms.Limit {
		return algorithms.Limit{Rate: n, Period: time.Minute, Algorithm: algorithms.TokenBucket}
	}
	d, err := new(algorithms.Memory).Take(context.Background(),
		algorithms.Check{Rule: "per-ip", Limit: bucket(200)},
		algorithms.Check{Rule: "login", Limit: bucket(5)})
	if err != nil {
		panic(err)
	}
	h := make(http.Header)
	headers.IETFDraft11(h, d)
	fmt.Println(h.Get("RateLimit-Policy"))
	fmt.Println(h.Get("RateLimit"))
	// Output:
	// "per-ip";q=200;w=60, "login";q=5;w=60
	// "login";r=4;t=12
}

// What a client gets that is over a limit: 5 logins a minute are one every 12 s.
func ExampleDeny() {
	limiter := new(algorithms.Memory)
	login := algorithms.Check{Rule: "login", Limit: algorithms.Limit{Rate: 5, Period: time.Minute, Algorithm: algorithms.TokenBucket}}
	var d algorithms.Decision
	for range 6 {
		var err error
		if d, err = limiter.Take(context.Background(), login); err != nil {
			panic(err)
		}
	}
	w := httptest.NewRecorder()
	headers.Deny(w, httptest.NewRequest(http.MethodPost, "/login", nil), d)
	fmt.Println(w.Code, w.Header().Get("Retry-After"), w.Header().Get("Content-Type"))
	fmt.Println(w.Body)
	// Output:
	// 429 12 application/problem+json
	// {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"detail":"Too many requests. Retry in 12 s.","violated-policies":["login"]}
}

// A client of your own reads how long to wait, whatever the server sends.
func ExampleRetryAfter() {
	resp := &http.Response{StatusCode: http.StatusTooManyRequests, Header: make(http.Header)}
	resp.Header.Set("RateLimit", `"burst";r=0;t=2, "daily";r=411;t=36000`)
	if wait, ok := headers.RetryAfter(resp); ok {
		fmt.Println("again in", wait)
	}
	// Output: again in 2s
}

// The client waits as long as the denial says, and sends the request again.
func ExampleTransport() {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		io.WriteString(w, "hello")
	}))
	defer server.Close()

	client := &http.Client{Transport: new(headers.Transport)}
	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Printf("%s: %s, after %d requests\n", resp.Status, body, requests.Load())
	// Output: 200 OK: hello, after 2 requests
}

// Clients that were denied together come back one after another: each wait is up to
// ten seconds longer.
func ExampleJitter() {
	limit, err := ratelimit.New(ratelimit.Config{
		Limiter: new(algorithms.Memory),
		Rules:   []ratelimit.Rule{{Name: "per-ip", Key: keyfunc.IP, Limit: algorithms.PerHour(100)}},
		Headers: headers.Jitter(10*time.Second, headers.XRateLimit),
	})
	fmt.Println(limit != nil, err)
	// Output: true <nil>
}

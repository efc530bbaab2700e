package keyfunc_test

import (
	"net/http"
	"testing"

	"github.com/seed75154129/ratelimit/keyfunc"
)

// What other limiters had to publish an advisory for: two requests whose keys must
// be equal, or must not.
func TestAdvisories(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("POST /auth/login", http.NotFoundHandler())
	route := keyfunc.Mux(mux)
	heimdall := keyfunc.Proxies{Hops: 1, Header: "Forwarded"}
	twoParts := func(a, b string) keyfunc.Key { return keyfunc.Join(key(a), key(b)) }

	for _, tc := range []struct {
		prevents, advisory string
		f, g               keyfunc.Key
		a, b               *http.Request
		same               bool
	}{
		{"all IPv4 clients in one bucket, once mapped", "CVE-2026-30827", keyfunc.IP, keyfunc.IP,
			from("[::ffff:203.0.113.9]:1"), from("[::ffff:198.51.100.1]:1"), false},
		{"a second budget by the mapped address", "GHSA-5847-rm3g-23mw", keyfunc.IP, keyfunc.IP,
			from("[::ffff:203.0.113.9]:1"), from("203.0.113.9:1"), true},
		{"a mapped proxy that is not recognized", "GO-2024-2917", ours.IP(), ours.IP(),
			from("[::ffff:10.0.0.1]:1", "203.0.113.9"), from("203.0.113.9:1"), true},
		{"another bucket by hexadecimal notation", "express-rate-limit 8.6.2", keyfunc.IP, keyfunc.IP,
			from("[::ffff:cb00:7109]:1"), from("203.0.113.9:1"), true},
		{"IPv6 taken for IPv4 by its dots", "express-rate-limit 8.6.2", keyfunc.IP, keyfunc.IP,
			from("[2001:db8::203.0.113.9]:1"), from("203.0.113.9:1"), false},
		{"a fresh bucket for each address of a /64", "express-rate-limit 8.0.0", keyfunc.IP, keyfunc.IP,
			from("[2001:db8::1]:1"), from("[2001:db8::2]:1"), true},
		{"a fresh bucket by X-Forwarded-For", "CVE-2026-118653, CVE-2025-59152, CVE-2020-28483", keyfunc.IP, keyfunc.IP,
			from("203.0.113.9:1", "1.1.1.1"), from("203.0.113.9:1", "2.2.2.2"), true},
		{"a fresh bucket by the leftmost hop", "GHSA-9g5q-2w5x-hmxf, CVE-2026-111934, CVE-2026-110723", ours.IP(), ours.IP(),
			from("10.0.0.1:1", "1.1.1.1, 203.0.113.9"), from("10.0.0.1:1", "2.2.2.2, 203.0.113.9"), true},
		{"a fresh bucket by the leftmost hop, hops counted", "GHSA-9g5q-2w5x-hmxf", keyfunc.Proxies{Hops: 1}.IP(), keyfunc.Proxies{Hops: 1}.IP(),
			from("10.0.0.1:1", "1.1.1.1, 203.0.113.9"), from("10.0.0.1:1", "2.2.2.2", "203.0.113.9"), true},
		{"a fresh bucket by True-Client-IP", "GHSA-3fxj-6jh8-hvhx", ours.IP(), ours.IP(),
			with("True-Client-IP", "1.1.1.1"), with("X-Real-IP", "2.2.2.2"), true},
		{"a hop out of a quoted string", "GHSA-38x9-25wx-7fg2", heimdall.IP(), ours.IP(),
			forwarded("10.0.0.1:1", `for=203.0.113.9;host="a, for=1.1.1.1"`), from("203.0.113.9:1"), true},
		{"a hop swallowed by a quote left open", "GHSA-38x9-25wx-7fg2", heimdall.IP(), ours.IP(),
			forwarded("10.0.0.1:1", `for="1.1.1.1, for=203.0.113.9`), from("203.0.113.9:1"), true},
		{"another route by doubled slashes", "GHSA-x732-6j76-qmhm", route, route,
			spelled("POST", "//auth//login"), spelled("POST", "/auth/login"), true},
		{"another route by escapes", "GHSA-24q2-59hm-rh9r", route, route,
			spelled("POST", "/%61uth/login"), spelled("POST", "/auth/login"), true},
		{"one key for different parts, by separators", "throttled, httprate, tollbooth", twoParts("a,1:b", "c"), twoParts("a", "b,1:c"), req, req, false},
		{"one bucket for IPv6 without a port", "throttled", keyfunc.IP, keyfunc.IP,
			from("2001:db8:0:1::1"), from("2001:db8:0:2::1"), false},
	} {
		t.Run(tc.prevents, func(t *testing.T) {
			a, b := mustKey(t, tc.f, tc.a), mustKey(t, tc.g, tc.b)
			if (a == b) != tc.same {
				t.Errorf("%s: %q and %q", tc.advisory, a, b)
			}
		})
	}
}

package keyfunc_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/seed75154129/ratelimit/keyfunc"
)

// rfc7239 trusts whom ours trusts, to write Forwarded.
var rfc7239 = keyfunc.Proxies{Trusted: ours.Trusted, Header: "forwarded"}

// forwarded returns a request from the peer remote, with the lines of Forwarded.
func forwarded(remote string, lines ...string) *http.Request {
	r := from(remote)
	r.Header["Forwarded"] = lines
	return r
}

func TestForwarded(t *testing.T) {
	for _, tc := range []struct {
		name, remote string
		lines        []string
		want         string
	}{
		{"untrusted peer's header ignored", "203.0.113.9:1", []string{"for=198.51.100.1"}, "203.0.113.9"},
		{"untrusted peer's broken header ignored", "203.0.113.9:1", []string{`for="`}, "203.0.113.9"},
		{"trusted peer's header believed", "10.0.0.1:1", []string{"for=198.51.100.1"}, "198.51.100.1"},
		{"name in any case", "10.0.0.1:1", []string{"FoR=198.51.100.1"}, "198.51.100.1"},
		{"other parameters", "10.0.0.1:1", []string{`by=10.0.0.1;for=198.51.100.1;proto=https;host="a.example:8080"`}, "198.51.100.1"},
		{"blanks around parameters", "10.0.0.1:1", []string{"by=10.0.0.1 ; for=198.51.100.1\t;\tproto=https , for=10.0.0.2"}, "198.51.100.1"},
		{"empty parameters", "10.0.0.1:1", []string{";for=198.51.100.1;;"}, "198.51.100.1"},
		{"quoted IPv4", "10.0.0.1:1", []string{`for="198.51.100.1"`}, "198.51.100.1"},
		{"quoted IPv4 with a port", "10.0.0.1:1", []string{`for="198.51.100.1:4711"`}, "198.51.100.1"},
		{"hidden port", "10.0.0.1:1", []string{`for="198.51.100.1:_web-1"`}, "198.51.100.1"},
		{"IPv6 masked", "10.0.0.1:1", []string{`for="[2001:db8:2::1]"`}, "2001:db8:2::/64"},
		{"IPv6 with a port", "10.0.0.1:1", []string{`for="[2001:DB8:2::1]:4711"`}, "2001:db8:2::/64"},
		{"v4-mapped client keyed as IPv4", "10.0.0.1:1", []string{`for="[::ffff:198.51.100.1]"`}, "198.51.100.1"},
		{"escapes", "10.0.0.1:1", []string{`for="\[2001:db8:2:\:1\]"`}, "2001:db8:2::/64"},
		{"comma in quotes is no hop", "10.0.0.1:1", []string{`for=198.51.100.1;host="a, for=1.1.1.1"`}, "198.51.100.1"},
		{"semicolon in quotes is no parameter", "10.0.0.1:1", []string{`host="a;for=1.1.1.1";for=198.51.100.1`}, "198.51.100.1"},
		{"escaped quote ends nothing", "10.0.0.1:1", []string{`for=198.51.100.1;host="a\", for=1.1.1.1;x=\""`}, "198.51.100.1"},
		{"escaped backslash before the end", "10.0.0.1:1", []string{`for=198.51.100.1;host="a\\"`}, "198.51.100.1"},
		{"spoofed leftmost ignored", "10.0.0.1:1", []string{"for=1.1.1.1, for=198.51.100.1"}, "198.51.100.1"},
		{"spoofed open quote swallows nothing", "10.0.0.1:1", []string{`for="1.1.1.1, for=198.51.100.1, for=10.0.0.2`}, "198.51.100.1"},
		{"spoofed open quote meets quotes", "10.0.0.1:1", []string{`for=1.1.1.1;x="\, for="[2001:db8:2::1]:1", for="[2001:db8:1::1]"`}, "2001:db8:2::/64"},
		{"spoofed garbage not even read", "10.0.0.1:1", []string{"=;=\x00,,, for=198.51.100.1"}, "198.51.100.1"},
		{"trusted hops walked over", "10.0.0.1:1", []string{`for=1.1.1.1, for=198.51.100.1, for="[2001:db8:1::7]:80"`, "for=10.0.0.2"}, "198.51.100.1"},
		{"X-Forwarded-For is not read", "10.0.0.1:1", nil, "10.0.0.1"},
		{"empty header: the peer", "10.0.0.1:1", []string{""}, "10.0.0.1"},
		{"empty elements", "10.0.0.1:1", []string{",for=1.1.1.1, , for=198.51.100.1,", "", " ,\t,for=10.0.0.2,,"}, "198.51.100.1"},
		{"all trusted: the leftmost", "10.0.0.1:1", []string{"for=10.0.0.4, for=10.0.0.3"}, "10.0.0.4"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := forwarded(tc.remote, tc.lines...)
			r.Header.Set("X-Forwarded-For", "1.1.1.1")
			wantKey(t, rfc7239.IP(), r, tc.want)
		})
	}
}

func TestForwardedFailsClosed(t *testing.T) {
	for name, line := range map[string]string{
		"unknown":                   "for=unknown",
		"hidden node":               "for=_gazonk",
		"hidden node in quotes":     `for="_gazonk:80"`,
		"no for":                    "proto=https",
		"for twice":                 "for=1.1.1.1;for=198.51.100.1",
		"empty value":               "for=",
		"empty quotes":              `for=""`,
		"no equals sign":            "198.51.100.1",
		"blank before equals sign":  "for =198.51.100.1",
		"blank after equals sign":   "for= 198.51.100.1",
		"port without quotes":       "for=198.51.100.1:80",
		"brackets without quotes":   "for=[2001:db8:2::1]",
		"IPv6 without brackets":     `for="2001:db8:2::1"`,
		"IPv4 in brackets":          `for="[198.51.100.1]"`,
		"IPv4 mapped, no brackets":  `for="::ffff:198.51.100.1"`,
		"zone":                      `for="[fe80::1%eth0]"`,
		"brackets left open":        `for="[2001:db8:2::1"`,
		"no port after colon":       `for="198.51.100.1:"`,
		"port too high":             `for="198.51.100.1:65536"`,
		"hidden port without name":  `for="198.51.100.1:_"`,
		"hidden port, odd letter":   `for="198.51.100.1:_a b"`,
		"text after brackets":       `for="[2001:db8:2::1]80"`,
		"blanks in quotes":          `for=" 198.51.100.1"`,
		"quote left open":           `for="198.51.100.1`,
		"quote never opened":        `for=198.51.100.1"`,
		"closing quote escaped":     `for="198.51.100.1\"`,
		"escape at the end":         `for="198.51.100.1\`,
		"text after quotes":         `for="198.51.100.1"x`,
		"two values":                "for=198.51.100.1 1.1.1.1",
		"control character":         "for=198.51.100.1;host=\"a\x00\"",
		"escaped control character": "for=198.51.100.1;host=\"a\\\x7f\"",
		"name no token":             "for=198.51.100.1;ho st=a",
		"value no token":            "for=198.51.100.1;host=a/b",
		"quotes as name":            `"for"=198.51.100.1`,
		"parameters but no pair":    ";;",
		"longer than is read":       "for=198.51.100.1;host=" + strings.Repeat("a", 512),
		"X-Forwarded-For's form":    "198.51.100.1, 10.0.0.2",
		"more hops than are read":   "for=198.51.100.1" + strings.Repeat(",for=10.0.0.2", 32),
	} {
		t.Run(name, func(t *testing.T) {
			wantErr(t, rfc7239.IP(), forwarded("10.0.0.1:1", line), keyfunc.ErrNoKey)
			wantErr(t, rfc7239.IP(), forwarded("10.0.0.1:1", "for=1.1.1.1, "+line+", for=10.0.0.2"), keyfunc.ErrNoKey)
		})
	}
}

func TestForwardedReadsAsMuchAsDocumented(t *testing.T) {
	pad := func(n int) string {
		s := "for=198.51.100.1;host="
		return s + strings.Repeat("a", n-len(s))
	}
	wantKey(t, rfc7239.IP(), forwarded("10.0.0.1:1", pad(512)), "198.51.100.1")
	wantKey(t, rfc7239.IP(), forwarded("10.0.0.1:1", "for=1.1.1.1,"+pad(512)), "198.51.100.1")
	wantErr(t, rfc7239.IP(), forwarded("10.0.0.1:1", "for=1.1.1.1,"+pad(513)), keyfunc.ErrNoKey)
	wantKey(t, rfc7239.IP(), forwarded("10.0.0.1:1", "for=198.51.100.1"+strings.Repeat(",for=10.0.0.2", 31)), "198.51.100.1")
}

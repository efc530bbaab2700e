package keyfunc_test

import (
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/keyfunc"
)

// ours trusts 10.0.0.0/8, 2001:db8:1::/48 and fe80::/10.
var ours = keyfunc.Proxies{Trusted: []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("2001:db8:1::/48"),
	netip.MustParsePrefix("fe80::/10"),
}}

func TestForwardedFor(t *testing.T) {
	for _, tc := range []struct {
		name, remote string
		lines        []string
		want         string
	}{
		{"untrusted peer's header ignored", "203.0.113.9:1", []string{"198.51.100.1"}, "203.0.113.9"},
		{"untrusted peer's broken header ignored", "203.0.113.9:1", []string{"unknown"}, "203.0.113.9"},
		{"trusted peer's header believed", "10.0.0.1:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"spoofed leftmost ignored", "10.0.0.1:1", []string{"1.1.1.1, 198.51.100.1"}, "198.51.100.1"},
		{"spoofed trusted address ignored", "10.0.0.1:1", []string{"10.0.0.9, 198.51.100.1"}, "198.51.100.1"},
		{"spoofed garbage not even read", "10.0.0.1:1", []string{"<nil>,,\x00, 198.51.100.1"}, "198.51.100.1"},
		{"trusted hops walked over", "10.0.0.1:1", []string{"1.1.1.1, 198.51.100.1, 10.0.0.3, 10.0.0.2"}, "198.51.100.1"},
		{"spoofed first line ignored", "10.0.0.1:1", []string{"1.1.1.1", "198.51.100.1"}, "198.51.100.1"},
		{"all lines are one list", "10.0.0.1:1", []string{"1.1.1.1", "198.51.100.1, 10.0.0.3", "10.0.0.2"}, "198.51.100.1"},
		{"no header: the peer", "10.0.0.1:1", nil, "10.0.0.1"},
		{"empty header: the peer", "10.0.0.1:1", []string{""}, "10.0.0.1"},
		{"nothing but empty elements: the peer", "10.0.0.1:1", []string{", ,", "", "\t"}, "10.0.0.1"},
		{"comma at the end", "10.0.0.1:1", []string{"1.1.1.1, 198.51.100.1,"}, "198.51.100.1"},
		{"spoofed commas move nothing", "10.0.0.1:1", []string{"1.1.1.1, , ,", ",, 198.51.100.1", " , 10.0.0.2,"}, "198.51.100.1"},
		{"all trusted: the leftmost", "10.0.0.1:1", []string{"10.0.0.4, 10.0.0.3", "10.0.0.2"}, "10.0.0.4"},
		{"IPv6 hop masked", "10.0.0.1:1", []string{"2001:db8:2::1"}, "2001:db8:2::/64"},
		{"IPv6 trusted hop walked over", "[2001:db8:1::1]:1", []string{"198.51.100.1, 2001:db8:1::2"}, "198.51.100.1"},
		{"ports", "10.0.0.1:1", []string{"198.51.100.1:5678, 10.0.0.2:80"}, "198.51.100.1"},
		{"ports of IPv6", "10.0.0.1:1", []string{"[2001:db8:2::1]:443,[2001:db8:1::2]"}, "2001:db8:2::/64"},
		{"blanks", "10.0.0.1:1", []string{" \t198.51.100.1\t , 10.0.0.2 "}, "198.51.100.1"},
		{"v4-mapped peer trusted as IPv4", "[::ffff:10.0.0.1]:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"v4-mapped hop trusted as IPv4", "10.0.0.1:1", []string{"198.51.100.1, ::ffff:10.0.0.2"}, "198.51.100.1"},
		{"v4-mapped client keyed as IPv4", "10.0.0.1:1", []string{"::ffff:198.51.100.1"}, "198.51.100.1"},
		{"peer with a zone trusted", "[fe80::1%eth0]:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"hop with a zone trusted", "10.0.0.1:1", []string{"198.51.100.1, fe80::1%eth0"}, "198.51.100.1"},
		{"NAT64 client keyed as IPv4", "10.0.0.1:1", []string{"64:ff9b::198.51.100.1"}, "198.51.100.1"},
		{"NAT64 lends no trust", "[64:ff9b::10.0.0.1]:1", []string{"198.51.100.1"}, "10.0.0.1"},
		{"unix peer not trusted unless said", "@", []string{"198.51.100.1"}, "unix"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wantKey(t, ours.IP(), from(tc.remote, tc.lines...), tc.want)
		})
	}
}

func TestForwardedForFailsClosed(t *testing.T) {
	for _, tc := range []struct {
		name  string
		lines []string
		says  string
	}{
		{"unparsable hop", []string{"1.1.1.1, unknown"}, `hop 1 from the end of X-Forwarded-For, " unknown", is not`},
		{"unparsable hop behind a trusted one", []string{"1.1.1.1, unix:, 10.0.0.2"}, `hop 2 from the end`},
		{"unparsable hop in another line", []string{"1.1.1.1, _hidden", "10.0.0.2"}, `hop 2 from the end`},
		{"unparsable hop before empty ones", []string{"1.1.1.1, unknown, ,", "10.0.0.2,"}, `hop 2 from the end`},
		{"more empty elements than are read", []string{"1.1.1.1" + strings.Repeat(",", 32)}, "not among the last 32 hops"},
		{"RFC 7239 in the wrong header", []string{"for=1.1.1.1"}, `"for=1.1.1.1"`},
		{"quotes", []string{`"1.1.1.1"`}, `hop 1`},
		{"a hop longer than any address", []string{"1.1.1.1," + strings.Repeat(" ", 128-6) + "1.1.1.1"}, `hop 1`},
		{"more hops than are read", []string{"1.1.1.1" + strings.Repeat(", 10.0.0.2", 32)}, "not among the last 32 hops"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := from("10.0.0.1:1", tc.lines...)
			wantErr(t, ours.IP(), r, keyfunc.ErrNoKey)
			if _, err := ours.IP().Resolve(r); !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error %q does not say %q", err, tc.says)
			}
			if addr, err := ours.Addr(r); err == nil || addr.IsValid() {
				t.Errorf("Addr: %v, %v", addr, err)
			}
		})
	}
}

func TestForwardedForReadsAsMuchAsDocumented(t *testing.T) {
	wantKey(t, ours.IP(), from("10.0.0.1:1", "1.1.1.1,"+strings.Repeat(" ", 128-len("198.51.100.1"))+"198.51.100.1"), "198.51.100.1")
	wantKey(t, ours.IP(), from("10.0.0.1:1", "198.51.100.1"+strings.Repeat(",10.0.0.2", 31)), "198.51.100.1")
}

func TestWorkIsBounded(t *testing.T) {
	const size, runs = 4 << 20, 100
	headers := map[string][]string{
		"commas":         {strings.Repeat(",", size)},
		"blanks":         {strings.Repeat(" ", size)},
		"one long hop":   {strings.Repeat("1", size)},
		"zone":           {"fe80::1%" + strings.Repeat("z", size)},
		"trusted hops":   {strings.Repeat("10.0.0.2,", size/9) + "10.0.0.2"},
		"spoofed hops":   {strings.Repeat("1.1.1.1,", size/8) + "198.51.100.1"},
		"empty lines":    make([]string, size/20),
		"trusted lines":  slices.Repeat([]string{"10.0.0.2"}, size/9),
		"quotes":         {strings.Repeat(`"`, size)},
		"escapes":        {strings.Repeat(`\`, size) + `"`},
		"escaped quotes": {`for="` + strings.Repeat(`\"`, size/2) + `"`},
	}
	for name, lines := range headers {
		for _, p := range []keyfunc.Proxies{ours, {Hops: 32}, {Trusted: ours.Trusted, Header: "X-Real-IP"}} {
			t.Run(name+"/"+p.Header, func(t *testing.T) {
				r := from("10.0.0.1:1", lines...)
				r.Header["X-Real-Ip"] = lines
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				fastest, k := time.Hour, p.IP()
				for range runs {
					start := time.Now()
					_, _ = k.Resolve(r)
					fastest = min(fastest, time.Since(start))
				}
				runtime.ReadMemStats(&after)
				if perRun := (after.TotalAlloc - before.TotalAlloc) / runs; perRun > 32<<10 {
					t.Errorf("%d bytes allocated for one request", perRun)
				}
				// Some microseconds; looking once at every byte takes more than a millisecond.
				if t.Logf("%v", fastest); fastest > 500*time.Microsecond {
					t.Errorf("%v for one request", fastest)
				}
			})
		}
	}
}

func TestUnixPeerTrusted(t *testing.T) {
	p := keyfunc.Proxies{Unix: true}
	wantKey(t, p.IP(), from("@", "1.1.1.1, 198.51.100.1"), "198.51.100.1")
	wantKey(t, p.IP(), from("@"), "unix")
	wantErr(t, p.IP(), from("@", "unknown"), keyfunc.ErrNoKey)
	wantKey(t, p.IP(), from("10.0.0.1:1", "198.51.100.1"), "10.0.0.1")
}

func TestTrustedNetworkMayBeMapped(t *testing.T) {
	p := keyfunc.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")}}
	wantKey(t, p.IP(), from("10.0.0.1:1", "198.51.100.1"), "198.51.100.1")
	wantKey(t, p.IP(), from("11.0.0.1:1", "198.51.100.1"), "11.0.0.1")
}

func TestAddrIsUnmasked(t *testing.T) {
	for _, tc := range []struct{ remote, line, want string }{
		{"[2001:db8::1]:1", "", "2001:db8::1"},
		{"[fe80::1%eth0]:1", "", "fe80::1"},
		{"10.0.0.1:1", "::ffff:198.51.100.1", "198.51.100.1"},
		{"10.0.0.1:1", "64:ff9b::198.51.100.1", "64:ff9b::c633:6401"},
		{"203.0.113.9:1", "10.0.0.7", "203.0.113.9"},
	} {
		if got, err := ours.Addr(from(tc.remote, tc.line)); got.String() != tc.want || err != nil {
			t.Errorf("%s, %q: got %v, %v; want %s", tc.remote, tc.line, got, err, tc.want)
		}
	}
	wantErr(t, addrKey(ours), from("@"), keyfunc.ErrNoKey)
	wantErr(t, addrKey(ours), from("nonsense"), keyfunc.ErrNoKey)
}

func TestUserIDNeedsATrustedPeer(t *testing.T) {
	f := ours.UserID("x-user-id")
	for _, tc := range []struct {
		name, remote string
		lines        []string
		want         string // "" for ErrNoKey
	}{
		{"believed", "10.0.0.1:1", []string{"alice"}, "alice"},
		{"blanks make no other user", "10.0.0.1:1", []string{" alice\t"}, "alice"},
		{"mapped peer", "[::ffff:10.0.0.1]:1", []string{"alice"}, "alice"},
		{"untrusted peer's header ignored", "203.0.113.9:1", []string{"alice"}, ""},
		{"untrusted unix peer's header ignored", "@", []string{"alice"}, ""},
		{"missing", "10.0.0.1:1", nil, ""},
		{"empty", "10.0.0.1:1", []string{" "}, ""},
		{"several header lines", "10.0.0.1:1", []string{"mallory", "alice"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := from(tc.remote)
			r.Header["X-User-Id"] = tc.lines
			if tc.want == "" {
				wantErr(t, f, r, keyfunc.ErrNoKey)
			} else {
				wantKey(t, f, r, tc.want)
			}
		})
	}
}

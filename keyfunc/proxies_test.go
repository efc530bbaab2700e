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

// What proxies append to a list is in [TestPrependedHopsNeverChangeTheKey], and what clients
// without a proxy send in [TestUntrustedClientCannotChooseItsKey].
func TestTheClientBehindProxies(t *testing.T) {
	const peer, client = "10.0.0.1:1", "198.51.100.1"
	unix, mapped := keyfunc.Proxies{Unix: true}, keyfunc.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")}}
	one := keyfunc.Proxies{Trusted: ours.Trusted, Header: "CF-Connecting-IP"}
	hops := func(n int) keyfunc.Proxies { return keyfunc.Proxies{Hops: n} }
	const trusted = ", 10.0.0.2"
	for _, tc := range []struct {
		name    string
		proxies keyfunc.Proxies
		remote  string
		lines   []string // of the header
		want    string   // or "! " and what the error says
	}{
		{"no header: the peer", ours, peer, nil, "10.0.0.1"},
		{"empty header: the peer", ours, peer, []string{""}, "10.0.0.1"},
		{"nothing but empty elements: the peer", ours, peer, []string{", ,", "", "\t"}, "10.0.0.1"},
		{"all trusted: the leftmost", ours, peer, []string{"10.0.0.4, 10.0.0.3", "10.0.0.2"}, "10.0.0.4"},
		{"v4-mapped peer trusted as IPv4", ours, "[::ffff:10.0.0.1]:1", []string{client}, client},
		{"peer with a zone trusted", ours, "[fe80::1%eth0]:1", []string{client}, client},
		{"NAT64 client keyed as IPv4", ours, peer, []string{"64:ff9b::198.51.100.1"}, client},
		{"NAT64 lends no trust", ours, "[64:ff9b::10.0.0.1]:1", []string{client}, "10.0.0.1"},
		{"unix peer not trusted unless said", ours, "@", []string{client}, "unix"},
		{"as long a hop as is read", ours, peer, []string{"1.1.1.1," + strings.Repeat(" ", 128-len(client)) + client}, client},
		{"as many hops as are read", ours, peer, []string{client + strings.Repeat(trusted, 31)}, client},

		{"unparsable hop", ours, peer, []string{"1.1.1.1, unknown"}, `! hop 1 from the end of X-Forwarded-For, " unknown", is not`},
		{"unparsable hop behind a trusted one", ours, peer, []string{"1.1.1.1, unix:, 10.0.0.2"}, "! hop 2 from the end"},
		{"unparsable hop in another line", ours, peer, []string{"1.1.1.1, _hidden", "10.0.0.2"}, "! hop 2 from the end"},
		{"unparsable hop before empty ones", ours, peer, []string{"1.1.1.1, unknown, ,", "10.0.0.2,"}, "! hop 2 from the end"},
		{"more empty elements than are read", ours, peer, []string{"1.1.1.1" + strings.Repeat(",", 32)}, "! not among the last 32 hops"},
		{"RFC 7239 in the wrong header", ours, peer, []string{"for=1.1.1.1"}, `! "for=1.1.1.1"`},
		{"quotes", ours, peer, []string{`"1.1.1.1"`}, "! hop 1"},
		{"a hop longer than any address", ours, peer, []string{"1.1.1.1," + strings.Repeat(" ", 128-6) + "1.1.1.1"}, "! hop 1"},
		{"more hops than are read", ours, peer, []string{"1.1.1.1" + strings.Repeat(trusted, 32)}, "! not among the last 32 hops"},

		{"unix peer", unix, "@", []string{"1.1.1.1, 198.51.100.1"}, client},
		{"unix peer without a header", unix, "@", nil, "unix"},
		{"unix peer, unparsable", unix, "@", []string{"unknown"}, "! hop 1"},
		{"another peer than unix", unix, peer, []string{client}, "10.0.0.1"},
		{"a network may be mapped", mapped, peer, []string{client}, client},
		{"beside a mapped network", mapped, "11.0.0.1:1", []string{client}, "11.0.0.1"},

		{"hops: unix peer", hops(1), "@", []string{client}, client},
		{"hops: as many as are read", hops(32), peer, []string{client + strings.Repeat(trusted, 31)}, client},
		{"hops: empty elements are none", hops(2), peer, []string{", , 198.51.100.1"}, "! has 1 of the 2 hops"},
		{"hops: fewer than proxies", hops(3), peer, []string{client}, "! X-Forwarded-For has 1 of the 3 hops"},
		{"hops: no header", hops(1), peer, nil, "! has 0 of the 1 hops"},
		{"hops: empty header", hops(1), peer, []string{""}, "! has 0 of the 1 hops"},
		{"hops: unparsable client", hops(2), peer, []string{"1.1.1.1, unknown, 192.0.2.1"}, "! unknown"},
		{"hops: unparsable proxy", hops(2), peer, []string{"198.51.100.1, unknown"}, "! unknown"},
		{"hops: unparsable peer", hops(1), "nonsense", []string{client}, "! nonsense"},
		{"hops: the header named", keyfunc.Proxies{Hops: 2, Header: "x-forwarded-for"}, peer, []string{"1.1.1.1, 198.51.100.1, 192.0.2.1"}, client},

		{"one address", one, peer, []string{client}, client},
		{"one address: IPv6 masked", one, peer, []string{"2001:db8:2::1"}, "2001:db8:2::/64"},
		{"one address: port", one, peer, []string{"198.51.100.1:80"}, client},
		{"one address: a proxy of ours", one, peer, []string{"10.0.0.2"}, "10.0.0.2"},
		{"one address: untrusted peer's ignored", one, "203.0.113.9:1", []string{"x", "y"}, "203.0.113.9"},
		{"one address: untrusted unix peer's ignored", one, "@", []string{client}, "unix"},
		{"one address: no header", one, peer, nil, "10.0.0.1"},
		{"one address: empty header", one, peer, []string{""}, "10.0.0.1"},
		{"one address: several lines", one, peer, []string{"1.1.1.1", client}, `! header "CF-Connecting-IP"`},
		{"one address: several equal lines", one, peer, []string{client, client}, `! header "CF-Connecting-IP"`},
		{"one address: a list", one, peer, []string{"1.1.1.1, 198.51.100.1"}, `! header "CF-Connecting-IP"`},
		{"one address: unparsable", one, peer, []string{"unknown"}, "! unknown"},
		{"one address: blank", one, peer, []string{" "}, `! header "CF-Connecting-IP"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := from(tc.remote, tc.lines...)
			if tc.proxies.Header == one.Header {
				r = from(tc.remote, "1.1.1.1")
				r.Header["Cf-Connecting-Ip"] = tc.lines
			}
			says, fails := strings.CutPrefix(tc.want, "! ")
			if !fails {
				wantKey(t, tc.proxies.IP(), r, tc.want)
				return
			}
			wantErr(t, tc.proxies.IP(), r, keyfunc.ErrNoKey)
			if _, err := tc.proxies.IP().Resolve(r); !strings.Contains(err.Error(), says) {
				t.Errorf("error %q does not say %q", err, says)
			}
			if addr, err := tc.proxies.Addr(r); err == nil || addr.IsValid() {
				t.Errorf("Addr: %v, %v", addr, err)
			}
		})
	}
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
	wantKey(t, keyfunc.Proxies{Hops: 1}.UserID("X-User-ID"), with("X-User-ID", "alice"), "alice")
	wantErr(t, keyfunc.Proxies{Hops: 1}.UserID("X-User-ID"), with("X-User-ID", "mallory", "alice"), keyfunc.ErrNoKey)
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

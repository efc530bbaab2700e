package keyfunc_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed75154129/ratelimit/keyfunc"
)

func TestIP(t *testing.T) {
	for _, tc := range []struct{ name, remote, want string }{
		{"IPv4 is whole", "203.0.113.9:4711", "203.0.113.9"},
		{"IPv4 without port", "203.0.113.9", "203.0.113.9"},
		{"IPv6 rotation inside a /64 gains nothing", "[2001:db8::1]:4711", "2001:db8::/64"},
		{"IPv6 rotation inside a /64 gains nothing, last address", "[2001:db8::ffff:ffff:ffff:ffff]:4711", "2001:db8::/64"},
		{"IPv6 neighbours are apart", "[2001:db8:0:1::1]:4711", "2001:db8:0:1::/64"},
		{"IPv6 without port", "2001:db8::1", "2001:db8::/64"},
		{"IPv6 in brackets without port", "[2001:db8::1]", "2001:db8::/64"},
		{"IPv6 in capitals is the same client", "[2001:DB8::1]:4711", "2001:db8::/64"},
		{"longest key", "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535", "ffff:ffff:ffff:ffff::/64"},
		{"v4-mapped addresses share no bucket", "[::ffff:203.0.113.9]:4711", "203.0.113.9"},
		{"v4-mapped addresses share no bucket, other address", "[::ffff:203.0.113.10]:4711", "203.0.113.10"},
		{"v4-mapped is decided by bits, not notation", "[::ffff:cb00:7109]:4711", "203.0.113.9"},
		{"IPv6 with a dotted end is no IPv4", "[2001:db8::203.0.113.9]:4711", "2001:db8::/64"},
		{"v4-mapped with zone", "[::ffff:203.0.113.9%eth0]:4711", "203.0.113.9"},
		{"zones make no other key", "[fe80::1%eth0]:4711", "fe80::/64"},
		{"zones make no other key, none", "[fe80::1]:4711", "fe80::/64"},
		{"NAT64 clients share no bucket", "[64:ff9b::cb00:7109]:4711", "203.0.113.9"},
		{"NAT64 clients share no bucket, dotted", "[64:ff9b::203.0.113.10]:4711", "203.0.113.10"},
		{"beyond the NAT64 prefix", "[64:ff9b::1:cb00:7109]:4711", "64:ff9b::/64"},
		{"unix socket, unnamed", "@", "unix"},
		{"unix socket, empty", "", "unix"},
		{"unix socket, abstract", "@client-7", "unix"},
		{"unix socket, path", "/run/client.sock", "unix"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := from(tc.remote, "198.51.100.1")
			wantKey(t, keyfunc.IP, r, tc.want)
			wantKey(t, keyfunc.Proxies{}.IP(), r, tc.want)
			if addr, err := netip.ParseAddrPort(tc.remote); err == nil {
				wantKey(t, keyfunc.ContextAddr(func(context.Context) netip.Addr { return addr.Addr() }), r, tc.want)
			}
		})
	}
}

func TestUnparsableRemoteAddrIsNoKey(t *testing.T) {
	for _, remote := range []string{
		"nonsense", "<nil>", "localhost:80", ":80", "203.0.113", "203.0.113.256:1", "203.0.113.09:1",
		"203.0.113.9:", "203.0.113.9:http", "203.0.113.9:-1", "203.0.113.9:65536", "203.0.113.9:1:2",
		"[203.0.113.9]:1", "[2001:db8::1]:", "[2001:db8::1]80", "[2001:db8::1", "2001:db8::1]:80", "[]:80", "[::1]]",
		"203.0.113.9%eth0", "fe80::1%", "2001:db8::1/64", "\x00", "\xff", strings.Repeat("1", 1<<20),
	} {
		r := from(remote)
		for _, f := range []keyfunc.Key{keyfunc.IP, keyfunc.Proxies{}.IP(), keyfunc.Proxies{Unix: true}.UserID("X-User-ID")} {
			wantErr(t, f, r, keyfunc.ErrNoKey)
		}
		if _, err := keyfunc.IP.Resolve(r); !strings.Contains(err.Error(), "RemoteAddr") || len(err.Error()) > 400 {
			t.Errorf("the error should say in brief what is wrong: %v", err)
		}
	}
}

func TestUnixSocketOfARealServer(t *testing.T) {
	keys := make(chan string, 1)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		key, err := keyfunc.IP.Resolve(r)
		if err != nil {
			key = err.Error()
		}
		keys <- key
	}))
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Skip(err)
	}
	_ = srv.Listener.Close()
	srv.Listener = l
	srv.Start()
	defer srv.Close()

	var d net.Dialer
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.DialContext(ctx, "unix", path)
		},
	}}
	resp, err := client.Get("http://unix/")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if key := <-keys; key != "unix" {
		t.Errorf("got %q", key)
	}
}

func TestIPAllocations(t *testing.T) {
	for remote, want := range map[string]float64{
		"203.0.113.9:4711":          0,
		"203.0.113.9":               0,
		"@":                         0,
		"[2001:db8::1]:4711":        1,
		"[fe80::1%eth0]:4711":       1,
		"[::ffff:203.0.113.9]:4711": 1,
	} {
		r := from(remote)
		if got := testing.AllocsPerRun(100, func() { _, _ = keyfunc.IP.Resolve(r) }); got != want {
			t.Errorf("%s: %v allocations, want %v", remote, got, want)
		}
	}
}

// A port is cut off where it is no part of the address.
func TestPortsAfterIPv6WithoutBrackets(t *testing.T) {
	for text, want := range map[string]string{
		"::ffff:203.0.113.9:51234": "203.0.113.9", "::ffff:203.0.113.9:80": "203.0.113.9", "64:ff9b::203.0.113.9:1": "203.0.113.9",
		"2001:db8:1:2:3:4:5:6:51234": "2001:db8:1:2:3:4:5:6", "2001:db8:1:2:3:4:5:6:8": "2001:db8:1:2:3:4:5:6", "2001:db8::9:51234": "2001:db8::9", "::9:00080": "::9",
		"2001:db8::9:8080": "2001:db8::9:8080", "::2:3:4:5:6:7:8": "0:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::": "1:2:3:4:5:6:7:0", // an address as it stands
		"2001:db8:1:2:3:4:5:6:65536": "", "2001:db8:1:2:3:4:5:6:": "", "2001:db8:1:2:3:4:5:6:7:8": "", "::ffff:203.0.113.9:": "", "::ffff:203.0.113.9:a": "", "203.0.113.9:1:2": "", "2001:db8::9:123456": "",
	} {
		got, err := keyfunc.Proxies{Hops: 1}.IPv6(128).Resolve(from("10.0.0.1:1", "1.1.1.1, "+text))
		if want != "" {
			want = mustKey(t, keyfunc.Proxies{}.IPv6(128), from(want))
		}
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestIPv6(t *testing.T) {
	for _, tc := range []struct {
		bits         int
		remote, want string
	}{
		{128, "[2001:db8:1:2::3]:1", "2001:db8:1:2::3/128"},
		{64, "[2001:db8:1:2::3]:1", "2001:db8:1:2::/64"},
		{56, "[2001:db8:1:2::3]:1", "2001:db8:1::/56"},
		{48, "[2001:db8:1:2::3]:1", "2001:db8:1::/48"},
		{32, "[2001:db8:1:2::3]:1", "2001:db8::/32"},
		{32, "203.0.113.9:1", "203.0.113.9"},
		{32, "[::ffff:203.0.113.9]:1", "203.0.113.9"},
		{48, "[64:ff9b::203.0.113.9]:1", "203.0.113.9"},
		{128, "[fe80::1%eth0]:1", "fe80::1/128"},
		{48, "@", "unix"},
	} {
		wantKey(t, keyfunc.Proxies{}.IPv6(tc.bits), from(tc.remote, "1.1.1.1"), tc.want)
		if tc.remote[0] != '@' {
			peer, _, _ := strings.Cut(strings.Trim(tc.remote, "@"), "]:")
			wantKey(t, keyfunc.Proxies{Hops: 1}.IPv6(tc.bits), from("10.0.0.1:1", strings.Trim(peer, "[]")), tc.want)
		}
	}
	wantErr(t, ours.IPv6(48), from("10.0.0.1:1", "unknown"), keyfunc.ErrNoKey)
}

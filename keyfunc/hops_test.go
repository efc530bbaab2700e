package keyfunc_test

import (
	"strings"
	"testing"

	"github.com/seed75154129/ratelimit/keyfunc"
)

func TestHops(t *testing.T) {
	for _, tc := range []struct {
		name, remote string
		hops         int
		lines        []string
		want         string // "" for ErrNoKey
	}{
		{"one proxy: the last entry", "203.0.113.9:1", 1, []string{"1.1.1.1, 198.51.100.1"}, "198.51.100.1"},
		{"two proxies: the last but one", "203.0.113.9:1", 2, []string{"1.1.1.1, 198.51.100.1, 192.0.2.1"}, "198.51.100.1"},
		{"exactly as many", "203.0.113.9:1", 2, []string{"198.51.100.1, 192.0.2.1"}, "198.51.100.1"},
		{"all lines are one list", "203.0.113.9:1", 3, []string{"1.1.1.1", "198.51.100.1, 192.0.2.1", "192.0.2.2"}, "198.51.100.1"},
		{"unix peer", "@", 1, []string{"198.51.100.1"}, "198.51.100.1"},
		{"garbage before is not read", "203.0.113.9:1", 1, []string{"unknown,,\x00", "198.51.100.1"}, "198.51.100.1"},
		{"as many as are read", "203.0.113.9:1", 32, []string{"198.51.100.1" + strings.Repeat(",192.0.2.1", 31)}, "198.51.100.1"},
		{"empty elements do not count", "203.0.113.9:1", 2, []string{"1.1.1.1, , 198.51.100.1, ,", "", ",192.0.2.1,"}, "198.51.100.1"},
		{"spoofed empty elements do not count", "203.0.113.9:1", 1, []string{",,1.1.1.1,,", ", 198.51.100.1"}, "198.51.100.1"},
		{"empty elements are no hops", "203.0.113.9:1", 2, []string{", , 198.51.100.1"}, ""},
		{"fewer than proxies", "203.0.113.9:1", 2, []string{"198.51.100.1"}, ""},
		{"no header", "203.0.113.9:1", 1, nil, ""},
		{"empty header", "203.0.113.9:1", 1, []string{""}, ""},
		{"unparsable client", "203.0.113.9:1", 2, []string{"1.1.1.1, unknown, 192.0.2.1"}, ""},
		{"unparsable proxy", "203.0.113.9:1", 2, []string{"198.51.100.1, unknown"}, ""},
		{"unparsable peer", "nonsense", 1, []string{"198.51.100.1"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := from(tc.remote, tc.lines...)
			for _, f := range []keyfunc.Key{keyfunc.Proxies{Hops: tc.hops}.IP(), keyfunc.Proxies{Hops: tc.hops, Header: "x-forwarded-for"}.IP()} {
				if tc.want == "" {
					wantErr(t, f, r, keyfunc.ErrNoKey)
				} else {
					wantKey(t, f, r, tc.want)
				}
			}
		})
	}
	_, err := keyfunc.Proxies{Hops: 3}.IP().Resolve(from("203.0.113.9:1", "198.51.100.1"))
	if want := "X-Forwarded-For has 1 of the 3 hops"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v does not say %q", err, want)
	}
}

func TestHopsTrustThePeerWithTheUser(t *testing.T) {
	wantKey(t, keyfunc.Proxies{Hops: 1}.UserID("X-User-ID"), with("X-User-ID", "alice"), "alice")
	wantErr(t, keyfunc.Proxies{Hops: 1}.UserID("X-User-ID"), with("X-User-ID", "mallory", "alice"), keyfunc.ErrNoKey)
}

func TestHeaderOfOneAddress(t *testing.T) {
	p := keyfunc.Proxies{Trusted: ours.Trusted, Header: "CF-Connecting-IP"}
	for _, tc := range []struct {
		name, remote string
		lines        []string
		want         string // "" for ErrNoKey
	}{
		{"believed", "10.0.0.1:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"IPv6 masked", "10.0.0.1:1", []string{"2001:db8:2::1"}, "2001:db8:2::/64"},
		{"v4-mapped client keyed as IPv4", "10.0.0.1:1", []string{"::ffff:198.51.100.1"}, "198.51.100.1"},
		{"port", "10.0.0.1:1", []string{"198.51.100.1:80"}, "198.51.100.1"},
		{"the client is a proxy of ours", "10.0.0.1:1", []string{"10.0.0.2"}, "10.0.0.2"},
		{"untrusted peer's header ignored", "203.0.113.9:1", []string{"198.51.100.1"}, "203.0.113.9"},
		{"untrusted peer's lines ignored", "203.0.113.9:1", []string{"x", "y"}, "203.0.113.9"},
		{"untrusted unix peer's header ignored", "@", []string{"198.51.100.1"}, "unix"},
		{"no header: the peer", "10.0.0.1:1", nil, "10.0.0.1"},
		{"empty header: the peer", "10.0.0.1:1", []string{""}, "10.0.0.1"},
		{"several lines", "10.0.0.1:1", []string{"1.1.1.1", "198.51.100.1"}, ""},
		{"several equal lines", "10.0.0.1:1", []string{"198.51.100.1", "198.51.100.1"}, ""},
		{"a list", "10.0.0.1:1", []string{"1.1.1.1, 198.51.100.1"}, ""},
		{"unparsable", "10.0.0.1:1", []string{"unknown"}, ""},
		{"blank", "10.0.0.1:1", []string{" "}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := from(tc.remote, "1.1.1.1")
			r.Header["Cf-Connecting-Ip"] = tc.lines
			if tc.want == "" {
				wantErr(t, p.IP(), r, keyfunc.ErrNoKey)
			} else {
				wantKey(t, p.IP(), r, tc.want)
			}
		})
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

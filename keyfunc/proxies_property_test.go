package keyfunc_test

import (
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed75154129/ratelimit/keyfunc"
)

var (
	anyLines = rapid.SliceOfN(rapid.OneOf(
		rapid.StringMatching(`[0-9a-f.:,%\[\] ]{0,60}`),
		rapid.StringMatching(`((for|by|FOR|x)?[=;, ]?["\\\\]{0,3}(10\.0\.0\.2|1\.1\.1\.1|\[::1\]|_a)?["\\\\;,]{0,3}){0,6}`),
		rapid.SampledFrom([]string{"", ",", "10.0.0.2", "1.1.1.1, 10.0.0.2", "unknown", "[::1]:80", "for=10.0.0.2", `for="`, `x="\`}),
		rapid.String(),
	), 0, 6)

	// client draws addresses that ours does not trust.
	client = rapid.Custom(func(t *rapid.T) netip.Addr {
		if rapid.Bool().Draw(t, "v4") {
			return netip.AddrFrom4([4]byte{203, 0, 113, rapid.Byte().Draw(t, "host")})
		}
		b := [16]byte{0x20, 0x01, 0x0d, 0xb8, 0xff}
		copy(b[5:], rapid.SliceOfN(rapid.Byte(), 11, 11).Draw(t, "rest"))
		return netip.AddrFrom16(b)
	})

	// hop spells an address in one of the ways proxies do.
	hop = func(t *rapid.T, addr netip.Addr) string {
		forms := []string{addr.String(), netip.AddrPortFrom(addr, 443).String(), " " + addr.String() + "\t"}
		if addr.Is4() {
			forms = append(forms, "::ffff:"+addr.String(), "[::ffff:"+addr.String()+"]:8080", "::ffff:"+addr.String()+":80", "0:0:0:0:0:ffff:"+addr.String()+":51234")
		} else {
			forms = append(forms, addr.StringExpanded()+":80", addr.String()+":51234", "["+addr.String()+"]", addr.StringExpanded(), strings.ToUpper(addr.String()), addr.String()+"%eth0")
		}
		return rapid.SampledFrom(forms).Draw(t, "form")
	}

	ourProxy = rapid.SampledFrom([]netip.Addr{
		netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.255.255.255"),
		netip.MustParseAddr("2001:db8:1::1"), netip.MustParseAddr("fe80::1"),
	})
)

// configurations are all ways to find the client behind peers that are named.
var configurations = []keyfunc.Proxies{
	{},
	{Unix: true},
	{Unix: true, Header: "x-forwarded-for"},
	{Trusted: ours.Trusted},
	{Trusted: ours.Trusted, Unix: true, Header: "x-forwarded-for"},
	{Trusted: ours.Trusted, Header: "X-Real-IP"},
	{Trusted: ours.Trusted, Header: "x-user-id"},
}

func TestUntrustedClientCannotChooseItsKey(t *testing.T) {
	headers := []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "X-User-Id", "True-Client-Ip", "Cf-Connecting-Ip"}
	rapid.Check(t, func(t *rapid.T) {
		r := from(netip.AddrPortFrom(client.Draw(t, "client"), 4711).String())
		want, err := keyfunc.IP.Resolve(r)
		if err != nil {
			t.Fatal(err)
		}
		want48, err := keyfunc.Proxies{}.IPv6(48).Resolve(r)
		if err != nil {
			t.Fatal(err)
		}
		for _, header := range headers {
			r.Header[header] = anyLines.Draw(t, header)
		}
		p := rapid.SampledFrom(configurations).Draw(t, "proxies")
		if got, err := p.IP().Resolve(r); got != want || err != nil {
			t.Fatalf("got %q, %v; want %q", got, err, want)
		}
		if got, err := p.IPv6(48).Resolve(r); got != want48 || err != nil {
			t.Fatalf("got %q, %v; want %q", got, err, want48)
		}
		if user, err := p.UserID("X-User-ID").Resolve(r); !errors.Is(err, keyfunc.ErrNoKey) {
			t.Fatalf("user %q, %v", user, err)
		}
	})
}

// Whatever the client sends, its proxies append the true hops to it, each to the
// last line or as a new one. Some proxies write empty elements, which count as none.
func TestPrependedHopsNeverChangeTheKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		addr := client.Draw(t, "client")
		want, err := keyfunc.IP.Resolve(from(addr.String()))
		if err != nil {
			t.Fatal(err)
		}
		chain := []string{hop(t, addr)}
		for range rapid.IntRange(0, 8).Draw(t, "proxies") {
			chain = append(chain, hop(t, ourProxy.Draw(t, "proxy")))
		}
		lines := slices.Clone(anyLines.Draw(t, "sent by the client"))
		for _, h := range chain {
			h = rapid.SampledFrom([]string{h, h, h + ",", " ,\t," + h}).Draw(t, "commas")
			if last := len(lines) - 1; last >= 0 && rapid.Bool().Draw(t, "append") {
				lines[last] += "," + h
			} else {
				lines = append(lines, h)
			}
		}
		r := from(netip.AddrPortFrom(ourProxy.Draw(t, "peer"), 1).String())
		r.Header["X-Forwarded-For"] = lines
		for _, p := range []keyfunc.Proxies{
			{Trusted: ours.Trusted},
			{Hops: len(chain)},
		} {
			if got, err := p.IP().Resolve(r); got != want || err != nil {
				t.Fatalf("%v: %q: got %q, %v; want %q", p, lines, got, err, want)
			}
		}
	})
}

// However an address is spelled, its key is that of its canonical spelling.
func FuzzAddress(f *testing.F) {
	for _, seed := range []string{
		"203.0.113.9:4711", "[2001:db8::1]:4711", "::ffff:cb00:7109", "[fe80::1%eth0]:80", "64:ff9b::1.2.3.4", "@", "", "[", "1.2.3.4:65536",
		"1.2.3.4", "1.2.3.4:", "1.2.3:4", "1.2.3.4.5:6", "01.2.3.4:5", "1.2.3.04:5", "1.2.3.256:5", "1..3.4:5", "1.2.3.4:x", "1.2.3.4:00080",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		everyBit := keyfunc.Proxies{}.IPv6(128)
		key, err := everyBit.Resolve(from(text))
		if (key == "") != (err != nil) || err != nil && !errors.Is(err, keyfunc.ErrNoKey) {
			t.Fatalf("got %q, %v", key, err)
		}
		if ip, ipErr := keyfunc.IP.Resolve(from(text)); (ipErr != nil) != (err != nil) || !strings.Contains(key, ":") && ip != key {
			t.Errorf("%q: IP returns %q, %v; want %q, %v", text, ip, ipErr, key, err)
		}
		addr, err := keyfunc.Proxies{}.Addr(from(text))
		if err != nil {
			return
		}
		if addr.Zone() != "" || addr.Is4In6() {
			t.Errorf("%q: address %v", text, addr)
		}
		for _, other := range []string{addr.String(), netip.AddrPortFrom(addr, 1).String(), addr.StringExpanded(), addr.StringExpanded() + ":1", addr.String() + ":10000"} {
			if got, err := everyBit.Resolve(from(other)); got != key || err != nil {
				t.Errorf("%q has %q; %q has %q, %v", text, key, other, got, err)
			}
		}
	})
}

func addrKey(p keyfunc.Proxies) keyfunc.Key {
	return keyfunc.Func(func(r *http.Request) (string, error) {
		addr, err := p.Addr(r)
		if err != nil {
			return "", err
		}
		return addr.String(), nil
	})
}

func TestProxiesAllocateNothingButTheKey(t *testing.T) {
	for _, p := range []keyfunc.Proxies{
		ours, {Hops: 2}, {Trusted: ours.Trusted, Header: "X-Real-Ip"},
	} {
		r := from("10.0.0.1:1", "1.1.1.1, 198.51.100.1, 10.0.0.2")
		r.Header["X-Real-Ip"] = []string{"198.51.100.1"}
		k := p.IP()
		if got := testing.AllocsPerRun(100, func() { _, _ = k.Resolve(r) }); got > 1 {
			t.Errorf("%v: %v allocations", p, got)
		}
	}
}

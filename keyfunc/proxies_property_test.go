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
		rapid.SampledFrom([]string{"", ",", "10.0.0.2", "1.1.1.1, 10.0.0.2", "unknown", "[::1]:80"}),
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
			forms = append(forms, "::ffff:"+addr.String(), "[::ffff:"+addr.String()+"]:8080")
		} else {
			forms = append(forms, "["+addr.String()+"]", addr.StringExpanded(), strings.ToUpper(addr.String()), addr.String()+"%eth0")
		}
		return rapid.SampledFrom(forms).Draw(t, "form")
	}

	ourProxy = rapid.SampledFrom([]netip.Addr{
		netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.255.255.255"),
		netip.MustParseAddr("2001:db8:1::1"), netip.MustParseAddr("fe80::1"),
	})
)

func TestUntrustedClientCannotChooseItsKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		remote := netip.AddrPortFrom(client.Draw(t, "client"), 4711).String()
		want, err := keyfunc.IP(from(remote))
		if err != nil {
			t.Fatal(err)
		}
		got, err := ours.IP(from(remote, anyLines.Draw(t, "lines")...))
		if got != want || err != nil {
			t.Fatalf("got %q, %v; want %q", got, err, want)
		}
	})
}

// Whatever the client sends, its proxies append the true hops to it, each to the
// last line or as a new one.
func TestPrependedHopsNeverChangeTheKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		addr := client.Draw(t, "client")
		want, err := keyfunc.IP(from(addr.String()))
		if err != nil {
			t.Fatal(err)
		}

		chain := []string{hop(t, addr)}
		for range rapid.IntRange(0, 8).Draw(t, "proxies") {
			chain = append(chain, hop(t, ourProxy.Draw(t, "proxy")))
		}
		lines := slices.Clone(anyLines.Draw(t, "sent by the client"))
		for _, h := range chain {
			if last := len(lines) - 1; last >= 0 && rapid.Bool().Draw(t, "append") {
				lines[last] += "," + h
			} else {
				lines = append(lines, h)
			}
		}
		peer := netip.AddrPortFrom(ourProxy.Draw(t, "peer"), 1).String()
		if got, err := ours.IP(from(peer, lines...)); got != want || err != nil {
			t.Fatalf("%q: got %q, %v; want %q", lines, got, err, want)
		}
	})
}

func FuzzForwardedFor(f *testing.F) {
	for _, seed := range []struct{ remote, first, second string }{
		{"10.0.0.1:1", "1.1.1.1, 198.51.100.1", "10.0.0.2"},
		{"10.0.0.1", "[2001:db8::1]:443", "::ffff:10.0.0.2"},
		{"[fe80::1%eth0]:1", "fe80::1%eth0,,", ""},
		{"[::ffff:10.0.0.1]:1", "64:ff9b::1.2.3.4", "unknown"},
		{"@", "unix:", "[]:0"},
		{"", strings.Repeat("10.0.0.1,", 1000), strings.Repeat(" ", 1000)},
		{"203.0.113.9:1", "[", "%"},
	} {
		f.Add(seed.remote, seed.first, seed.second)
	}
	everyPeer := keyfunc.Proxies{Trusted: ours.Trusted, Unix: true}
	f.Fuzz(func(t *testing.T, remote, first, second string) {
		direct := from(remote, first, second)
		for _, get := range []keyfunc.Func{keyfunc.IP, everyPeer.IP, addrKey(everyPeer)} {
			key, err := get(direct)
			if (key == "") != (err != nil) || err != nil && !errors.Is(err, keyfunc.ErrNoKey) {
				t.Errorf("got %q, %v", key, err)
			}
		}

		// The same lines with what the last proxy appends to them.
		r := from("10.0.0.1:1", first, second+", 198.51.100.1")
		if key, err := everyPeer.IP(r); key != "198.51.100.1" || err != nil {
			t.Errorf("the client chose its key: %q, %v", key, err)
		}
	})
}

func addrKey(p keyfunc.Proxies) keyfunc.Func {
	return func(r *http.Request) (string, error) {
		addr, err := p.Addr(r)
		if err != nil {
			return "", err
		}
		return addr.String(), nil
	}
}

func BenchmarkProxiesIP(b *testing.B) {
	r := from("10.0.0.1:1", "1.1.1.1, 198.51.100.1, 10.0.0.2")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ours.IP(r); err != nil {
			b.Fatal(err)
		}
	}
}

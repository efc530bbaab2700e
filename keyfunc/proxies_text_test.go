package keyfunc_test

import (
	"flag"
	"io"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed75154129/ratelimit/keyfunc"
)

func TestProxiesText(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"empty trusts nobody", "", ""},
		{"blank trusts nobody", " \n", ""},
		{"networks", "10.0.0.0/8, 2001:db8::/32", "10.0.0.0/8,2001:db8::/32"},
		{"single addresses", "192.0.2.7,2001:db8::1", "192.0.2.7,2001:db8::1"},
		{"a network of one", "192.0.2.7/32", "192.0.2.7"},
		{"unix", "unix", "unix"},
		{"unix among others", "unix ,10.0.0.0/8", "10.0.0.0/8,unix"},
		{"v4-mapped network is IPv4", "::ffff:10.0.0.0/104", "10.0.0.0/8"},
		{"v4-mapped address is IPv4", "::ffff:192.0.2.7", "192.0.2.7"},
		{"hops", "hops=2", "hops=2"},
		{"header", "header=CF-Connecting-IP , unix", "unix,header=CF-Connecting-IP"},
		{"hops and header", "header=x-forwarded-for,hops=32", "hops=32,header=x-forwarded-for"},
		{"lines, as Cloudflare publishes them", "192.0.2.0/24\n2001:db8::/32\n", "192.0.2.0/24,2001:db8::/32"},
		{"lines of a Windows file", "\r\n192.0.2.0/24\r\n\r\n2001:db8::/32", "192.0.2.0/24,2001:db8::/32"},
		{"blanks, tabs, and a list behind a list", "192.0.2.0/24 unix\t198.51.100.7,\n2001:db8::/32\nheader=CF-Connecting-IP", "192.0.2.0/24,198.51.100.7,2001:db8::/32,unix,header=CF-Connecting-IP"},
		{"any notation", "2001:0DB8:0:0::/32", "2001:db8::/32"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := keyfunc.Proxies{Trusted: ours.Trusted, Unix: true} // to be replaced
			if err := p.UnmarshalText([]byte(tc.text)); err != nil {
				t.Fatal(err)
			}
			if got := textOf(t, p); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			for _, network := range p.Trusted {
				if network.Addr().Is4In6() {
					t.Errorf("%v is still mapped", network)
				}
			}
		})
	}
}

func textOf(t interface{ Fatal(...any) }, p keyfunc.Proxies) string {
	text, err := p.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestProxiesTextReportsEveryMistake(t *testing.T) {
	p := keyfunc.Proxies{Unix: true}
	err := p.UnmarshalText([]byte("10.1.2.3/8,10.0.0.0/8,proxy.internal,,10.0.0.0/33\nfe80::1%eth0 ::ffff:10.1.2.3/104"))
	if err == nil {
		t.Fatal("no error")
	}
	want := []string{
		`keyfunc: trusted proxy "10.1.2.3/8": bits are set beyond the length: write 10.0.0.0/8 for the network, or 10.1.2.3 for the one address`,
		`keyfunc: trusted proxy "proxy.internal": this is no address: `,
		`keyfunc: trusted proxy "": the item is empty: remove a comma`,
		`keyfunc: trusted proxy "10.0.0.0/33": this is no network: `,
		`keyfunc: trusted proxy "fe80::1%eth0": zones do not matter here: write fe80::1`,
		`keyfunc: trusted proxy "::ffff:10.1.2.3/104": bits are set beyond the length: write 10.0.0.0/8 for the network, or 10.1.2.3 for`,
	}
	got := strings.Split(err.Error(), "\n")
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if textOf(t, p) != "unix" {
		t.Errorf("a failed read changed p to %v", p)
	}
}

func TestProxiesTextReportsEveryContradiction(t *testing.T) {
	for text, want := range map[string][]string{
		"hops=0":                 {`keyfunc: trusted proxy "hops=0": write the number of your proxies, 1 to 32, such as hops=2`},
		"hops=":                  {`keyfunc: trusted proxy "hops=": write the number`},
		"hops":                   {`keyfunc: trusted proxy "hops": write the number`},
		"hops=33":                {`keyfunc: trusted proxy "hops=33": write the number`},
		"header=":                {`keyfunc: trusted proxy "header=": write the name of a header`},
		"header=X Real":          {`keyfunc: trusted proxy "Real": this is no address`, `keyfunc: Proxies: Header "X" `},
		"header= X-Real-IP,unix": {`keyfunc: trusted proxy "header=": write the name of a header`, `keyfunc: trusted proxy "X-Real-IP": this is no address`},
		"192.0.2.0 /24":          {`keyfunc: trusted proxy "/24": this is no network`},
		"192.0.2.0/24\n<html>":   {`keyfunc: trusted proxy "<html>": this is no address`},
		"unix,\n":                {`keyfunc: trusted proxy "": the item is empty: remove a comma`},
		"Hops=2":                 {`keyfunc: trusted proxy "Hops=2": this is no address`},
		"hops=2,hops=2":          {`keyfunc: trusted proxy "hops=2": hops is there twice`},
		"header=A,header=B,unix": {`keyfunc: trusted proxy "header=B": header is there twice`},
		"hops=2,10.0.0.0/8":      {`keyfunc: Proxies: Hops trusts whatever connects`},
		"header=Forwarded":       {`keyfunc: Proxies: Header "Forwarded" is not read: have your proxies append`},
		"hops=1,header=X-Real-IP,unix,lan": {
			`keyfunc: trusted proxy "lan": this is no address`,
			`keyfunc: Proxies: Hops trusts whatever connects`,
			`keyfunc: Proxies: Header "X-Real-IP" holds one address`,
		},
	} {
		var p keyfunc.Proxies
		err := p.UnmarshalText([]byte(text))
		if err == nil || !slices.EqualFunc(strings.Split(err.Error(), "\n"), want, strings.HasPrefix) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
		if textOf(t, p) != "" {
			t.Errorf("%s: a failed read changed p to %v", text, p)
		}
	}
}

func TestProxiesTextRoundTrip(t *testing.T) {
	network := rapid.Custom(func(t *rapid.T) netip.Prefix {
		n := rapid.SampledFrom([]int{4, 16}).Draw(t, "bytes")
		addr, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "addr"))
		if rapid.Bool().Draw(t, "mapped") {
			addr = netip.AddrFrom16(addr.As16())
		}
		return netip.PrefixFrom(addr, rapid.IntRange(17, addr.BitLen()).Filter(func(bits int) bool {
			return !addr.Is4In6() || bits >= 96+8
		}).Draw(t, "bits")).Masked()
	})
	rapid.Check(t, func(t *rapid.T) {
		p := keyfunc.Proxies{Trusted: rapid.SliceOfN(network, 0, 5).Draw(t, "trusted"), Unix: rapid.Bool().Draw(t, "unix")}
		if rapid.Bool().Draw(t, "hops") {
			p = keyfunc.Proxies{Hops: rapid.IntRange(1, 32).Draw(t, "n")}
		}
		if p.Unix || p.Hops > 0 || len(p.Trusted) > 0 {
			p.Header = rapid.SampledFrom([]string{"", "X-Forwarded-For", "x-forwarded-for"}).Draw(t, "header")
		}
		text, err := p.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var q keyfunc.Proxies
		if err := q.UnmarshalText(text); err != nil {
			t.Fatal(err)
		}
		if textOf(t, p) != textOf(t, q) || p.Unix != q.Unix || p.Hops != q.Hops || p.Header != q.Header || len(p.Trusted) != len(q.Trusted) {
			t.Fatalf("%v became %v", p, q)
		}
	})
}

func TestProxiesAsFlag(t *testing.T) {
	var p keyfunc.Proxies
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.TextVar(&p, "trusted-proxies", ours, "")
	if textOf(t, p) != textOf(t, ours) {
		t.Errorf("default: got %v", p)
	}
	if err := fs.Parse([]string{"-trusted-proxies=192.0.2.7,unix"}); err != nil || textOf(t, p) != "192.0.2.7,unix" {
		t.Errorf("got %v, %v", p, err)
	}
	if err := fs.Parse([]string{"-trusted-proxies=192.0.2.7/8"}); err == nil || !strings.Contains(err.Error(), "192.0.0.0/8") {
		t.Errorf("got error %v", err)
	}
}

// The page on trust has, for each place servers stand at, a line of Go and the
// same as text: the text must be readable and say what the line does.
func TestTextsOfTheTrustModel(t *testing.T) {
	page, err := os.ReadFile("../docs/trust-model.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| [^|]* \\| .*keyfunc\\.Proxies\\{(.*?)\\}\\.IP.* \\| `([^`|]*)` \\|$").FindAllStringSubmatch(string(page), -1)
	if len(rows) < 8 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, row := range rows {
		fields, text := row[1], row[2]
		var p keyfunc.Proxies
		if err := p.UnmarshalText([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		for field, set := range map[string]bool{
			"Trusted:": len(p.Trusted) > 0, "Unix:": p.Unix, "Hops:": p.Hops > 0, "Header:": p.Header != "",
		} {
			if strings.Contains(fields, field) != set {
				t.Errorf("%s and %s differ in %s", fields, text, field)
			}
		}
	}
}

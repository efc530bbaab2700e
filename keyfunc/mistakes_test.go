package keyfunc_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/seed75154129/ratelimit/keyfunc"
)

// What was set up wrongly is said by Validate, all at once, and no request passes.
func TestMistakes(t *testing.T) {
	const (
		hopsAndTrusted = "keyfunc: Proxies: Hops trusts whatever connects, Trusted and Unix do not: set one of the two"
		short          = "keyfunc: Hashed: the secret has 15 bytes: give at least 16 random ones, or nil for a plain hash"
	)
	office := netip.MustParsePrefix("192.0.2.0/24")
	for _, tc := range []struct {
		name string
		key  keyfunc.Key
		want []string
	}{
		{"secret of an unset variable", keyfunc.Hashed(key("alice"), []byte("")), []string{strings.Replace(short, "15", "0", 1)}},
		{"short secret", keyfunc.Hashed(key("alice"), make([]byte, 15)), []string{short}},
		{"short secret of nobody", keyfunc.Hashed(nil, make([]byte, 15)), []string{"keyfunc: Hashed: key 1 of 1 is nil", short}},
		{"status below", keyfunc.Required(key("a"), 399), []string{"keyfunc: Required: status 399: give one from 400 to 499, such as 401"}},
		{"status above", keyfunc.Required(key("a"), 500), []string{"keyfunc: Required: status 500: give one from 400 to 499, such as 401"}},
		{"nothing required", keyfunc.Required(nil, 0), []string{"keyfunc: Required: key 1 of 1 is nil", "keyfunc: Required: status 0: give one from 400 to 499, such as 401"}},
		{"nothing optional", keyfunc.Optional(nil), []string{"keyfunc: Optional: key 1 of 1 is nil"}},
		{"a nil Func", keyfunc.Optional(keyfunc.Func(nil)), []string{"keyfunc: Optional: key 1 of 1 is nil"}},
		{"nothing joined", keyfunc.Join(), []string{"keyfunc: Join: no keys: give at least one"}},
		{"nil joined", keyfunc.Join(nil, key("a"), nil), []string{"keyfunc: Join: key 1 of 3 is nil", "keyfunc: Join: key 3 of 3 is nil"}},
		{"a field of the body beside the client", keyfunc.Join(keyfunc.IP, keyfunc.BodyJSON("model", 64)), []string{
			"keyfunc: Join: made-up values of bodyjson:model have counts of their own beside ip: " +
				"write keyfunc.OneOf(…) around the field, with the values to count apart, or a rule for each key"}},
		{"one of none", keyfunc.OneOf(keyfunc.IP), []string{"keyfunc: OneOf: no values: list those that have a count of their own"}},
		{"one of nil", keyfunc.OneOf(nil, "a"), []string{"keyfunc: OneOf: key 1 of 1 is nil"}},
		{"one of empty values", keyfunc.OneOf(keyfunc.Header("Model"), "a", " ", ""), []string{
			`keyfunc: OneOf: a value is empty: leave it out, because requests without a key are "other"`, `keyfunc: OneOf: a value is empty: leave it out, because requests without a key are "other"`}},
		{"one of twice the same", keyfunc.OneOf(keyfunc.Header("Model"), "Large", "large "), []string{`keyfunc: OneOf: value "large ": it is in the list already`}},
		{"one of others", keyfunc.OneOf(keyfunc.Header("Model"), "Other"), []string{`keyfunc: OneOf: value "Other": leave it out, because it is the key of everything that is not listed`}},
		{"one of secrets", keyfunc.OneOf(keyfunc.APIKey("Key"), "s3cret"), []string{"keyfunc: OneOf: the values of apikey:Key are secret: put Hashed around OneOf, or limit by another key"}},
		{"one of several keys", keyfunc.OneOf(keyfunc.First(key("a"), keyfunc.Header("Model")), "a"), []string{`keyfunc: OneOf: value "a": stands for 2 keys: put OneOf around each of them`}},
		{"one of pairs", keyfunc.OneOf(keyfunc.Join(keyfunc.IP, keyfunc.Header("Model")), "a"), []string{
			`keyfunc: OneOf: value "a": keyfunc: [ip, header:Model]: takes 2 values, got 1`}},
		{"nothing first", keyfunc.First(), []string{"keyfunc: First: no keys: give at least one"}},
		{"nil second", keyfunc.First(key("a"), nil), []string{"keyfunc: First: key 2 of 2 is nil"}},
		{"nil user", keyfunc.Context(nil), []string{"keyfunc: Context: the argument is nil"}},
		{"nil address", keyfunc.ContextAddr(nil), []string{"keyfunc: ContextAddr: the argument is nil"}},
		{"nil route", keyfunc.Route(nil), []string{"keyfunc: Route: the argument is nil"}},
		{"nil mux", keyfunc.Mux(nil), []string{"keyfunc: Mux: the argument is nil"}},
		{"JSON of no name and size", keyfunc.BodyJSON("", 0), []string{
			"keyfunc: BodyJSON: the name of the field is empty", "keyfunc: BodyJSON: at most 0 bytes: hardly any body would be read; give 64 or more, such as 8<<10"}},
		{"JSON pointer with an empty name", keyfunc.BodyJSON("/params/", 64), []string{"keyfunc: BodyJSON: the name of the field is empty"}},
		{"JSON pointer with a bad escape", keyfunc.BodyJSON("/a~b/~01", 64), []string{`keyfunc: BodyJSON: field "/a~b/~01": "a~b": in a JSON Pointer write "~0" for "~", and "~1" for "/"`}},
		{"form of a negative size", keyfunc.BodyForm("email", -1), []string{"keyfunc: BodyForm: at most -1 bytes: hardly any body would be read; give 64 or more, such as 8<<10"}},
		{"JSON of a size without its unit", keyfunc.BodyJSON("email", 63), []string{"keyfunc: BodyJSON: at most 63 bytes: hardly any body would be read; give 64 or more, such as 8<<10"}},
		{"header of no name", keyfunc.Header(""), []string{"keyfunc: Header: the name of the header is empty"}},
		{"header of an invalid name", keyfunc.Header("X Device"), []string{`keyfunc: Header: "X Device" is no name of a header`}},
		{"header with a value", keyfunc.Header("X-Device:"), []string{`keyfunc: Header: "X-Device:" is no name of a header`}},
		{"header of addresses", keyfunc.Header("x-forwarded-for"), []string{
			"keyfunc: Header: any client can write X-Forwarded-For: use keyfunc.IP or, behind proxies, keyfunc.Proxies with their networks"}},
		{"header of a secret, hashed", keyfunc.Hashed(keyfunc.Header("X-API-Key"), nil), []string{
			`keyfunc: Header: X-Api-Key holds a secret, which would be in the store and in logs: use keyfunc.APIKey, in a rule file "apikey:X-Api-Key", which counts by a hash`}},
		{"header that net/http removes", keyfunc.Optional(keyfunc.Header("host")), []string{
			"keyfunc: Header: Host does not say who sends a request, and handlers may not see it: use another header or keyfunc.IP"}},
		{"header of cookies", keyfunc.Header("cookie"), []string{
			`keyfunc: Header: Cookie holds all cookies, and each change of one would be another client: use keyfunc.Cookie, in a rule file "cookie:NAME", with the name of the session's cookie`}},
		{"secret of cookies", keyfunc.APIKey("COOKIE"), []string{
			`keyfunc: APIKey: Cookie holds all cookies, and each change of one would be another client: use keyfunc.Cookie, in a rule file "cookie:NAME", with the name of the session's cookie`}},
		{"header of a proof", keyfunc.APIKey("DPoP"), []string{
			"keyfunc: APIKey: Dpop changes with each request or path, and each value would be another client: verify it in middleware in front, and use keyfunc.Context"}},
		{"header of a date", keyfunc.Header("x-amz-date"), []string{
			"keyfunc: Header: X-Amz-Date changes with each request or path, and each value would be another client: verify it in middleware in front, and use keyfunc.Context"}},
		{"user in a chain", ours.UserID("X-Forwarded-Client-Cert"), []string{
			"keyfunc: UserID: X-Forwarded-Client-Cert changes with each request or path, and each value would be another client: verify it in middleware in front, and use keyfunc.Context"}},
		{"cookie of no name", keyfunc.Cookie(""), []string{`keyfunc: Cookie: "" is no name of a cookie`}},
		{"cookie with a value", keyfunc.Cookie("a=b"), []string{`keyfunc: Cookie: "a=b" is no name of a cookie`}},
		{"API key of no name", keyfunc.APIKey(""), []string{"keyfunc: APIKey: the name of the header is empty"}},
		{"user of an invalid name", ours.UserID("X\nUser"), []string{`keyfunc: UserID: "X\nUser" is no name of a header`}},
		{"Hops and Trusted", keyfunc.Proxies{Hops: 1, Trusted: ours.Trusted}.IP(), []string{hopsAndTrusted}},
		{"Hops and Unix, user", keyfunc.Proxies{Hops: 1, Unix: true}.UserID("X-User-ID"), []string{hopsAndTrusted}},
		{"Hops negative", keyfunc.Proxies{Hops: -1}.IP(), []string{"keyfunc: Proxies: Hops is -1: must be 0 to 32"}},
		{"Hops too high", keyfunc.Proxies{Hops: 33}.IP(), []string{"keyfunc: Proxies: Hops is 33: must be 0 to 32"}},
		{"Header invalid", keyfunc.Proxies{Unix: true, Header: "X Real IP"}.IP(), []string{`keyfunc: Proxies: Header "X Real IP" is no name of a header`}},
		{"Header that is never read", keyfunc.Proxies{Header: "X-Real-IP"}.IP(), []string{
			`keyfunc: Proxies: Header "X-Real-IP" is never read, since nobody is trusted: set Trusted, Unix or Hops, or remove Header`}},
		{"list that is never read", keyfunc.Proxies{Header: "X-Forwarded-For"}.UserID("X-User-ID"), []string{
			`keyfunc: Proxies: Header "X-Forwarded-For" is never read, since nobody is trusted: set Trusted, Unix or Hops, or remove Header`}},
		{"header of RFC 7239", keyfunc.Proxies{Trusted: ours.Trusted, Header: "forwarded"}.IP(), []string{
			`keyfunc: Proxies: Header "forwarded" is not read: have your proxies append to X-Forwarded-For, and remove Header`}},
		{"network of a failed parse", keyfunc.Proxies{Trusted: []netip.Prefix{office, {}}}.IP(), []string{"keyfunc: Proxies: Trusted[1], invalid Prefix: this is no valid network"}},
		{"everything wrong with Proxies", keyfunc.Proxies{Hops: 40, Unix: true, Header: "X-Real-IP"}.IP(), []string{
			"keyfunc: Proxies: Hops is 40: must be 0 to 32", hopsAndTrusted,
			`keyfunc: Proxies: Header "X-Real-IP" holds one address, no list for Hops to count: set Trusted or Unix instead of Hops`}},
		{"no bits", ours.IPv6(0), []string{"keyfunc: IPv6: /0: give 32 to 128 bits"}},
		{"too few bits", ours.IPv6(31), []string{"keyfunc: IPv6: /31: give 32 to 128 bits"}},
		{"too many bits, of a mistake", keyfunc.Proxies{Hops: -1}.IPv6(129), []string{
			"keyfunc: Proxies: Hops is -1: must be 0 to 32", "keyfunc: IPv6: /129: give 32 to 128 bits"}},
		{"inside of wrappers", keyfunc.First(keyfunc.IP, keyfunc.Join(keyfunc.Optional(keyfunc.Hashed(keyfunc.Header(""), make([]byte, 15))), keyfunc.Required(keyfunc.Mux(nil), 500))), []string{
			"keyfunc: Header: the name of the header is empty", short, "keyfunc: Mux: the argument is nil", "keyfunc: Required: status 500: give one from 400 to 499, such as 401"}},
		{"of a Key of somebody else's", keyfunc.Hashed(custom{mistake: errBroken}, make([]byte, 15)), []string{"broken", short}},
	} {
		t.Run(tc.name, func(t *testing.T) { wantFault(t, tc.key, strings.Join(tc.want, "\n")) })
	}
}

func TestMistakesOfProxiesAreThoseOfAllMethods(t *testing.T) {
	for _, p := range []keyfunc.Proxies{{Hops: 1, Unix: true}, {Header: "Forwarded"}, {Trusted: []netip.Prefix{{}}}} {
		want := validate(p.IP())
		if want == nil {
			t.Fatalf("%v is valid", p)
		}
		for name, err := range map[string]error{"IPv6": validate(p.IPv6(48)), "UserID": validate(p.UserID("X-User-ID")),
			"Addr":        func() error { _, err := p.Addr(req); return err }(),
			"MarshalText": func() error { _, err := p.MarshalText(); return err }(),
		} {
			if err == nil || err.Error() != want.Error() {
				t.Errorf("%v: %s: got %v, want %v", p, name, err, want)
			}
		}
		if p.In(netip.MustParsePrefix("0.0.0.0/0"))(req) {
			t.Errorf("%v: In exempts a client", p)
		}
	}
}

func TestWhatIsNoMistake(t *testing.T) {
	for _, k := range []keyfunc.Key{
		keyfunc.IP, keyfunc.Everyone, ours.IP(), ours.IPv6(48), keyfunc.Proxies{}.UserID("X-User-ID"), keyfunc.Proxies{Hops: 32, Header: "X-Forwarded-For"}.IP(),
		keyfunc.Hashed(key("a"), make([]byte, 16)), keyfunc.Hashed(key("a"), nil), keyfunc.Required(key("a"), 400), keyfunc.Required(key("a"), 499),
		keyfunc.BodyJSON("email", 64), keyfunc.Context(func(context.Context) (string, bool) { return "", false }),
		keyfunc.Join(keyfunc.First(keyfunc.Optional(key("a")))),
	} {
		if err := validate(k); err != nil {
			t.Errorf("%v: %v", k, err)
		}
	}
}

// Networks that hold much of the internet trust everybody, however they are written.
func TestWideNetworksAreMistakes(t *testing.T) {
	ends := netip.MustParsePrefix("10.0.0.0/8")
	for network, want := range map[string]string{
		"0.0.0.0/0": "it holds a large part of the internet", "0.0.0.0/1": "it holds", "128.0.0.0/1": "it holds", "16.0.0.0/7": "it holds",
		"::ffff:0.0.0.0/96": "it holds", "::ffff:128.0.0.0/97": "it holds", "::/0": "it holds", "2000::/3": "it holds", "2a00::/12": "it holds", "2002::/16": "it holds",
		"64:ff9b::/96": "it holds", "1.2.3.4/4": "bits are set beyond the length: write 0.0.0.0/4 for the network, or 1.2.3.4 for the one address",
		"10.1.2.3/8": "bits are set beyond the length: write 10.0.0.0/8", "::ffff:10.1.2.3/104": "bits are set beyond the length: write 10.0.0.0/8",
		"10.0.0.0/8": "", "::ffff:10.0.0.0/104": "", "fc00::/7": "", "fe80::/10": "", "2001:db8::/32": "", "2a00::/17": "", "64:ff9b::a00:0/104": "", "::1/128": "",
	} {
		p := keyfunc.Proxies{Trusted: []netip.Prefix{ends, netip.MustParsePrefix(network)}}
		var read keyfunc.Proxies
		err, textErr := validate(p.IP()), read.UnmarshalText([]byte(network))
		if want == "" {
			if err != nil || textErr != nil {
				t.Errorf("%s: %v, %v", network, err, textErr)
			}
			continue
		}
		if err == nil || !strings.HasPrefix(err.Error(), "keyfunc: Proxies: Trusted[1], "+network+": "+want) {
			t.Errorf("%s: got %v", network, err)
		}
		if textErr == nil || !strings.HasPrefix(textErr.Error(), `keyfunc: trusted proxy "`+network+`": `+want) || strings.Contains(textErr.Error(), "\n") {
			t.Errorf("%s: text: got %v", network, textErr)
		}
		if r := from("198.51.100.66:1", "10.0.0.1"); p.In(ends)(r) {
			t.Errorf("%s: a client that writes X-Forwarded-For is on the safelist", network)
		}
	}
}

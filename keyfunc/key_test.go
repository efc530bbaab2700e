package keyfunc_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed75154129/ratelimit/internal/hint"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// custom is a Described Key of somebody else's.
type custom struct {
	mistake      error
	body, secret bool
}

func (c custom) Resolve(*http.Request) (string, error) { return "custom", c.mistake }
func (c custom) Validate() error                       { return c.mistake }
func (c custom) String() string                        { return "tenant" }
func (c custom) ReadsBody() bool                       { return c.body }
func (c custom) Values() int                           { return 1 }
func (c custom) Secret() bool                          { return c.secret }
func (c custom) Keys(values ...string) ([]string, error) {
	return []string{"a" + strings.Join(values, "+"), "b"}, nil
}

// bare is a Key of somebody else's that says nothing of itself.
type bare struct{}

func (bare) Resolve(*http.Request) (string, error) { return "bare", nil }

var wrappers = map[string]func(keyfunc.Key) keyfunc.Key{
	"[%s, ip]":          func(k keyfunc.Key) keyfunc.Key { return keyfunc.Join(k, keyfunc.IP) },
	"first(ip, %s)":     func(k keyfunc.Key) keyfunc.Key { return keyfunc.First(keyfunc.IP, k) },
	"optional(%s)":      keyfunc.Optional,
	"required(%s, 401)": func(k keyfunc.Key) keyfunc.Key { return keyfunc.Required(k, 401) },
	"hashed(%s)":        func(k keyfunc.Key) keyfunc.Key { return keyfunc.Hashed(k, nil) },
	"hashed([%s, mux])": func(k keyfunc.Key) keyfunc.Key {
		return keyfunc.Hashed(keyfunc.Join(k, keyfunc.Mux(http.NewServeMux())), nil)
	},
	"optional(first(%s))": func(k keyfunc.Key) keyfunc.Key { return keyfunc.Optional(keyfunc.First(k)) },
}

// What keys say of themselves, and wrappers pass on. Every constructor's key is Described, so
// that nothing of it is lost in a program's own keys.
func TestWhatKeysSayOfThemselves(t *testing.T) {
	type says struct {
		body, secret bool
		values       int
		traits       hint.Traits
	}
	chosen := func(what string) hint.Traits { return hint.Traits{Chosen: what} }
	address, route, field := hint.Traits{Address: true}, hint.Traits{Route: true}, chosen("a field of the body")
	tested := map[string]bool{}
	for _, c := range []struct {
		constructor, name string
		key               keyfunc.Key
		want              says
	}{
		{"IP", "ip", keyfunc.IP, says{values: 1, traits: address}},
		{"Proxies.IP", "ip", ours.IP(), says{values: 1, traits: address}},
		{"Proxies.IPv6", "ipv6:48", ours.IPv6(48), says{values: 1, traits: address}},
		{"Proxies.UserID", "userid:X-User-Id", ours.UserID("X-User-ID"), says{values: 1}},
		{"Everyone", "everyone", keyfunc.Everyone, says{}},
		{"Header", "header:X-Device", keyfunc.Header("x-device"), says{values: 1, traits: chosen("a header")}},
		{"APIKey", "apikey:Authorization", keyfunc.APIKey("authorization"), says{secret: true, values: 1, traits: chosen("an API key")}},
		{"Cookie", "cookie:session", keyfunc.Cookie("session"), says{secret: true, values: 1, traits: chosen("a cookie")}},
		{"Context", "context", keyfunc.Context(userID), says{values: 1}},
		{"ContextAddr", "contextaddr", keyfunc.ContextAddr(func(context.Context) netip.Addr { return netip.Addr{} }), says{values: 1, traits: address}},
		{"Route", "route", keyfunc.Route(pattern), says{values: 1, traits: hint.Traits{Route: true, Opaque: true}}},
		{"Mux", "mux", keyfunc.Mux(http.NewServeMux()), says{values: 1, traits: route}},
		{"BodyJSON", "bodyjson:email", keyfunc.BodyJSON("email", 64), says{body: true, values: 1, traits: field}},
		{"BodyForm", "bodyform:email", keyfunc.BodyForm("email", 64), says{body: true, values: 1, traits: field}},
		{"OneOf", "oneof(mux=GET /)", keyfunc.OneOf(keyfunc.Mux(http.NewServeMux()), "GET /"), says{values: 1, traits: route}},
		{"Join", "[everyone, mux, keyfunc.Func]", keyfunc.Join(keyfunc.Everyone, keyfunc.Mux(http.NewServeMux()), key("a")), says{values: 2, traits: hint.Traits{Route: true, Opaque: true}}},
		{"First", "first([mux, mux], mux)", keyfunc.First(keyfunc.Join(keyfunc.Mux(http.NewServeMux()), keyfunc.Mux(http.NewServeMux())), keyfunc.Mux(http.NewServeMux())), says{values: 2, traits: route}},
		{"Optional", "optional(everyone)", keyfunc.Optional(keyfunc.Everyone), says{}},
		{"Required", "required(mux, 401)", keyfunc.Required(keyfunc.Mux(http.NewServeMux()), 401), says{values: 1, traits: route}},
		{"Hashed", "hashed(mux)", keyfunc.Hashed(keyfunc.Mux(http.NewServeMux()), nil), says{secret: true, values: 1, traits: route}},
		{"", "tenant", custom{body: true, secret: true}, says{body: true, secret: true, values: 1, traits: hint.Traits{Opaque: true}}},
		{"", "tenant", pair{}, says{values: 2, traits: hint.Traits{Opaque: true}}},
		{"", "keyfunc_test.bare", bare{}, says{values: 1, traits: hint.Traits{Opaque: true}}},
	} {
		tested[c.constructor] = true
		if _, ok := c.key.(keyfunc.Described); ok != (c.key != bare{}) {
			t.Errorf("%s is Described: %v", c.name, ok)
		}
		check := func(k keyfunc.Key, name string, want says) {
			t.Helper()
			d := keyfunc.Describe(k)
			if got := (says{d.ReadsBody(), d.Secret(), d.Values(), hint.Of(k)}); d.String() != name || got != want {
				t.Errorf("got %s %+v; want %s %+v", d, got, name, want)
			}
		}
		check(c.key, c.name, c.want)
		for format, wrap := range wrappers {
			want := c.want
			want.secret = want.secret || strings.HasPrefix(format, "hashed")
			want.traits.Address = want.traits.Address || strings.Contains(format, "ip")
			want.traits.Route = want.traits.Route || strings.Contains(format, "mux")
			switch {
			case strings.Contains(format, "["):
				want.values++
			case format == "first(ip, %s)":
				want.values = max(want.values, 1)
			}
			check(wrap(c.key), fmt.Sprintf(format, c.name), want)
		}
	}
	exported := regexp.MustCompile(`(?m)^(?:func (?:\(\w+ (\w+)\) )?|var )([A-Z]\w*)(?:\(.*\))? Key(?: \{| =)`)
	files, _ := filepath.Glob("*.go")
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range exported.FindAllStringSubmatch(string(text), -1) {
			name := strings.TrimPrefix(match[1]+"."+match[2], ".")
			if found++; !tested[name] {
				t.Errorf("%s is not tested", name)
			}
		}
	}
	if found != len(tested)-1 {
		t.Errorf("%d constructors found, and %d are tested", found, len(tested)-1)
	}
}

type (
	embedding struct{ keyfunc.Key }
	pointing  struct{ keyfunc.Key }
	decorator struct{ keyfunc.Described }
	named     struct{ bare }
	reading   struct{ bare }
	secretive struct{ embedding }
)

func (pointing) Resolve(*http.Request) (string, error) { return "", nil }
func (named) String() string                           { return "named" }
func (reading) ReadsBody() bool                        { return true }
func (secretive) Secret() bool                         { return true }

// What a Key says of itself is used or, if it is only a part of Described, is a
// mistake: a Key around BodyJSON that no longer said that it reads the body would be
// resolved for requests that another rule denies.
func TestDescribe(t *testing.T) {
	body := keyfunc.BodyJSON("email", 64)
	for want, keys := range map[string][]keyfunc.Key{
		"": {body, custom{}, bare{}, &bare{}, named{}, key("a"), decorator{body.(keyfunc.Described)}, &decorator{keyfunc.Describe(key("a"))}},
		"has some methods of keyfunc.Described and not all":                   {reading{}, &reading{}, secretive{}},
		"embeds a keyfunc.Key, whose methods other than Resolve would not be": {embedding{body}, &embedding{}, pointing{body}, &pointing{key("a")}},
		"Describe: the key is nil":                                            {nil, keyfunc.Func(nil)},
	} {
		for _, k := range keys {
			if err := keyfunc.Describe(k).Validate(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%T: %v, want %s", k, err, want)
			}
			if k == nil || want == "Describe: the key is nil" {
				continue
			}
			for name, wrap := range wrappers {
				if k == body && strings.Contains(name, ", ip]") {
					continue // a mistake of another kind
				}
				if err := validate(wrap(k)); (err == nil) != (want == "") {
					t.Errorf(name+": %v", k, err)
				}
			}
		}
	}
	if d := keyfunc.Describe(decorator{body.(keyfunc.Described)}); !d.ReadsBody() || d.String() != "bodyjson:email" {
		t.Errorf("a decorator: %v, %v", d, d.ReadsBody())
	}
	d := keyfunc.Describe(key("a"))
	if got, err := d.Keys("a"); err != nil || !slices.Equal(got, []string{"a"}) || d.ReadsBody() || d.Secret() || d.Values() != 1 || d.String() != "keyfunc.Func" {
		t.Errorf("a Func: %v, %q, %v", d, got, err)
	}
	if got := keyfunc.Describe(named{}).String(); got != "named" {
		t.Errorf("got %s", got)
	}
}

func TestJoinOfAPair(t *testing.T) {
	if got, err := keysOf(keyfunc.Join(pair{}, keyfunc.IP), "a", "b", "192.0.2.1"); err != nil || len(got) != 1 || got[0] != "3:a+b,9:192.0.2.1" {
		t.Errorf("got %q, %v", got, err)
	}
}

// A pair is a Key of somebody else's that takes two values.
type pair struct{ custom }

func (pair) Values() int                             { return 2 }
func (pair) Keys(values ...string) ([]string, error) { return []string{strings.Join(values, "+")}, nil }

// What an operator writes is counted as the requests of the client are.
func TestKeysOfPlainValues(t *testing.T) {
	header := func(name, value string) *http.Request { return with(name, value) }
	body := func(contentType, body string) *http.Request { return post(contentType, strings.NewReader(body)) }
	secret := []byte("0123456789abcdef")
	for _, tc := range []struct {
		key    keyfunc.Key
		values []string
		r      *http.Request
	}{
		{keyfunc.IP, []string{"203.0.113.9"}, req},
		{keyfunc.IP, []string{"2001:db8::1"}, from("[2001:db8::2]:1")},
		{keyfunc.IP, []string{" 2001:db8::/64 "}, from("[2001:db8::2]:1")},
		{keyfunc.IP, []string{"::ffff:203.0.113.9"}, req},
		{keyfunc.IP, []string{"64:ff9b::203.0.113.9"}, req},
		{keyfunc.IP, []string{"203.0.113.9/32"}, req},
		{keyfunc.IP, []string{"unix"}, from("@")},
		{ours.IPv6(48), []string{"2001:db8::1"}, from("[2001:db8:0:9::1]:1")},
		{ours.IPv6(48), []string{"2001:db8::/48"}, from("[2001:db8:0:9::1]:1")},
		{ours.IPv6(128), []string{"2001:db8::1/128"}, from("[2001:db8::1]:1")},
		{keyfunc.ContextAddr(func(context.Context) netip.Addr { return netip.MustParseAddr("2001:db8::2") }), []string{"2001:db8::1"}, req},
		{keyfunc.Everyone, nil, req},
		{keyfunc.Header("User"), []string{" alice "}, header("User", "alice")},
		{keyfunc.APIKey("Authorization"), []string{"token"}, header("Authorization", "Bearer token")},
		{keyfunc.APIKey("Authorization"), []string{"Bearer token"}, header("Authorization", "Bearer token")},
		{keyfunc.APIKey("Key"), []string{"token"}, header("Key", "token")},
		{keyfunc.Proxies{Hops: 1}.UserID("User"), []string{"alice"}, header("User", "alice")},
		{keyfunc.Context(func(context.Context) (string, bool) { return "alice", true }), []string{"alice"}, req},
		{keyfunc.Route(func(*http.Request) string { return "GET /" }), []string{"GET /"}, req},
		{keyfunc.BodyJSON("email", 100), []string{" Alice@example.com"}, body(jsonType, `{"email":"alice@EXAMPLE.com"}`)},
		{keyfunc.OneOf(keyfunc.BodyJSON("model", 100), "large"), []string{"Large"}, body(jsonType, `{"model":"LARGE"}`)},
		{keyfunc.OneOf(keyfunc.BodyJSON("model", 100), "large"), []string{"other"}, body(jsonType, `{"model":"x1"}`)},
		{keyfunc.BodyForm("email", 100), []string{"Alice"}, body(formType, "email=alice")},
		{keyfunc.Join(keyfunc.IP, keyfunc.Header("User")), []string{"203.0.113.9", "alice"}, header("User", "alice")},
		{keyfunc.Join(keyfunc.Everyone, keyfunc.Header("User")), []string{"alice"}, header("User", "alice")},
		{keyfunc.Join(keyfunc.Join(keyfunc.IP, keyfunc.Header("User")), key("x")), []string{"203.0.113.9", "alice", "x"}, header("User", "alice")},
		{keyfunc.Hashed(keyfunc.Join(keyfunc.IP, key("x")), secret), []string{"203.0.113.9", "x"}, req},
		{keyfunc.Hashed(keyfunc.IP, nil), []string{"203.0.113.9"}, req},
		{keyfunc.Optional(keyfunc.Required(keyfunc.Header("User"), 401)), []string{"alice"}, header("User", "alice")},
		{keyfunc.Required(key("x"), 401), []string{"x"}, req},
		{keyfunc.Optional(bare{}), []string{"bare"}, req},
	} {
		got, err := keysOf(tc.key, tc.values...)
		if want := mustKey(t, tc.key, tc.r); err != nil || !slices.Equal(got, []string{want}) {
			t.Errorf("%v, %q: got %q, %v; want %q", tc.key, tc.values, got, err, want)
		}
	}
}

// A value stands for the key of each alternative that it can be.
func TestKeysOfAlternatives(t *testing.T) {
	k := keyfunc.First(keyfunc.Header("User"), keyfunc.IP, keyfunc.Join(keyfunc.IP, keyfunc.Mux(http.NewServeMux())))
	for _, tc := range []struct {
		key          keyfunc.Key
		values, want []string
	}{
		{k, []string{"alice"}, []string{"1:alice"}},
		{k, []string{"203.0.113.9"}, []string{"1:203.0.113.9", "2:203.0.113.9"}},
		{k, []string{"203.0.113.9", "GET /"}, []string{"3:11:203.0.113.9,5:GET /"}},
		{keyfunc.First(keyfunc.IP, keyfunc.Everyone), nil, []string{"2:everyone"}},
		{keyfunc.Join(keyfunc.First(keyfunc.Header("User"), keyfunc.IP), custom{}), []string{"203.0.113.9", "x"},
			[]string{"13:1:203.0.113.9,2:ax", "13:1:203.0.113.9,1:b", "13:2:203.0.113.9,2:ax", "13:2:203.0.113.9,1:b"}},
	} {
		if got, err := keysOf(tc.key, tc.values...); err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%v, %q: got %q, %v; want %q", tc.key, tc.values, got, err, tc.want)
		}
	}
}

// An override must stand for one client, and its text must hold no secret.
func TestExactKeys(t *testing.T) {
	secret := []byte("0123456789abcdef")
	api, user := keyfunc.APIKey("Authorization"), keyfunc.Header("User")
	stored, hashed := mustKey(t, api, with("Authorization", "s3cret-1")), mustKey(t, keyfunc.Hashed(user, secret), with("User", "s3cret-1"))
	for _, tc := range []struct {
		key    keyfunc.Key
		values []string
		want   string // the key, or else what the error has
	}{
		{keyfunc.IP, []string{"2001:db8::1"}, "2001:db8::/64"},
		{keyfunc.BodyJSON("email", 64), []string{"Alice"}, "alice"},
		{keyfunc.Join(user, keyfunc.Everyone, keyfunc.IP), []string{"acme", "2001:db8::1"}, "4:acme,8:everyone,13:2001:db8::/64"},
		{keyfunc.Join(user, keyfunc.IP), []string{"acme"}, "takes 2 values, got 1"},
		{keyfunc.Everyone, nil, "all clients have one key: change the limit"},

		{keyfunc.First(user, keyfunc.IP), []string{"192.0.2.1"}, "begin with the number"},
		{keyfunc.First(user, keyfunc.IP), []string{"alice"}, "begin with the number"},
		{keyfunc.First(user, keyfunc.IP), []string{"2:2001:db8::1"}, "2:2001:db8::/64"},
		{keyfunc.First(user, keyfunc.IP), []string{"1:2:192.0.2.1"}, "1:2:192.0.2.1"},
		{keyfunc.First(user, keyfunc.IP), []string{"2:alice"}, "ip: "},
		{keyfunc.First(user, keyfunc.IP), []string{"3:192.0.2.1"}, "begin with the number"},
		{keyfunc.First(user, keyfunc.IP), []string{"02:192.0.2.1"}, "begin with the number"},
		{keyfunc.First(user, keyfunc.IP), nil, "begin with the number"},
		{keyfunc.First(keyfunc.IP, keyfunc.Join(user, keyfunc.IP)), []string{"2:a", "192.0.2.1"}, "2:1:a,9:192.0.2.1"},
		{keyfunc.First(keyfunc.IP, api), []string{"s3cret-1"}, "begin with the number"},
		{keyfunc.First(keyfunc.IP, api), []string{"2:s3cret-1"}, "write its stored form, " + stored},
		{keyfunc.First(keyfunc.IP, api), []string{"2:" + stored}, "2:" + stored},
		{keyfunc.Join(keyfunc.First(user, keyfunc.IP), user), []string{"192.0.2.1", "x"}, "begin with the number"},

		{api, []string{stored}, stored},
		{api, []string{"s3cret-1"}, "write its stored form, " + stored},
		{api, []string{stored + "A"}, "write its stored form"},
		{api, []string{stored[:len(stored)-1]}, "write its stored form"},
		{keyfunc.Join(user, api), []string{"acme", "s3cret-1"}, "write its stored form, " + stored},
		{keyfunc.Join(user, api), []string{"acme", stored}, "4:acme,29:" + stored},
		{keyfunc.Optional(keyfunc.Required(keyfunc.Hashed(user, secret), 401)), []string{hashed}, hashed},
		{keyfunc.Hashed(user, secret), []string{"s3cret-1"}, "write its stored form, " + hashed},
		{keyfunc.Hashed(keyfunc.First(user, keyfunc.IP), secret), []string{"192.0.2.1"}, "begin with the number"},
		{keyfunc.Hashed(api, secret), []string{stored}, "write its stored form, hash:"},
		{keyfunc.First(user, custom{}), []string{"2:x"}, "stands for 2 keys"},
	} {
		got, err := hint.Exact(keyfunc.Describe(tc.key), tc.values)
		if err != nil {
			got = err.Error()
		}
		if err == nil && got != tc.want || err != nil && !strings.Contains(got, tc.want) || strings.Contains(got, "s3cret") {
			t.Errorf("%v, %q: got %s; want %s", tc.key, tc.values, got, tc.want)
		}
	}
	// What operators may write is not for clients.
	for k, r := range map[keyfunc.Key]*http.Request{api: with("Authorization", stored), keyfunc.Hashed(user, secret): with("User", hashed)} {
		if got := mustKey(t, k, r); got == stored || got == hashed {
			t.Errorf("%v: a client is counted as another by sending its key", k)
		}
	}
	for k, text := range map[keyfunc.Key]string{api: stored, keyfunc.Hashed(user, secret): hashed} {
		if got, err := keysOf(k, text); err != nil || !slices.Equal(got, []string{text}) {
			t.Errorf("%v: %q, %v", k, got, err)
		}
	}
}

func TestKeysSayWhatIsWrongWithValues(t *testing.T) {
	joined := keyfunc.Join(keyfunc.IP, keyfunc.Header("User"))
	for _, tc := range []struct {
		key    keyfunc.Key
		values []string
		want   string
	}{
		{keyfunc.IP, nil, "keyfunc: ip: takes one value, got 0"},
		{keyfunc.IP, []string{"a", "b"}, "keyfunc: ip: takes one value, got 2"},
		{keyfunc.IP, []string{"alice"}, `keyfunc: ip: "alice" is no address: give one such as 203.0.113.9 or 2001:db8::1`},
		{keyfunc.IP, []string{""}, `keyfunc: ip: "" is no address: give one such as 203.0.113.9 or 2001:db8::1`},
		{keyfunc.IP, []string{"203.0.113.0/24"}, `keyfunc: ip: "203.0.113.0/24" is not one client: give an address, or an IPv6 network of the size that is counted, /64`},
		{keyfunc.IP, []string{"2001:db8::/48"}, `keyfunc: ip: "2001:db8::/48" is not one client: give an address, or an IPv6 network of the size that is counted, /64`},
		{keyfunc.Everyone, []string{"a"}, "keyfunc: everyone: takes no value, got 1"},
		{keyfunc.Header("User"), []string{" "}, "keyfunc: header:User: the value is empty"},
		{keyfunc.APIKey("Authorization"), []string{"Bearer "}, "keyfunc: apikey:Authorization: the value is empty"},
		{keyfunc.BodyForm("email", 64), []string{" "}, "keyfunc: bodyform:email: the value is empty"},
		{joined, []string{"203.0.113.9"}, "keyfunc: [ip, header:User]: takes 2 values, got 1"},
		{keyfunc.Hashed(joined, nil), []string{"alice", "203.0.113.9"}, `keyfunc: ip: "alice" is no address: give one such as 203.0.113.9 or 2001:db8::1`},
		{keyfunc.First(keyfunc.IP, ours.IPv6(48)), []string{"alice"}, `keyfunc: ip: "alice" is no address: give one such as 203.0.113.9 or 2001:db8::1` + "\n" +
			`keyfunc: ipv6:48: "alice" is no address: give one such as 203.0.113.9 or 2001:db8::1`},
		{keyfunc.Optional(key("a")), []string{""}, "keyfunc: keyfunc.Func: the value is empty"},
	} {
		if got, err := keysOf(tc.key, tc.values...); len(got) != 0 || err == nil || err.Error() != tc.want {
			t.Errorf("%v, %q: got %q, %v; want %s", tc.key, tc.values, got, err, tc.want)
		}
	}
}

// Whatever a client sends, the value alone leads to the key of its requests.
func TestKeysAreThoseOfRequests(t *testing.T) {
	proxies := keyfunc.Proxies{Hops: 1}
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(rapid.StringMatching(`[ -~]{1,20}`), rapid.String()).Draw(t, "value")
		addr := client.Draw(t, "address").String()
		r := from(addr)
		r.Header["User"], r.Header["Authorization"], r.Header["X-Forwarded-For"] = []string{value}, []string{value}, []string{addr}
		user := rapid.SampledFrom([]keyfunc.Key{keyfunc.Header("User"), keyfunc.APIKey("Authorization"), proxies.UserID("User"),
			keyfunc.Hashed(keyfunc.Header("User"), nil), keyfunc.Required(keyfunc.Header("User"), 400)}).Draw(t, "user")
		ip := rapid.SampledFrom([]keyfunc.Key{keyfunc.IP, proxies.IP(), proxies.IPv6(56)}).Draw(t, "ip")
		k := keyfunc.Join(user, ip)
		want, err := k.Resolve(r)
		got, keysErr := keysOf(k, value, addr)
		if (err == nil) != (keysErr == nil) {
			t.Fatalf("%q: Resolve: %v; Keys: %v", value, err, keysErr)
		}
		if err == nil && !slices.Equal(got, []string{want}) {
			t.Fatalf("%q: got %q, want %q", value, got, want)
		}
	})
}

package keyfunc_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/seed75154129/ratelimit/keyfunc"
)

// The address of the connection, in one form: IPv4 by address, IPv6 by /64.
func ExampleKey_ip() {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, remote := range []string{"203.0.113.9:4711", "[::ffff:203.0.113.9]:4711", "[2001:db8::1]:4711"} {
		r.RemoteAddr = remote
		fmt.Println(keyfunc.IP.Resolve(r))
	}
	// Output:
	// 203.0.113.9 <nil>
	// 203.0.113.9 <nil>
	// 2001:db8::/64 <nil>
}

// Behind proxies at known addresses, the client is the last address that none of
// them is. What a client writes itself is not believed.
func ExampleProxies() {
	proxies := keyfunc.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}

	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "10.0.0.1:4711"
	r.Header.Set("X-Forwarded-For", "1.1.1.1, 203.0.113.9") // the client sent 1.1.1.1
	fmt.Println(proxies.IP().Resolve(r))

	r.RemoteAddr = "198.51.100.1:4711" // not one of ours
	fmt.Println(proxies.IP().Resolve(r))
	// Output:
	// 203.0.113.9 <nil>
	// 198.51.100.1 <nil>
}

// Behind load balancers whose addresses change, the entries are counted from the end.
func ExampleProxies_hops() {
	proxies := keyfunc.Proxies{Hops: 2} // a load balancer with many addresses, and nginx

	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Forwarded-For", "1.1.1.1, 203.0.113.9, 198.51.100.7") // the client sent 1.1.1.1
	fmt.Println(proxies.IP().Resolve(r))

	r.Header.Set("X-Forwarded-For", "203.0.113.9") // past the load balancer
	fmt.Println(proxies.IP().Resolve(r))
	// Output:
	// 203.0.113.9 <nil>
	//  keyfunc: no key: X-Forwarded-For has 1 of the 2 hops
}

// A CDN names the client in a header of its own, which it replaces in each request.
func ExampleProxies_header() {
	proxies := keyfunc.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Header: "CF-Connecting-IP"}

	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "10.0.0.1:4711"
	r.Header.Set("CF-Connecting-IP", "2001:db8:7::9")
	fmt.Println(proxies.IP().Resolve(r))
	// Output: 2001:db8:7::/64 <nil>
}

// Two levels: each address, and each network that one customer may have. The second
// wants a higher limit.
func ExampleProxies_IPv6() {
	var proxies keyfunc.Proxies
	perClient := proxies.IPv6(128) // or proxies.IP(), by /64
	perCustomer := proxies.IPv6(48)

	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, remote := range []string{"[2001:db8:7:1::1]:4711", "[2001:db8:7:2::1]:4711", "203.0.113.9:4711"} {
		r.RemoteAddr = remote
		client, _ := perClient.Resolve(r)
		customer, _ := perCustomer.Resolve(r)
		fmt.Println(client, customer)
	}
	// Output:
	// 2001:db8:7:1::1/128 2001:db8:7::/48
	// 2001:db8:7:2::1/128 2001:db8:7::/48
	// 203.0.113.9 203.0.113.9
}

// The proxies come from a flag or a file. What is no list of proxies is an error
// that says what to write.
func ExampleProxies_UnmarshalText() {
	var proxies keyfunc.Proxies
	flags := flag.NewFlagSet("server", flag.ExitOnError)
	flags.TextVar(&proxies, "trusted-proxies", keyfunc.Proxies{}, "networks, addresses, or unix")
	_ = flags.Parse([]string{"-trusted-proxies", "10.0.0.0/8, 192.0.2.7, unix"})
	fmt.Println(proxies.Trusted, proxies.Unix)

	fmt.Println(proxies.UnmarshalText([]byte("10.0.0.1/8")))
	// Output:
	// [10.0.0.0/8 192.0.2.7/32] true
	// keyfunc: trusted proxy "10.0.0.1/8": bits are set beyond the length: write 10.0.0.0/8 for the network, or 10.0.0.1 for the one address
}

// The address serves other purposes than limits.
func ExampleProxies_Addr() {
	var proxies keyfunc.Proxies
	office := netip.MustParsePrefix("2001:db8:7::/48")

	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "[2001:db8:7::1]:4711"
	addr, err := proxies.Addr(r)
	fmt.Println(err == nil && office.Contains(addr))
	// Output: true
}

// A safelist by address, for Config.SkipFor: no header that a client writes puts it
// on the list.
func ExampleProxies_In() {
	proxies := keyfunc.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	monitoring := proxies.In(netip.MustParsePrefix("192.0.2.0/24"))

	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "10.0.0.1:4711"
	r.Header.Set("X-Forwarded-For", "192.0.2.7, 203.0.113.9") // the client sent 192.0.2.7
	fmt.Println(monitoring(r))

	r.Header.Set("X-Forwarded-For", "192.0.2.7")
	fmt.Println(monitoring(r))
	// Output:
	// false
	// true
}

// A secret never leaves the process: its hash is the key.
func ExampleAPIKey() {
	key := keyfunc.APIKey("Authorization")
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer 6yX9_example")
	fmt.Println(key.Resolve(r))
	// Output: apikey:zaiceU1OK-IuMv_PsCg0Lw <nil>
}

// The authentication middleware has put the user into the request's context.
func ExampleContext() {
	type userID struct{} // the authentication middleware's
	key := keyfunc.Context(func(ctx context.Context) (string, bool) {
		id, ok := ctx.Value(userID{}).(string)
		return id, ok
	})

	r := httptest.NewRequest(http.MethodGet, "/", nil)
	_, err := key.Resolve(r)
	fmt.Println(errors.Is(err, keyfunc.ErrNoKey))
	fmt.Println(key.Resolve(r.WithContext(context.WithValue(r.Context(), userID{}, "alice"))))
	// Output:
	// true
	// alice <nil>
}

// Clients without an API key are counted by address. The number says which key it
// was, so no API key can be an address.
func ExampleFirst() {
	key := keyfunc.First(keyfunc.APIKey("X-API-Key"), keyfunc.IP)
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "203.0.113.9:4711"
	fmt.Println(key.Resolve(r))
	// Output: 2:203.0.113.9 <nil>
}

// Each address of each tenant has a count. The lengths keep two pairs from becoming
// one key.
func ExampleJoin() {
	key := keyfunc.Join(keyfunc.Header("X-Tenant"), keyfunc.IP)
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "203.0.113.9:4711"
	r.Header.Set("X-Tenant", "acme")
	fmt.Println(key.Resolve(r))
	// Output: 4:acme,11:203.0.113.9 <nil>
}

// A rule for users leaves out who is none.
func ExampleOptional() {
	key := keyfunc.Optional(keyfunc.APIKey("X-API-Key"))
	_, err := key.Resolve(httptest.NewRequest(http.MethodGet, "/", nil))
	fmt.Println(errors.Is(err, keyfunc.ErrSkip))
	// Output: true
}

// A request without a key is refused, and charged by the other rules.
func ExampleRequired() {
	key := keyfunc.Required(keyfunc.APIKey("Authorization"), http.StatusUnauthorized)
	_, err := key.Resolve(httptest.NewRequest(http.MethodGet, "/", nil))
	if refused, ok := errors.AsType[*keyfunc.StatusError](err); ok {
		fmt.Println(refused.Status, http.StatusText(refused.Status))
	}
	// Output: 401 Unauthorized
}

// Nobody who reads the store finds out the address of an account.
func ExampleHashed() {
	secret := []byte("16 random bytes, or more, from a secret store")
	key := keyfunc.Hashed(keyfunc.BodyJSON("email", 8<<10), secret)

	r := httptest.NewRequest(http.MethodPost, "/login", strings.NewReader(`{"email": "Alice@example.com"}`))
	r.Header.Set("Content-Type", "application/json")
	fmt.Println(key.Resolve(r))
	// Output: hash:AbWoJyclx4G_FZHX8-aDfA <nil>
}

// The account of a login is a field of its form.
func ExampleBodyForm() {
	key := keyfunc.BodyForm("email", 8<<10)

	r := httptest.NewRequest(http.MethodPost, "/login", strings.NewReader("email=+Alice%40example.com&password=secret"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	fmt.Println(key.Resolve(r))
	fmt.Println(r.FormValue("password")) // the handler reads the body all the same
	// Output:
	// alice@example.com <nil>
	// secret
}

// The key is the route's pattern, never the path, which clients choose.
func ExampleMux() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /users/{id}", func(http.ResponseWriter, *http.Request) {})
	key := keyfunc.Mux(mux)

	fmt.Println(key.Resolve(httptest.NewRequest(http.MethodGet, "/users/4711", nil)))
	fmt.Println(key.Resolve(httptest.NewRequest(http.MethodGet, "/users//4711", nil))) // no other spelling has another
	// Output:
	// GET /users/{id} <nil>
	// GET /users/{id} <nil>
}

// A limiter around a chi router counts by route. The function looks the route up as chi
// will: by the path that StripSlashes has left and, as GetHead does, for HEAD by GET.
func ExampleRoute_chi() {
	router := chi.NewRouter()
	route := keyfunc.Route(func(r *http.Request) string {
		path := cmp.Or(r.URL.RawPath, r.URL.Path)
		if c := chi.RouteContext(r.Context()); c != nil {
			path = cmp.Or(c.RoutePath, path)
		}
		found := router.Find(chi.NewRouteContext(), r.Method, path)
		if found == "" && r.Method == http.MethodHead {
			found = router.Find(chi.NewRouteContext(), http.MethodGet, path)
		}
		return found
	})
	limit := func(next http.Handler) http.Handler { // in place of a Middleware
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Println(route.Resolve(r))
			next.ServeHTTP(w, r)
		})
	}
	router.Use(middleware.StripSlashes, limit, middleware.GetHead)
	router.Get("/users/{id}", func(http.ResponseWriter, *http.Request) {})
	router.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/users/1", nil))
	router.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/users/2/", nil))
	router.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodHead, "/users/3", nil))
	// Output:
	// /users/{id} <nil>
	// /users/{id} <nil>
	// /users/{id} <nil>
}

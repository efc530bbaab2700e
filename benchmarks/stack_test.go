package benchmarks

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// clients is how many clients send requests, each with its own address and user.
const clients = 10_000

// The limits of the standard stack: one that all requests of a measurement fit
// into. A bucket that refills slowly is never full, so that none takes the
// shorter way of a key that has become like new.
var (
	perIP       = algorithms.Limit{Rate: 1_000_000, Period: time.Minute}
	perUser     = algorithms.Limit{Rate: 700, Period: time.Minute, Burst: 1_000_000, Algorithm: algorithms.TokenBucket}
	perEndpoint = algorithms.Limit{Rate: 900_000, Period: time.Minute, Algorithm: algorithms.FixedWindow}
)

// standard is the standard stack: a limit per address, one per user, one per
// address on an endpoint.
func standard() []ratelimit.Rule {
	return []ratelimit.Rule{
		{Name: "ip", Key: keyfunc.IP, Limit: perIP},
		{Name: "user", Key: keyfunc.Context(userOf), Limit: perUser},
		{Name: "search", Match: []string{"GET /search"}, Key: keyfunc.IP, Limit: perEndpoint},
	}
}

type userKey struct{}

// userOf stands for the authentication in front of the limits.
func userOf(ctx context.Context) (string, bool) {
	c, ok := ctx.Value(userKey{}).(*caller)
	return users[c.client], ok
}

var addrs, users = func() (addrs, users [clients]string) {
	for i := range clients {
		addrs[i] = fmt.Sprintf("198.18.%d.%d:40000", i/250, i%250)
		users[i] = fmt.Sprintf("user-%05d", i)
	}
	return addrs, users
}()

// ip is the key of a client's address.
func ip(client int) string { return strings.TrimSuffix(addrs[client], ":40000") }

// A caller sends requests, each as some client, and is what they are answered
// to. It has one request and one header, which are as warm in the processor's
// caches as those that net/http has just read.
type caller struct {
	client  int
	request *http.Request
	header  http.Header
	status  int
}

func newCaller() *caller {
	c := &caller{header: make(http.Header)}
	r := httptest.NewRequest(http.MethodGet, "/search?q=limits", nil)
	r = r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, new(http.Server))) // as net/http does
	c.request = r.WithContext(context.WithValue(r.Context(), userKey{}, c))
	return c
}

func (c *caller) Header() http.Header         { return c.header }
func (c *caller) WriteHeader(status int)      { c.status = status }
func (c *caller) Write(p []byte) (int, error) { return len(p), nil }

func (c *caller) call(h http.Handler, client int) {
	c.client, c.request.RemoteAddr = client, addrs[client]
	clear(c.header)
	h.ServeHTTP(c, c.request)
}

// checks are what the standard stack makes of a client's request.
func checks(client int) []algorithms.Check {
	return []algorithms.Check{
		{Rule: "ip", Key: ip(client), Limit: perIP},
		{Rule: "user", Key: users[client], Limit: perUser},
		{Rule: "search", Key: ip(client), Limit: perEndpoint},
	}
}

var allChecks = func() (all [clients][]algorithms.Check) {
	for i := range all {
		all[i] = checks(i)
	}
	return all
}()

// admitted is the handler behind the limits.
var admitted = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })

func handler(tb testing.TB, c ratelimit.Config) http.Handler {
	tb.Helper()
	m, err := ratelimit.New(c)
	if err != nil {
		tb.Fatal(err)
	}
	return m.Handler(admitted)
}

// serving is the subject that sends requests through a handler.
func serving(h http.Handler, want int) subject {
	return func() func(int) error {
		c := newCaller()
		return func(client int) error {
			c.call(h, client)
			if c.status != want {
				return fmt.Errorf("status %d, want %d", c.status, want)
			}
			return nil
		}
	}
}

// taking is the subject that asks a limiter for the decision alone.
func taking(l algorithms.Limiter) subject {
	return func() func(int) error {
		return func(client int) error {
			d, err := l.Take(context.Background(), allChecks[client]...)
			if err == nil && !d.Allowed {
				err = fmt.Errorf("denied: %+v", d.Results)
			}
			return err
		}
	}
}

// What is measured is three limits and their headers, not less.
func TestStandardStack(t *testing.T) {
	var seen algorithms.Decision
	h := handler(t, ratelimit.Config{
		Limiter: new(algorithms.Memory),
		Rules:   standard(),
		Observe: func(_ *http.Request, d algorithms.Decision) { seen = d },
	})
	c := newCaller()
	c.call(h, 7)
	if c.status != http.StatusNoContent || c.header.Get("X-RateLimit-Remaining") == "" {
		t.Errorf("status %d, headers %v", c.status, c.header)
	}
	want := checks(7)
	if len(seen.Results) != len(want) {
		t.Fatalf("%d results, want %d", len(seen.Results), len(want))
	}
	for i, r := range seen.Results {
		if r.Check.Rule != want[i].Rule || r.Check.Key != want[i].Key || r.Check.Limit != want[i].Limit || r.Charged != 1 {
			t.Errorf("result %d: %+v, want one unit of %+v", i, r, want[i])
		}
	}
}

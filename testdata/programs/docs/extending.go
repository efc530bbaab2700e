package docs

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// A subdomain is a Key: the customer in customer.example.com.
type subdomain struct{ domain string }

func (k subdomain) Resolve(r *http.Request) (string, error) {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name // otherwise :443 would be another key
	}
	customer, ok := strings.CutSuffix(strings.TrimSuffix(strings.ToLower(host), "."), "."+k.domain)
	if !ok || customer == "" {
		return "", keyfunc.ErrNoKey
	}
	return customer, nil
}

func (k subdomain) String() string { return "subdomain of " + k.domain } // shown in lists of rules

// Keys turns what an operator types for a client into its keys: Acme into acme.
func (k subdomain) Keys(values ...string) ([]string, error) {
	if strings.Contains(values[0], ".") {
		return nil, errors.New("write the subdomain alone, such as acme")
	}
	return []string{strings.ToLower(values[0])}, nil
}
func (k subdomain) Values() int     { return 1 }     // Keys takes one value
func (k subdomain) Secret() bool    { return false } // values may be shown
func (k subdomain) ReadsBody() bool { return false }

func (k subdomain) Validate() error {
	if k.domain == "" {
		return errors.New("subdomain: no domain; write one such as example.com")
	}
	return nil
}

// slow is a Writer: it tells a client which limit the client has used up.
func slow(h http.Header, d ratelimit.Decision) {
	if t, ok := d.Tightest(); ok && t.Remaining == 0 {
		h.Set("X-Slow-Down", t.Check.Rule)
	}
}

// counted is a decorator: it counts the requests that its Limiter denies.
type counted struct {
	algorithms.Limiter
	denied atomic.Int64
}

func (c *counted) Take(ctx context.Context, checks ...algorithms.Check) (ratelimit.Decision, error) {
	d, err := c.Limiter.Take(ctx, checks...)
	if err == nil && !d.Allowed {
		c.denied.Add(1)
	}
	return d, err
}

func (c *counted) Unwrap() algorithms.Limiter { return c.Limiter } // New asks for it

func ownParts(guard *failmode.Guard) (*ratelimit.Middleware, error) {
	return ratelimit.New(ratelimit.Config{
		Limiter: &counted{Limiter: guard},
		Headers: slow,
		Rules:   []ratelimit.Rule{{Name: "customer", Key: subdomain{"example.com"}, Limit: ratelimit.PerMinute(1000)}},
	})
}

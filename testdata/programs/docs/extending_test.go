package docs

import (
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
)

func TestCountedDecidesAsAMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, memory := &counted{Limiter: new(algorithms.Memory)}, new(algorithms.Memory)
		for n := range int64(100) {
			check := algorithms.Check{Rule: "r", Key: "k", Limit: algorithms.PerSecond(10), Cost: n % 4}
			got, err := own.Take(t.Context(), check)
			want, _ := memory.Take(t.Context(), check)
			if err != nil || got.Allowed != want.Allowed || got.Results[0].Remaining != want.Results[0].Remaining {
				t.Fatalf("%+v, %v; want %+v", got, err, want)
			}
			time.Sleep(time.Duration(n) * time.Millisecond)
		}
		if own.denied.Load() == 0 {
			t.Error("no denial was counted")
		}
	})
}

func TestSubdomain(t *testing.T) {
	for _, host := range []string{"Shop.example.com", "shop.example.com:443", "shop.example.com."} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = host
		if key, err := (subdomain{"example.com"}).Resolve(r); key != "shop" || err != nil {
			t.Error(host, key, err)
		}
	}
	if name := keyfunc.Describe(subdomain{"example.com"}).String(); name != "subdomain of example.com" {
		t.Error(name)
	}
	if err := keyfunc.Describe(subdomain{}).Validate(); err == nil {
		t.Error("a subdomain without a domain is accepted")
	}
}

// An operator may write a customer's name as the customer does.
func TestOwnParts(t *testing.T) {
	guard := &failmode.Guard{Limiter: &algorithms.Redis{Client: limitertest.Redis(t), Namespace: "own"}}
	defer guard.Close()
	limit, err := ownParts(guard)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.Host = "acme.example.com"
	if d, err := limit.Take(r); err != nil || !d.Allowed {
		t.Error(d, err)
	}
	for _, values := range [][]string{nil, {"acme", "shop"}, {"acme.example.com"}} {
		if checks, err := limit.Checks("customer", values...); err == nil {
			t.Errorf("%q: %v", values, checks)
		}
	}
	checks, err := limit.Checks("customer", "Acme")
	if err != nil {
		t.Fatal(err)
	}
	if d, err := guard.Peek(t.Context(), checks...); err != nil || d.Results[0].Remaining != 999 {
		t.Errorf("%+v, %v", d, err)
	}
}

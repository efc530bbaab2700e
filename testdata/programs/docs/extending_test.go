package docs

import (
	"net/http/httptest"
	"testing"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
)

func TestCountedKeepsTheContract(t *testing.T) {
	limitertest.Run(t, func(*testing.T) limitertest.Subject {
		return limitertest.Subject{Limiter: &counted{Limiter: new(algorithms.Memory)}}
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
}

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
	r := httptest.NewRequest("GET", "http://Shop.example.com/", nil)
	if key, err := (subdomain{"example.com"}).Resolve(r); key != "shop" || err != nil {
		t.Error(key, err)
	}
}

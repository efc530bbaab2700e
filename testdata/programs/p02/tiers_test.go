package p02

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
)

func TestPlans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := &failmode.Guard{Limiter: new(algorithms.Memory), Instances: 1}
		defer guard.Close()
		plans := map[string]string{"key-of-pro": "pro", "key-of-staff": "internal", "key-of-old": "platinum"}
		limit, err := limits(guard, keyfunc.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}, func(key string) string { return plans[key] })
		if err != nil {
			t.Fatal(err)
		}
		h := limit.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for _, tt := range []struct{ line, path, key, ip, want string }{
			{"POST", "/reports", "", "203.0.113.1", "50/60"}, // an expensive endpoint, in the same count
			{"GET", "/a", "", "203.0.113.1", "49/60"},
			{"GET", "/a", "", "203.0.113.2", "59/60"},
			{"GET", "/a", "key-of-pro", "203.0.113.1", "999/1000"},
			{"GET", "/export/csv", "key-of-pro", "203.0.113.3", "989/1000"},
			{"GET", "/a", "key-of-old", "203.0.113.1", "59/60"}, // a plan that nobody knows
			{"GET", "/a", "invented", "203.0.113.1", "59/60"},
			{"GET", "/a", "key-of-staff", "203.0.113.4", "1999/2000"}, // only the flood's limit
			{"GET", "/healthz", "", "203.0.113.1", "/"},
			{"OPTIONS", "/a", "", "203.0.113.1", "/"},
		} {
			r := httptest.NewRequest(tt.line, tt.path, nil)
			r.Header.Set("X-Forwarded-For", tt.ip)
			if tt.key != "" {
				r.Header.Set("X-API-Key", tt.key)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if got := w.Header().Get("X-RateLimit-Remaining") + "/" + w.Header().Get("X-RateLimit-Limit"); got != tt.want {
				t.Errorf("%s %s as %q from %s: %s, want %s", tt.line, tt.path, tt.key, tt.ip, got, tt.want)
			}
		}
	})
}

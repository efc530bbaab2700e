package headers_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
)

var writers = []struct {
	name  string
	write headers.Writer
}{
	{"XRateLimit", headers.XRateLimit},
	{"IETFDraft11", headers.IETFDraft11},
	{"both", headers.All(headers.XRateLimit, headers.IETFDraft11)},
}

func threeRules() algorithms.Decision {
	d := decision(
		result("per-ip", algorithms.PerMinute(200), 150, time.Minute),
		result("per-user", algorithms.Limit{Rate: 100, Period: time.Minute, Burst: 150, Algorithm: algorithms.TokenBucket}, 70, 48*time.Second),
		result("login", algorithms.PerMinute(5), 3, 42*time.Second))
	d.Results[0].Check.Key, d.Results[1].Check.Key, d.Results[2].Check.Key = "203.0.113.9", "alice", "203.0.113.9"
	return d
}

func TestWritersAllocateLittle(t *testing.T) {
	admitted := threeRules()
	over := threeRules()
	over.Allowed, over.Results[2] = false, denied(over.Results[2], 5*time.Second)
	for _, w := range writers {
		for name, d := range map[string]algorithms.Decision{"admitted": admitted, "denied": over} {
			if n := testing.AllocsPerRun(100, func() { w.write(http.Header{}, d) }); n > 6 {
				t.Errorf("%s, %s: %g allocations, want at most 6", w.name, name, n)
			}
		}
	}
}

func TestADenialAllocatesLittle(t *testing.T) {
	d := threeRules()
	d.Allowed, d.Results[2] = false, denied(d.Results[2], 5*time.Second)
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")
	w := &sink{header: http.Header{}}
	// Retry-After, Vary, the other fields together, and the body.
	if n := testing.AllocsPerRun(100, func() { clear(w.header); headers.Deny(w, r, d) }); n > 4 {
		t.Errorf("%g allocations, want at most 4", n)
	}
	if w.status != http.StatusTooManyRequests || w.size == 0 {
		t.Errorf("%d, %d bytes", w.status, w.size)
	}
}

func TestMergingWhatStaysAllocatesNothing(t *testing.T) {
	h, d := http.Header{}, threeRules()
	headers.XRateLimit(h, d)
	if n := testing.AllocsPerRun(100, func() { headers.XRateLimit(h, d) }); n > 0 {
		t.Errorf("%g allocations", n)
	}
}

// A sink is a ResponseWriter whose header can be used again.
type sink struct {
	header http.Header
	status int
	size   int
}

func (s *sink) Header() http.Header { return s.header }

func (s *sink) WriteHeader(status int) { s.status = status }

func (s *sink) Write(p []byte) (int, error) { s.size += len(p); return len(p), nil }

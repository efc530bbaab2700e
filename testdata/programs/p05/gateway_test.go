package p05

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// A chatty connection has so many messages.
type chatty struct {
	messages, read int
	closed         string
}

func (c *chatty) Read() ([]byte, error) {
	if c.messages--; c.messages < 0 {
		return nil, errors.New("closed")
	}
	c.read++
	return nil, nil
}

func (c *chatty) Close(reason string) error { c.closed, c.messages = reason, 0; return nil }

// Clients see one set of headers, the tighter; the upstream's rule is hidden; events
// are flushed as they come; and messages are counted one by one.
func TestGateway(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-RateLimit-Limit", "9")
		w.Header().Set("X-RateLimit-Remaining", "3")
		w.Header().Set("X-RateLimit-Reset", "2000000000")
		fmt.Fprint(w, "data: 1\n\n")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
	}))
	defer upstream.Close()
	to, _ := url.Parse(upstream.URL)
	guard := &failmode.Guard{Limiter: new(algorithms.Memory), Instances: 1}
	defer guard.Close()
	c := &chatty{messages: 10_000}
	h, err := gateway(guard, keyfunc.IP, map[string]*url.URL{"shop": to}, func(http.ResponseWriter, *http.Request) (conn, error) { return c, nil })
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/shop/items", nil))
	if got := strings.Join(w.Header().Values("X-RateLimit-Remaining"), ", "); w.Code != 200 || got != "3" || !w.Flushed {
		t.Errorf("%d, remaining %s, flushed %v", w.Code, got, w.Flushed)
	}
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/ws", nil))
	if !strings.HasPrefix(c.closed, "too many messages; retry in ") || c.read < 21 {
		t.Errorf("%q after %d messages", c.closed, c.read)
	}
}

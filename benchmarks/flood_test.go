package benchmarks

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/redistest"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// usedUp is a limit that one request uses up for a day.
var usedUp = algorithms.Limit{Rate: 1, Period: 24 * time.Hour}

// BenchmarkFlood is a request that is denied by the first rule of the standard
// stack, from clients that were denied before, beside a handler that writes the
// same answer and beside redis_rate, which is asked only for the limit that denies.
func BenchmarkFlood(b *testing.B) {
	server := redistest.Start(b)
	client := server.Client(b)
	var outages bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&outages, nil))
	guard := &failmode.Guard{Limiter: &algorithms.Redis{Client: client, Namespace: "flood", Budget: patience}, Instances: 1, Logger: logger}
	b.Cleanup(func() { _ = guard.Close() })
	rules := standard()
	rules[0].Limit = usedUp
	h := handler(b, ratelimit.Config{Limiter: guard, Rules: rules, Logger: logger, DenialLogRate: -1})
	warm(b, serving(h, http.StatusNoContent))
	subjects := []struct {
		name string
		subject
	}{
		{"handler", serving(h, http.StatusTooManyRequests)},
		{"written", serving(written(b, h), http.StatusTooManyRequests)},
		{"take", denying(guard)},
		{"redis_rate", refusing(redis_rate.NewLimiter(client))},
	}
	for _, s := range subjects {
		warm(b, s.subject)
	}
	for _, callers := range callerCounts {
		for _, s := range subjects {
			b.Run(s.name+"/"+callers.name, func(b *testing.B) { measure(b, callers.n, client, s.subject) })
		}
	}
	if outages.Len() > 0 {
		b.Fatalf("some was decided without Redis:\n%s", outages.String())
	}
}

// written returns a handler that does nothing but write what h answers.
func written(b *testing.B, h http.Handler) http.Handler {
	b.Helper()
	c := newCaller()
	var body []byte
	keeping := keeper{c, &body}
	c.client, c.request.RemoteAddr = 0, addrs[0]
	h.ServeHTTP(keeping, c.request)
	if c.status != http.StatusTooManyRequests || len(body) == 0 {
		b.Fatalf("status %d, %q", c.status, body)
	}
	header := c.header.Clone()
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for name, values := range header {
			w.Header().Set(name, values[0])
		}
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write(body)
	})
}

// A keeper keeps what is written.
type keeper struct {
	*caller
	body *[]byte
}

func (r keeper) Write(p []byte) (int, error) {
	*r.body = append(*r.body, p...)
	return len(p), nil
}

// denying is the subject that asks a limiter for the decision alone.
func denying(l algorithms.Limiter) subject {
	return func() func(int) error {
		return func(client int) error {
			checks := [...]algorithms.Check{allChecks[client][0], allChecks[client][1], allChecks[client][2]}
			checks[0].Limit = usedUp
			d, err := l.Take(context.Background(), checks[:]...)
			if err == nil && d.Allowed {
				err = fmt.Errorf("admitted: %+v", d.Results)
			}
			return err
		}
	}
}

// refusing is the subject that asks redis_rate for the limit that denies.
func refusing(l *redis_rate.Limiter) subject {
	limit := redis_rate.Limit{Rate: 1, Burst: 1, Period: usedUp.Period}
	var keys [clients]string
	for client := range keys {
		keys[client] = "flood:ip:" + ip(client)
		_, _ = l.Allow(context.Background(), keys[client], limit) // an error comes again
	}
	return func() func(int) error {
		return func(client int) error {
			res, err := l.Allow(context.Background(), keys[client], limit)
			if err == nil && res.Allowed > 0 {
				err = fmt.Errorf("admitted: %s", keys[client])
			}
			return err
		}
	}
}

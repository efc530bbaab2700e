package outages

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/redistest"
)

// Limiters that are wrong in one way each are found out by an outage: those that
// take too long only where times are asserted, and all others by the first outage
// in which the machine lets Redis decide enough.
func TestWrongLimiters(t *testing.T) {
	store := func(c *redis.Client) *algorithms.Redis {
		return &algorithms.Redis{Client: c, Namespace: namespace, Budget: budget}
	}
	for _, wrong := range []struct {
		name, found string
		timed       bool
		limiter     func(t *testing.T, c *redis.Client) algorithms.Limiter
	}{
		{"every request waits", "so many requests took longer than 10ms", true, func(t *testing.T, c *redis.Client) algorithms.Limiter {
			return patient{guarded(t, store(c), instances), store(c)}
		}},
		{"the budget is too long", "took longer than the budget", true, func(t *testing.T, c *redis.Client) algorithms.Limiter {
			s := store(c)
			s.Budget *= 4
			return guarded(t, s, instances)
		}},
		{"the share is the limit", "admitted more than a limit and a share", false, func(t *testing.T, c *redis.Client) algorithms.Limiter {
			return guarded(t, store(c), 0)
		}},
		{"the outage starts afresh", "admitted without Redis what had used up its limit", false, func(t *testing.T, c *redis.Client) algorithms.Limiter {
			return cold{store(c), guarded(t, new(away), instances)}
		}},
		{"what nobody counts passes", "fail closed admitted what was not counted", false, func(t *testing.T, c *redis.Client) algorithms.Limiter {
			return lenient{guarded(t, store(c), instances)}
		}},
		{"decisions are sent twice", "counted more than was admitted", false, func(t *testing.T, c *redis.Client) algorithms.Limiter {
			return twice{guarded(t, store(c), instances)}
		}},
	} {
		t.Run(wrong.name, func(t *testing.T) {
			if wrong.timed {
				onlyAll(t)
			}
			const tries = 20
			for try := 1; ; try++ {
				v := judgeWrong(t, wrong.limiter)
				var found []string
				for _, p := range slices.Concat(v.broken, v.timely) {
					found = append(found, p.what)
				}
				if strings.Contains(strings.Join(found, "\n"), wrong.found) {
					return
				}
				t.Logf("try %d: found %q", try, found)
				if try == tries {
					t.Fatalf("did not find %q", wrong.found)
				}
			}
		})
	}
}

// judgeWrong is the verdict on a limiter after an outage.
func judgeWrong(t *testing.T, limiter func(*testing.T, *redis.Client) algorithms.Limiter) *verdict {
	srv := redistest.Start(t)
	client := failFast(t, srv.Addr)
	r := load{client: client, limiter: limiter(t, client), rate: 1000, length: 1500 * time.Millisecond}.start(t)
	r.at(250 * time.Millisecond)
	r.outage(func() { srv.Pause(t) })
	r.at(1250 * time.Millisecond)
	r.back(func() { srv.Resume(t) })
	return r.judge(promise{servers: []*redistest.Server{srv}, waits: r.underWay(), back: soon})
}

// guarded is a Guard around a store, until the test ends.
func guarded(t *testing.T, store algorithms.Limiter, instances int) *failmode.Guard {
	g := &failmode.Guard{Limiter: store, Instances: instances, Logger: silent}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

// away is a store that never answers.
type away struct{ algorithms.Memory }

func (*away) Take(context.Context, ...algorithms.Check) (algorithms.Decision, error) {
	return algorithms.Decision{}, context.DeadlineExceeded
}

// cold asks its fallback only when the store is away, so that the fallback knows
// nobody.
type cold struct {
	*algorithms.Redis
	fallback *failmode.Guard
}

func (c cold) Unwrap() algorithms.Limiter { return c.fallback }

func (c cold) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	d, err := c.Redis.Take(ctx, checks...)
	if err != nil {
		return c.fallback.Take(ctx, checks...)
	}
	return d, nil
}

// patient asks its store each time, whatever the circuit is.
type patient struct {
	*failmode.Guard
	store *algorithms.Redis
}

func (p patient) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	_, _ = p.store.Peek(ctx, checks...)
	return p.Guard.Take(ctx, checks...)
}

func (p patient) Unwrap() algorithms.Limiter { return p.Guard }

// lenient admits whatever was not decided.
type lenient struct{ *failmode.Guard }

func (l lenient) Unwrap() algorithms.Limiter { return l.Guard }

func (l lenient) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	d, err := l.Guard.Take(ctx, checks...)
	for i := range d.Results {
		if d.Results[i].Err != nil {
			d.Allowed = true
		}
	}
	return d, err
}

// twice asks again, as a client does that repeats what timed out.
type twice struct{ *failmode.Guard }

func (w twice) Unwrap() algorithms.Limiter { return w.Guard }

func (w twice) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	_, _ = w.Guard.Take(ctx, checks...)
	return w.Guard.Take(ctx, checks...)
}

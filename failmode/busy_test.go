package failmode

import (
	"context"
	"fmt"
	"log/slog"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// A client that makes this process busy must not pass the rules that fail open,
// nor have others refused by those that fail closed. In every mode local counting has
// followed the store.
func TestWhatIsNotDecidedWithoutAnOutageIsCountedLocally(t *testing.T) {
	for what, err := range map[string]error{
		"late":                   fmt.Errorf("no answer: %w", context.DeadlineExceeded),
		"no connection free":     redis.ErrPoolTimeout,
		"a slot that is moving":  answer("TRYAGAIN Multiple keys request during rehashing of slot"),
		"a node that is unknown": answer("MOVED 3999 127.0.0.1:6381"),
		"a foreign value":        fmt.Errorf("redis: %w", transport.ErrForeign),
	} {
		for _, mode := range []Mode{Local, Open, Closed} {
			t.Run(what+", "+mode.String(), func(t *testing.T) {
				s := new(distant)
				f := guarding(t, s)
				for range 3 {
					taken(t, f, check("r", 7, mode))
				}
				s.away.Store(&err)
				allowed := 0
				for range 10 {
					d := taken(t, f, check("r", 7, mode))
					if r := d.Results[0]; r.Source != algorithms.SourceFallback || r.Err != nil {
						t.Errorf("%+v", r)
					}
					if d.Allowed {
						allowed++
					}
				}
				if allowed != 4 {
					t.Errorf("%d admitted, want what is left of 7", allowed)
				}
			})
		}
	}
}

// Whom Redis last denied stays denied until there would have been room, also by
// a rule that fails open; and nobody else is.
func TestAnOutageIsNoAmnesty(t *testing.T) {
	for _, mode := range []Mode{Local, Open, Closed} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Minute - time.Duration(time.Now().UnixNano())%time.Minute)
				s := new(distant)
				f := guarding(t, s)
				f.Instances = 4
				c := algorithms.Check{Rule: "r", Key: "k", Limit: algorithms.Limit{Rate: 20, Period: time.Minute, Algorithm: algorithms.FixedWindow}, Fail: mode}
				c.Key = "used up by others"
				for range 20 {
					taken(t, s, c) // through other instances
				}
				if taken(t, f, c).Allowed {
					t.Fatal("Redis has room")
				}
				half := c
				half.Key = "half used"
				for range 10 {
					taken(t, f, half)
				}

				s.away.Store(&errAway)
				time.Sleep(59 * time.Second)
				d := taken(t, f, c)
				if r := d.Results[0]; d.Allowed || r.Source != algorithms.SourceDenyCache || r.RetryAfter != time.Second {
					t.Errorf("over, in an outage: %+v", r)
				}
				if d := taken(t, f, half); mode == Open && !d.Allowed {
					t.Errorf("Redis had room, so an open rule has too: %+v", d)
				}
				time.Sleep(time.Second)
				if d := taken(t, f, c); d.Allowed != (mode != Closed) {
					t.Errorf("in the next window: %+v", d)
				}
			})
		})
	}
}

// Until a probe is answered, a decision without an answer is counted here, and one that
// is answered with an error follows its mode. A good probe clears the store: the error was
// the key's. A bad one opens the circuit.
func TestUntilTheProbeIsAnswered(t *testing.T) {
	for what, c := range map[string]struct {
		err    error
		before algorithms.Source // that decides a check in mode Closed
	}{
		"no answer":          {context.DeadlineExceeded, algorithms.SourceFallback},
		"an error":           {answer("WRONGTYPE Operation against a key holding the wrong kind of value"), algorithms.SourceFailClosed},
		"connection refused": {syscall.ECONNREFUSED, algorithms.SourceFailClosed},
	} {
		for _, well := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, well %v", what, well), func(t *testing.T) {
				circuits(t, func(t *testing.T, g *Guard, n *nodes, _ *logbook) {
					c0 := on(0)
					c0.Fail = Closed
					after := algorithms.SourceFallback
					if n.key, n.probing = c.err, 10*time.Millisecond; !well {
						n.probeErr, after = c.err, algorithms.SourceFailClosed
					}
					for range 5 {
						if r := taken(t, g, c0).Results[0]; r.Source != c.before {
							t.Errorf("before: decided by %s, want %s", r.Source, c.before)
						}
					}
					time.Sleep(10 * time.Millisecond)
					synctest.Wait()
					for range 3 {
						if r := taken(t, g, c0).Results[0]; r.Source != after {
							t.Errorf("after: decided by %s, want %s", r.Source, after)
						}
					}
					if n := n.probed[0].Load(); n != 1 {
						t.Errorf("%d probes", n)
					}
				})
			})
		}
	}
}

// What this process had no room to send says nothing of the store.
func TestABusyProcessSendsNoProbe(t *testing.T) {
	circuits(t, func(t *testing.T, g *Guard, n *nodes, _ *logbook) {
		n.set(0, redis.ErrPoolTimeout, 0)
		askFor(g, 1000, on(0))
		if s := g.monitor.States()[0]; s.Opened > 0 || n.probed[0].Load() > 0 {
			t.Errorf("%+v, %d probes", s, n.probed[0].Load())
		}
	})
}

// heeding is a store of the user's own: it returns when its caller's context ends.
type heeding struct {
	algorithms.Memory
	takes time.Duration
}

func (s *heeding) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	select {
	case <-time.After(s.takes):
		return s.Memory.Take(ctx, checks...)
	case <-ctx.Done():
		return algorithms.Decision{}, context.Cause(ctx)
	}
}

// Clients that hang up, or whose deadline is near, are counted; they neither pass
// the rules that fail open nor open a circuit for everybody.
func TestClientsThatHangUpAreNoOutage(t *testing.T) {
	for name, end := range map[string]func() (context.Context, context.CancelFunc){
		"hung up": func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return ctx, cancel
		},
		"out of time": func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &Guard{Limiter: &heeding{takes: 5 * time.Millisecond}, Instances: 1, Logger: slog.New(slog.DiscardHandler)}
				defer g.Close()
				allowed := 0
				for range 30 {
					ctx, cancel := end()
					d, err := g.Take(ctx, check("r", 4, Open))
					cancel()
					if err != nil {
						t.Fatal(err)
					}
					if d.Allowed {
						allowed++
					}
				}
				if down := down(g); len(down) > 0 {
					t.Errorf("the circuit of %v is open", down)
				}
				if allowed != 4 {
					t.Errorf("%d admitted, want 4", allowed)
				}
			})
		})
	}
}

package outages

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/rated"
	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/internal/step"
)

// A server's clock that steps changes neither how much is admitted beyond one
// limit nor for how long somebody is denied beyond a period and the step.
func TestClockSteps(t *testing.T) {
	onlyAll(t)
	for _, step := range []time.Duration{time.Hour, -time.Second, -time.Hour} {
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			srv, clock := redistest.StartWithClock(t)
			r := load{client: failFast(t, srv.Addr), length: 3 * time.Second}.start(t)
			took := r.takeMinutes(t)
			offset := time.Duration(0)
			for after := time.Duration(0); after < r.length; after += time.Millisecond {
				r.at(after)
				if after == time.Second {
					offset = step
				}
				clock.Set(time.Now().Add(offset))
			}
			minutes := took()
			for _, m := range minutes {
				most := m.limit.Quota() + m.limit.Rate*int64(time.Since(r.begin))/int64(m.limit.Period)
				if step > 0 || m.limit.Algorithm == algorithms.FixedWindow {
					most += m.limit.Quota() // an hour later, and in the next minute, everything is free again
				}
				if m.admitted > most+1 {
					t.Errorf("%s: admitted %d, want at most %d", m.limit, m.admitted, most+1)
				}
				if longest := m.limit.Period + max(-step, 0); m.wait > longest || step == -time.Hour && m.wait > 2*m.limit.Period {
					t.Errorf("%s: denied for %v", m.limit, m.wait)
				}
			}
			r.check(promise{
				row:     row{14, fmt.Sprintf("Redis' clock steps by %v", step)},
				servers: []*redistest.Server{srv},
				waits:   r.strays(),
			})
		})
	}
}

// A minute is a limit whose state the clock's step changes, and what became of
// a client that always wants more.
type minute struct {
	limit    algorithms.Limit
	admitted int64         // by Redis
	wait     time.Duration // the longest RetryAfter
}

// takeMinutes asks for units of such limits as long as the load lasts. The
// returned function waits for that.
func (r *run) takeMinutes(t *testing.T) (wait func() []minute) {
	var minutes []minute
	for _, row := range rated.Without(func(row step.Row) bool { return row.Queue }) {
		l := algorithms.PerMinute(60)
		l.Algorithm = algorithms.Algorithm(row.Number)
		minutes = append(minutes, minute{limit: l})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for after := time.Duration(0); after < r.length && sleepUntil(t.Context(), r.begin.Add(after)); after += 10 * time.Millisecond {
			for i := range minutes {
				m := &minutes[i]
				d, err := r.limiter.Take(t.Context(), algorithms.Check{Rule: "minute", Key: "greedy", Limit: m.limit, Fail: failmode.Closed})
				if err != nil {
					t.Error(err)
					return
				}
				switch res := d.Results[0]; {
				case res.Source != algorithms.SourceRedis: // it was late, or Redis has denied it before
				case d.Allowed:
					m.admitted++
				default:
					m.wait = max(m.wait, res.RetryAfter)
				}
			}
		}
	}()
	return func() []minute { <-done; return minutes }
}

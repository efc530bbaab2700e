// Package shed keeps a server useful when it gets more requests than it can answer: it
// bounds how many are worked on at once, and refuses the least important of the others.
// It counts in this process only. A rate limit bounds the requests of each client. A
// Shedder bounds the requests of all clients together to what the server can handle.
package shed

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/internal/given"
	"github.com/seed75154129/ratelimit/internal/histogram"
	"github.com/seed75154129/ratelimit/internal/sampler"
)

// A Shedder bounds how many requests this process works on at once, and refuses the least
// important ones when more come. The zero value is ready. It starts no goroutine, and is
// safe for concurrent use; its fields must not change once it is in use. Make one Shedder
// for each process and share it among its servers: several Shedders compete for the same
// processor.
//
// A request is at work until its handler returns. There are three exceptions:
//
//   - A response that is flushed or hijacked is a stream from then on, and no longer
//     counts.
//   - If other requests wait for a place, a handler that is waiting for its client, in a
//     Read of the body or a Write, and has done so for 50 ms in all, does not count until
//     the client continues. Then the Read or Write returns once there is a place again.
//     After 30 s without one, a Read fails and a Write goes on. If another goroutine reads the body, as that of
//     httputil.ReverseProxy does, the handler may be at work meanwhile, and so may be more
//     than the limit: read the whole body before.
//   - If the Shedder is outside an [http.TimeoutHandler], a handler counts only until the
//     timeout, even if it runs on after that. Put the Shedder inside.
type Shedder struct {
	// Priority says how important a request is; nil means all are Medium. The function
	// must not trust what a client can write, such as an unverified header. It is called
	// once per request, on the request's goroutine.
	Priority func(*http.Request) Priority

	// Min and Max bound the limit of requests at work; 0 means max(8, 2·GOMAXPROCS) for
	// Min and 1000 for Max. The limit begins at 20, or at the nearest value between Min
	// and Max. It moves between them by how latency and throughput respond to its moves.
	// Min = Max fixes the limit, which is best if the size of the bottleneck is known,
	// such as a pool of database connections.
	Min, Max int

	// Wait is how long a request may wait for a place; 0 means 100 ms, negative means that
	// none waits, below 1 ms is an error. At most as many requests wait as may be at work.
	Wait time.Duration

	// Shadow decides and counts, but no request waits and none is refused. Begin with it.
	// In an overload, more requests are counted as refused than without Shadow, because
	// the requests that Shadow lets pass make all others slower.
	Shadow bool

	// Overloaded responds to a request that is shed; nil means status 503 by
	// headers.Deny, with the problem type temporary-reduced-capacity. Retry-After, 1 to
	// 3 s, and Cache-Control are already set.
	Overloaded http.Handler

	// Logger receives how many requests were shed, at most every 10 s; nil means
	// slog.Default().
	Logger *slog.Logger

	mu         sync.Mutex
	start      time.Time // of the clock
	working    []*slot
	line       line
	parked     int           // those that come back are in line, too
	looked     time.Duration // when it was last looked for handlers to park
	limit      limit
	shed       [levels][reasons]uint64
	unreported atomic.Uint64 // of these
	waits      *histogram.Histogram

	said, saidSlow sampler.Sampler // to the log
}

// A Priority says how important a request is: [Low], [Medium], [High] or [Critical]. All
// waiting requests of a higher priority get a place before any of a lower one.
type Priority int8

// The priorities. Any other value counts as the nearest of these.
const (
	Low      Priority = -1
	Medium   Priority = 0
	High     Priority = 1
	Critical Priority = 2
)

var levelNames = [levels]string{"low", "medium", "high", "critical"}

const levels = int(Critical-Low) + 1

func (p Priority) level() int { return int(min(max(p, Low), Critical) - Low) }

// Why a request is shed.
const (
	queueFull = iota // as many wait that are as important or more
	waited           // there was no place in Wait
	reasons
)

var reasonNames = [reasons]string{"queue_full", "waited"}

// lock locks the Shedder, makes it ready, and returns the time.
func (s *Shedder) lock() time.Duration {
	s.mu.Lock()
	if s.waits == nil {
		s.waits = histogram.New(histogram.Latencies)
		s.start = time.Now().Add(-time.Second) // so that 0 is never
		s.limit.min = cmp.Or(s.Min, min(max(8, 2*runtime.GOMAXPROCS(0)), cmp.Or(s.Max, 1000)))
		s.limit.max = max(cmp.Or(s.Max, 1000), s.limit.min)
		s.limit.at = float64(min(max(20, s.limit.min), s.limit.max))
		s.limit.begun = time.Second
		s.said.Every, s.saidSlow.Every = sampler.LogInterval, time.Hour
	}
	return s.now()
}

// now is the time since a second before the Shedder was ready.
func (s *Shedder) now() time.Duration { return time.Since(s.start) }

// Handler returns a handler that calls next for requests that have a place, and answers
// the others. It goes inside what Priority relies on, such as authentication, and outside the
// limiter, so that what is shed is charged nothing. Put it inside the limiter if a rule is a
// leaky_bucket, whose requests would keep their places while they wait. Handler panics if next
// is nil, or if fields are out of range.
func (s *Shedder) Handler(next http.Handler) http.Handler {
	if f, ok := next.(http.HandlerFunc); next == nil || ok && f == nil {
		panic("shed: Handler: the next handler is nil")
	}
	if err := s.validate(); err != nil {
		panic(err.Error())
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Value(s) != nil { // it has a place, by a Handler in front
			next.ServeHTTP(w, r)
			return
		}
		p, ok := s.enter(r)
		if !ok {
			s.refuse(w, r)
			return
		}
		served := false
		defer func() { p.leave(served) }()
		next.ServeHTTP(p.watch(w, r))
		served = true
	})
}

func (s *Shedder) validate() error {
	var errs []error
	if s.Min < 0 || s.Max < 0 || s.Min > s.Max && s.Max > 0 {
		errs = append(errs, fmt.Errorf("shed: Min and Max must not be negative, nor Min above Max; got %d and %d", s.Min, s.Max))
	}
	if err := given.TooShort("Wait", s.Wait, time.Millisecond); s.Wait > 0 && err != nil {
		errs = append(errs, fmt.Errorf("shed: %w", err))
	}
	return errors.Join(errs...)
}

var errOverloaded = errors.New("overloaded")

// refuse answers what is shed. The wait is spread, so that clients do not come back
// together.
func (s *Shedder) refuse(w http.ResponseWriter, r *http.Request) {
	d := algorithms.Decision{Results: []algorithms.Result{{Err: errOverloaded, RetryAfter: time.Duration(1+rand.IntN(3)) * time.Second}}} //nolint:gosec // no secret
	if s.Overloaded == nil {
		headers.Deny(w, r, d)
		return
	}
	headers.SetRetryAfter(w.Header(), d)
	w.Header().Set("Cache-Control", "no-store")
	s.Overloaded.ServeHTTP(w, r)
}

// Load returns the number of requests at work and waiting, divided by the limit: at 1, all
// places are taken.
func (s *Shedder) Load() float64 {
	s.expire(s.lock())
	defer s.mu.Unlock()
	return float64(len(s.working)+len(s.line.all)) / float64(int(s.limit.at))
}

// Metrics yields what the Shedder has counted.
func (s *Shedder) Metrics() iter.Seq[algorithms.Metric] {
	return func(yield func(algorithms.Metric) bool) {
		s.expire(s.lock())
		all := []algorithms.Metric{
			{Name: "ratelimit_shed_limit", Value: float64(int(s.limit.at))},
			{Name: "ratelimit_shed_working", Value: float64(len(s.working))},
			{Name: "ratelimit_shed_waiting", Value: float64(len(s.line.all) - s.line.back)},
			{Name: "ratelimit_shed_parked", Value: float64(s.parked)},
			s.waits.Metric("ratelimit_shed_wait_seconds"),
		}
		for level, counts := range s.shed {
			for reason, n := range counts {
				all = append(all, algorithms.Metric{
					Name: "ratelimit_shed_total", Labels: []string{"priority", levelNames[level], "reason", reasonNames[reason]}, Value: float64(n),
				})
			}
		}
		s.mu.Unlock()
		for _, m := range all {
			if !yield(m) {
				return
			}
		}
	}
}

// Package shed keeps a server useful when it gets more requests than it can answer: it
// bounds how many are worked on at once, and refuses the least important of the others.
// It counts in this process only. A rate limit bounds the requests of each client. A
// Shedder bounds the requests of all clients together to what the server can handle.
package shed

import (
	"cmp"
	"container/list"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/histogram"
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
//   - If other requests wait for a place, a handler that has waited 50 ms for its client,
//     in a Read of the body or a Write, does not count until the client continues. Then
//     the Read or Write returns once there is a place again, after 30 s at the latest.
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

	mu      sync.Mutex
	start   time.Time // of the clock
	working []*slot
	queues  queues
	parked  int
	looked  time.Duration // when it was last looked for handlers to park
	limit   limit
	shed    [levels][reasons]uint64
	waits   *histogram.Histogram

	unreported int           // requests that were shed
	reported   time.Duration // when it was last logged
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

// A slot is a request's place among those at work. A nil slot is that of a request which
// has one already.
type slot struct {
	shedder *Shedder
	level   int
	blocked atomic.Int64 // since when it has waited for its client; 0 if it does not, isParked if it lost its place

	// Guarded by shedder.mu.
	phase    phase
	arrived  time.Duration
	admitted time.Duration
	at       int // in shedder.working
	queued   *list.Element
	turn     chan bool // says whether it was admitted; nil in shadow
	paused   bool      // it has waited in the middle of its work, so its duration says nothing

	// In shadow, a request that is over keeps its place for as long as it would have.
	took time.Duration // once it is over
	ends time.Duration // its place; 0 if that is not known yet

	status int
	ctx    slotContext
	body   body
	writer writer
}

type phase uint8

const (
	waiting   phase = iota
	working         // counts towards the limit
	parked          // waits for its client
	returning       // waits for a place to go on
	gone            // is not counted: a stream, shed, or over
)

// isParked in blocked says that the slot has lost its place meanwhile.
const isParked = -1

// A slotContext lets a Shedder find the place that a request has.
type slotContext struct {
	context.Context
	slot *slot
}

type slotKey struct{ of *Shedder }

// Value implements [context.Context].
func (c *slotContext) Value(key any) any {
	if key == (slotKey{c.slot.shedder}) {
		return c.slot
	}
	return c.Context.Value(key)
}

// String implements [fmt.Stringer], as other contexts do: printing a request must not
// read what others may be changing.
func (c *slotContext) String() string { return fmt.Sprintf("%v.WithValue(ratelimit.slot)", c.Context) }

// queues are the requests that wait for a place. Of each level there are those that have
// arrived, and those that come back, which go first: they hold memory, and perhaps locks.
type queues struct {
	of   [2 * levels]list.List
	back int // those that come back
	new  int // the others
}

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
	}
	return s.now()
}

// now is the time since a second before the Shedder was ready.
func (s *Shedder) now() time.Duration { return time.Since(s.start) }

// Load returns the number of requests at work and waiting, divided by the limit: at 1, all
// places are taken.
func (s *Shedder) Load() float64 {
	s.expire(s.lock())
	defer s.mu.Unlock()
	return float64(len(s.working)+s.queues.new+s.queues.back) / float64(int(s.limit.at))
}

// Metrics yields what the Shedder has counted.
func (s *Shedder) Metrics() iter.Seq[algorithms.Metric] {
	return func(yield func(algorithms.Metric) bool) {
		s.expire(s.lock())
		all := []algorithms.Metric{
			{Name: "ratelimit_shed_limit", Value: float64(int(s.limit.at))},
			{Name: "ratelimit_shed_working", Value: float64(len(s.working))},
			{Name: "ratelimit_shed_waiting", Value: float64(s.queues.new)},
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

// Package overload simulates a server that gets more requests than it can serve, behind a
// [shed.Shedder] or behind nothing. The tests of package shed assert what it finds, and
// ratelimit lab shows it.
//
// The Shedder and the handlers are real, and only the time is not: Scenario.Run must be called
// in a bubble of testing/synctest.
package overload

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/seed75154129/ratelimit/middleware/shed"
)

// The simulated server: requests wait in the order of their arrival for one of 8 workers,
// and take 50 ms of it, lognormal with σ = 0.5. So it can serve 160 a second.
const (
	Workers = 8
	Service = 0.05 // s
)

// A Scenario is traffic, and what happens to the server.
type Scenario struct {
	Length     time.Duration
	From, To   time.Duration                  // what is measured; To is the length by default
	Load       func(at time.Duration) float64 // of the capacity
	Critical   float64                        // share of requests that are critical; 0 is 3 %
	Streams    float64                        // share of requests that stream for a minute
	Slow       func(at time.Duration) float64 // by how much services are slower
	Dependency bool                           // it is a dependency that is slow: it holds no worker
	Bodies     int                            // clients, 20 a second from a minute on, whose body takes a minute
	Ending     time.Duration                  // when all these bodies end, if it is at once
	Readers    bool                           // these clients are slow to read, not to write
	Workers    int                            // 0 is 8
	Seed       int64
}

// Capacity is how many requests a second the workers can serve.
func (sc *Scenario) Capacity() float64 { return float64(cmp.Or(sc.Workers, Workers)) / Service }

// An Outcome is what a scenario came to.
type Outcome struct {
	N                int
	Shed             float64 // share of requests
	P99, CriticalP99 time.Duration
	Critical         float64 // share of critical requests that were served within a second
	Goodput          float64 // what was served within a second, of what the workers could serve
	Least, Most      float64 // limit
	LastShed         time.Duration

	Requests []Request // what was measured, as it ended
	Seconds  []Second
}

// A Request is what became of one.
type Request struct {
	At, Took time.Duration
	Priority shed.Priority
	Shed     bool
}

// InTime says whether the request was served within a second.
func (q Request) InTime() bool { return !q.Shed && q.Took <= time.Second }

// A Second is what the server is like at the first arrival in it.
type Second struct {
	Limit  float64 // 0 without a Shedder
	Inside int     // requests that wait or are at work
}

func (o Outcome) String() string {
	return fmt.Sprintf("%6d requests, %5.1f %% shed, p99 %v, critical %5.1f %% p99 %v, goodput %5.1f %%, limit %v-%v, last shed at %v",
		o.N, 100*o.Shed, o.P99.Round(time.Millisecond), 100*o.Critical, o.CriticalP99.Round(time.Millisecond), 100*o.Goodput, o.Least, o.Most, o.LastShed.Round(time.Second))
}

// Draw makes a number from 0 to 1 a priority. Of a hundred requests 3 are critical, 27 high, 40 medium and 30
// low; of another share of critical requests, the others keep their proportions.
func (sc *Scenario) Draw(u float64) shed.Priority {
	critical := cmp.Or(sc.Critical, .03)
	rest := (1 - critical) / .97
	switch {
	case u < critical:
		return shed.Critical
	case u < critical+.27*rest:
		return shed.High
	case u < critical+.67*rest:
		return shed.Medium
	}
	return shed.Low
}

// A work is what the handler has to do for a request.
type work struct {
	priority shed.Priority
	service  time.Duration
	stream   bool
}

type workKey struct{}

func workOf(r *http.Request) work { return r.Context().Value(workKey{}).(work) }

// A Response is a ResponseWriter whose client is slow to take it.
type Response struct {
	Status  int
	Slow    time.Duration // how long a Write takes
	Flushed func()

	header http.Header
}

// Header returns the header.
func (w *Response) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header)
	}
	return w.header
}

// Flush calls Flushed.
func (w *Response) Flush() { w.Flushed() }

// WriteHeader sets Status.
func (w *Response) WriteHeader(status int) { w.Status = status }

// Write waits.
func (w *Response) Write(p []byte) (int, error) {
	time.Sleep(w.Slow)
	return len(p), nil
}

// A SlowBody ends after a while.
type SlowBody time.Duration

// Read waits, and ends the body.
func (b SlowBody) Read([]byte) (int, error) { time.Sleep(time.Duration(b)); return 0, io.EOF }

// Close does nothing.
func (SlowBody) Close() error { return nil }

// handler is the server.
func (sc *Scenario) handler() http.Handler {
	begin := time.Now()
	pool := make(chan struct{}, cmp.Or(sc.Workers, Workers))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil {
			_, _ = r.Body.Read(nil)
		}
		do := workOf(r)
		factor := 1.0
		if sc.Slow != nil {
			factor = sc.Slow(time.Since(begin))
		}
		pool <- struct{}{}
		if sc.Dependency {
			time.Sleep(do.service)
			<-pool
			time.Sleep(time.Duration(float64(do.service) * (factor - 1)))
		} else {
			time.Sleep(time.Duration(float64(do.service) * factor))
			<-pool
		}
		_, _ = w.Write(nil)
		if do.stream {
			w.(http.Flusher).Flush()
			time.Sleep(time.Minute)
		}
	})
}

// Run simulates a scenario. A nil Shedder refuses nobody; of another one, it sets Priority and Logger.
func (sc Scenario) Run(s *shed.Shedder) (o Outcome) {
	sc.To = cmp.Or(sc.To, sc.Length)
	begin, h := time.Now(), sc.handler()
	if s != nil {
		s.Priority, s.Logger = func(r *http.Request) shed.Priority { return workOf(r).priority }, slog.New(slog.DiscardHandler)
		h = s.Handler(h)
	}
	var (
		mu     sync.Mutex
		inside int
		all    sync.WaitGroup
		random = rand.New(rand.NewSource(7 + sc.Seed))
	)
	send := func(do work, body io.ReadCloser, slow time.Duration, counts bool) {
		at := time.Since(begin)
		mu.Lock()
		inside++
		mu.Unlock()
		all.Go(func() {
			r := (&http.Request{Body: body}).WithContext(context.WithValue(context.Background(), workKey{}, do))
			w := &Response{Slow: slow}
			took := time.Duration(0)
			if do.stream {
				w.Flushed = func() { took = time.Since(begin) - at }
			}
			h.ServeHTTP(w, r)
			if took == 0 {
				took = time.Since(begin) - at
			}
			mu.Lock()
			defer mu.Unlock()
			inside--
			refused := w.Status == http.StatusServiceUnavailable
			if refused {
				o.LastShed = max(o.LastShed, at)
			}
			if counts && at >= sc.From && at < sc.To {
				o.Requests = append(o.Requests, Request{at, took, do.priority, refused})
			}
		})
	}
	second, crowd := time.Duration(0), 0
	for at := time.Duration(0); at < sc.Length; at = time.Since(begin) {
		if at >= second && at >= sc.From && at < sc.To {
			second = at.Truncate(time.Second) + time.Second
			mu.Lock()
			o.Seconds = append(o.Seconds, Second{limitOf(s), inside})
			mu.Unlock()
		}
		for ; crowd < sc.Bodies && at > time.Minute+time.Duration(crowd)*time.Second/20; crowd++ {
			switch {
			case sc.Ending > 0:
				send(work{shed.Low, 50 * time.Millisecond, false}, SlowBody(sc.Ending-at), 0, false)
			case sc.Readers:
				send(work{shed.Low, time.Millisecond, false}, nil, time.Minute, false)
			default:
				send(work{shed.Low, time.Millisecond, false}, SlowBody(time.Minute), 0, false)
			}
		}
		time.Sleep(time.Duration(random.ExpFloat64() / (sc.Load(at) * sc.Capacity()) * 1e9))
		const sigma = 0.5
		priority, seconds := sc.Draw(random.Float64()), Service*math.Exp(sigma*random.NormFloat64()-sigma*sigma/2)
		send(work{priority, time.Duration(seconds * 1e9), random.Float64() < sc.Streams}, nil, 0, true)
	}
	all.Wait()
	o.sum(sc.Capacity() * (sc.To - sc.From).Seconds())
	return o
}

// limitOf is the limit of a Shedder; 0 without one.
func limitOf(s *shed.Shedder) float64 {
	if s != nil {
		for m := range s.Metrics() {
			if m.Name == "ratelimit_shed_limit" {
				return m.Value
			}
		}
	}
	return 0
}

// sum adds up what became of the requests, where the workers could serve so many.
func (o *Outcome) sum(possible float64) {
	var served, critical []time.Duration
	var refused, inTime, criticals, criticalInTime int
	for _, q := range o.Requests {
		isCritical := q.Priority == shed.Critical
		if isCritical {
			criticals++
		}
		if q.Shed {
			refused++
			continue
		}
		served = append(served, q.Took)
		if isCritical {
			critical = append(critical, q.Took)
		}
		if q.InTime() {
			inTime++
			if isCritical {
				criticalInTime++
			}
		}
	}
	o.Least = math.Inf(1)
	for _, second := range o.Seconds {
		o.Least, o.Most = min(o.Least, second.Limit), max(o.Most, second.Limit)
	}
	o.N = len(o.Requests)
	o.Shed = float64(refused) / float64(o.N)
	o.P99, o.CriticalP99 = P99(served), P99(critical)
	o.Critical = float64(criticalInTime) / float64(criticals)
	o.Goodput = float64(inTime) / min(float64(o.N), possible)
}

// P99 sorts durations, and returns the one that 99 % are below; 0 of none.
func P99(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)*99/100]
}

package shed_test

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
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/shed"
)

// The simulated server: requests wait in the order of their arrival for one of 8 workers,
// and take 50 ms of it, lognormal with σ = 0.5. So it can serve 160 a second.
const (
	workers  = 8
	service  = 0.05 // s
	capacity = workers / service
)

// A scenario is traffic, and what happens to the server.
type scenario struct {
	length     time.Duration
	from, to   time.Duration                  // what is measured; to is the length by default
	load       func(at time.Duration) float64 // of the capacity
	streams    float64                        // share of requests that stream for a minute
	slow       func(at time.Duration) float64 // by how much services are slower
	dependency bool                           // it is a dependency that is slow: it holds no worker
	bodies     int                            // clients, 20 a second from a minute on, whose body takes a minute
	ending     time.Duration                  // when all these bodies end, if it is at once
	readers    bool                           // these clients are slow to read, not to write
	workers    int                            // 0 is 8
	seed       int64
}

// An outcome is what a scenario came to.
type outcome struct {
	n                int
	shed             float64 // share of requests
	p99, criticalP99 time.Duration
	critical         float64 // share of critical requests that were served within a second
	goodput          float64 // what was served within a second, of what the workers could serve
	least, most      float64 // limit
	lastShed         time.Duration
}

func (o outcome) String() string {
	return fmt.Sprintf("%6d requests, %5.1f %% shed, p99 %v, critical %5.1f %% p99 %v, goodput %5.1f %%, limit %v-%v, last shed at %v",
		o.n, 100*o.shed, o.p99.Round(time.Millisecond), 100*o.critical, o.criticalP99.Round(time.Millisecond), 100*o.goodput, o.least, o.most, o.lastShed.Round(time.Second))
}

// Of a hundred requests 3 are critical, 27 high, 40 medium and 30 low.
var priorities = map[shed.Priority]http.Header{
	shed.Critical: {"P": {"critical"}}, shed.High: {"P": {"high"}}, shed.Medium: {}, shed.Low: {"P": {"low"}},
}

func draw(u float64) shed.Priority {
	switch {
	case u < .03:
		return shed.Critical
	case u < .3:
		return shed.High
	case u < .7:
		return shed.Medium
	}
	return shed.Low
}

func priorityOf(r *http.Request) shed.Priority {
	switch r.Header.Get("P") {
	case "critical":
		return shed.Critical
	case "high":
		return shed.High
	case "low":
		return shed.Low
	}
	return shed.Medium
}

// A work is what the handler has to do for a request.
type work struct {
	service time.Duration
	stream  bool
}

type workKey struct{}

// A response is what a request got. Its client is slow to take it.
type response struct {
	header http.Header
	status int
	slow   time.Duration

	flushed func()
}

func (w *response) Header() http.Header { return w.header }
func (w *response) Flush()              { w.flushed() }
func (w *response) WriteHeader(s int)   { w.status = s }
func (w *response) Write(p []byte) (int, error) {
	time.Sleep(w.slow)
	return len(p), nil
}

// A slowBody ends after a while.
type slowBody time.Duration

func (b slowBody) Read([]byte) (int, error) { time.Sleep(time.Duration(b)); return 0, io.EOF }
func (b slowBody) Close() error             { return nil }

// simulate runs a scenario in no time. A nil Shedder refuses nobody.
func simulate(t *testing.T, sc scenario, s *shed.Shedder) (o outcome) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { o = sc.run(s) })
	return o
}

func (sc scenario) run(s *shed.Shedder) (o outcome) {
	begin := time.Now()
	pool := make(chan struct{}, cmp.Or(sc.workers, workers))
	h := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil {
			_, _ = r.Body.Read(nil)
		}
		do := r.Context().Value(workKey{}).(work)
		factor := 1.0
		if sc.slow != nil {
			factor = sc.slow(time.Since(begin))
		}
		pool <- struct{}{}
		if sc.dependency {
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
	}))
	if s != nil {
		s.Priority, s.Logger = priorityOf, slog.New(slog.DiscardHandler)
		h = s.Handler(h)
	}
	var (
		mu        sync.Mutex
		all       sync.WaitGroup
		random    = rand.New(rand.NewSource(7 + sc.seed))
		latencies = make(map[bool][]time.Duration) // of what was served, by whether it is critical
		shedCount int
		critical  int
		good      = make(map[bool]int)
	)
	send := func(p shed.Priority, do work, body io.ReadCloser, slow time.Duration, counts bool) {
		at := time.Since(begin)
		all.Go(func() {
			r := (&http.Request{Header: priorities[p], Body: body}).WithContext(context.WithValue(context.Background(), workKey{}, do))
			w := &response{header: http.Header{}, slow: slow}
			took := time.Duration(0)
			if do.stream {
				w.flushed = func() { took = time.Since(begin) - at }
			}
			h.ServeHTTP(w, r)
			if took == 0 {
				took = time.Since(begin) - at
			}
			mu.Lock()
			defer mu.Unlock()
			if w.status == http.StatusServiceUnavailable {
				o.lastShed = max(o.lastShed, at)
			}
			if !counts || at < sc.from || at >= sc.until() {
				return
			}
			o.n++
			isCritical := p == shed.Critical
			if isCritical {
				critical++
			}
			if w.status == http.StatusServiceUnavailable {
				shedCount++
				return
			}
			latencies[isCritical] = append(latencies[isCritical], took)
			if took <= time.Second {
				good[isCritical]++
			}
		})
	}
	o.least = math.Inf(1)
	second, crowd := time.Duration(0), 0
	for at := time.Duration(0); at < sc.length; at = time.Since(begin) {
		if s != nil && at >= second && at >= sc.from && at < sc.until() {
			second = at + time.Second
			for m := range s.Metrics() {
				if m.Name == "ratelimit_shed_limit" {
					o.least, o.most = min(o.least, m.Value), max(o.most, m.Value)
				}
			}
		}
		for ; crowd < sc.bodies && at > time.Minute+time.Duration(crowd)*time.Second/20; crowd++ {
			switch {
			case sc.ending > 0:
				send(shed.Low, work{service: 50 * time.Millisecond}, slowBody(sc.ending-at), 0, false)
			case sc.readers:
				send(shed.Low, work{service: time.Millisecond}, nil, time.Minute, false)
			default:
				send(shed.Low, work{service: time.Millisecond}, slowBody(time.Minute), 0, false)
			}
		}
		time.Sleep(time.Duration(random.ExpFloat64() / (sc.load(at) * capacity) * 1e9))
		const sigma = 0.5
		priority, seconds := draw(random.Float64()), service*math.Exp(sigma*random.NormFloat64()-sigma*sigma/2)
		send(priority, work{time.Duration(seconds * 1e9), random.Float64() < sc.streams}, nil, 0, true)
	}
	all.Wait()
	served := slices.Concat(latencies[false], latencies[true])
	o.shed = float64(shedCount) / float64(o.n)
	o.p99, o.criticalP99 = quantile99(served), quantile99(latencies[true])
	o.critical = float64(good[true]) / float64(critical)
	o.goodput = float64(good[true]+good[false]) / min(float64(o.n), capacity*(sc.until()-sc.from).Seconds())
	return o
}

// until is when measuring ends.
func (sc *scenario) until() time.Duration {
	if sc.to > 0 {
		return sc.to
	}
	return sc.length
}

func quantile99(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)*99/100]
}

func always(load float64) func(time.Duration) float64 {
	return func(time.Duration) float64 { return load }
}

// between is a factor from one time to another, and 1 otherwise.
func between(from, to time.Duration, factor float64) func(time.Duration) float64 {
	return func(at time.Duration) float64 {
		if at >= from && at < to {
			return factor
		}
		return 1
	}
}

const s = time.Second

var slowness = between(60*s, 120*s, 10)

// A want is what a scenario has to come to; 0 is not looked at, and none is 0.
type want struct {
	shed        float64 // at most
	goodput     float64 // at least
	critical    float64 // at least
	criticalP99 time.Duration
}

const none = 1e-9

// unloaded is the p99 at 70 % load.
const unloaded = 146 * time.Millisecond

var table = []struct {
	name string
	scenario
	adaptive, fixed want // a limit of 24
}{
	{"70 %", scenario{length: 300 * s, from: 20 * s, load: always(.7)}, want{none, 1, 1, unloaded}, want{none, 1, 1, unloaded}},
	{"2 ×", scenario{length: 120 * s, from: 30 * s, load: always(2)}, want{.52, .95, .99, unloaded * 22 / 10}, want{.52, .95, .99, 2 * unloaded}},
	{"5 ×", scenario{length: 90 * s, from: 30 * s, load: always(5)}, want{.82, .95, .99, unloaded * 22 / 10}, want{.82, .95, .99, 2 * unloaded}},
	{"20 ×", scenario{length: 40 * s, from: 20 * s, load: always(20)}, want{.96, .95, .99, unloaded * 22 / 10}, want{.96, .95, .99, 2 * unloaded}},
	{"70 %, 5 % streams", scenario{length: 300 * s, from: 70 * s, load: always(.7), streams: .05}, want{none, 1, 1, unloaded}, want{none, 1, 1, unloaded}},
	{"2 ×, 5 % streams", scenario{length: 240 * s, from: 70 * s, load: always(2), streams: .05}, want{.52, .95, .99, unloaded * 22 / 10}, want{.52, .95, .99, 2 * unloaded}},
	{"a dependency 10 × slower", scenario{length: 240 * s, from: 60 * s, to: 120 * s, load: always(.7), slow: slowness, dependency: true}, want{.3, .7, .87, 0}, want{.6, .35, .87, 0}},
	{"the minute after", scenario{length: 240 * s, from: 125 * s, to: 185 * s, load: always(.7), slow: slowness, dependency: true}, want{none, 1, 1, 0}, want{none, 1, 1, 0}},
	{"slower for ten minutes", scenario{length: 660 * s, from: 60 * s, to: 660 * s, load: always(.7), slow: between(60*s, 660*s, 10), dependency: true}, want{.1, .85, .9, 0}, want{.6, .35, .87, 0}},
	{"workers 10 × slower", scenario{length: 240 * s, from: 60 * s, to: 120 * s, load: always(.7), slow: slowness}, want{.9, .09, .5, 0}, want{.9, 0, 0, 0}},
	{"a night of 2 %, then 90 %", scenario{length: 660 * s, from: 600 * s, load: func(at time.Duration) float64 {
		if at < 600*s {
			return .02
		}
		return .9
	}}, want{.01, .99, .99, 0}, want{.01, .99, .99, 0}},
	{"20 slow bodies a second", scenario{length: 160 * s, from: 61 * s, load: always(.5), bodies: 2000}, want{none, 1, 1, unloaded}, want{none, 1, 1, unloaded}},
	{"20 slow readers a second", scenario{length: 160 * s, from: 61 * s, load: always(.5), bodies: 2000, readers: true}, want{none, 1, 1, unloaded}, want{none, 1, 1, unloaded}},
	{"1200 slow bodies end at once", scenario{length: 170 * s, from: 125 * s, to: 145 * s, load: always(.5), bodies: 1200, ending: 125 * s}, want{.25, .75, .99, 0}, want{.25, .75, .99, 0}},
}

func (w want) check(t *testing.T, o outcome) {
	t.Helper()
	t.Log(o)
	if w.shed > 0 && o.shed > w.shed || o.goodput < w.goodput || o.critical < w.critical || w.criticalP99 > 0 && o.criticalP99 > w.criticalP99 {
		t.Errorf("want %+v", w)
	}
}

// docs/overload.md has what this prints.
func TestOverload(t *testing.T) {
	for _, row := range table {
		t.Run(row.name, func(t *testing.T) {
			t.Run("adaptive", func(t *testing.T) {
				row.adaptive.check(t, simulate(t, row.scenario, &shed.Shedder{Min: 8}))
			})
			t.Run("fixed", func(t *testing.T) {
				row.fixed.check(t, simulate(t, row.scenario, &shed.Shedder{Min: 24, Max: 24}))
			})
			if row.length <= 120*s && row.load(0) <= 2 {
				t.Run("none", func(t *testing.T) { want{}.check(t, simulate(t, row.scenario, nil)) })
			}
		})
	}
}

// Twenty minutes of twice what can be served, with other random numbers, moves the limit
// nowhere; neither does a load that comes and goes.
func TestTheLimitDoesNotDrift(t *testing.T) {
	for seed := range int64(3) {
		long := scenario{length: 1200 * s, from: 60 * s, load: always(2), seed: seed + 1}
		if seed > 0 {
			long.length = 180 * s
		}
		o := simulate(t, long, &shed.Shedder{Min: 8})
		if t.Log(o); o.least < 16 || o.most > 48 || o.goodput < .98 || o.critical < .99 {
			t.Error("the limit drifts")
		}
	}
	waves := scenario{length: 300 * s, from: 60 * s, load: func(at time.Duration) float64 {
		if at/(10*s)%2 == 0 {
			return .7
		}
		return 3
	}}
	slow := scenario{length: 160 * s, from: 61 * s, load: always(.5), bodies: 2000}
	if o := simulate(t, slow, &shed.Shedder{Min: 8}); o.most > 30 {
		t.Errorf("clients with slow bodies raise the limit: %v", o)
	}
	if o := simulate(t, waves, &shed.Shedder{Min: 8}); o.goodput < .8 || o.critical < .99 || o.most > 48 {
		t.Errorf("waves: %v", o)
	}
}

// A Shedder in shadow counts what it would shed, where that changes nothing: behind a
// dependency that takes any number of requests.
func TestShadowCountsWhatItWouldShed(t *testing.T) {
	sc := scenario{length: 60 * s, load: always(3), slow: always(2), dependency: true}
	count := func(shadow bool) (o outcome, counted float64) {
		s := &shed.Shedder{Min: 24, Max: 24, Shadow: shadow}
		sc.workers = 1 << 20
		o = simulate(t, sc, s)
		for m := range s.Metrics() {
			if m.Name == "ratelimit_shed_total" {
				counted += m.Value
			}
		}
		return o, counted
	}
	o, shadow := count(true)
	if o.shed > 0 {
		t.Errorf("in shadow: %v", o)
	}
	o, enforced := count(false)
	if enforced == 0 || enforced != math.Round(o.shed*float64(o.n)) || math.Abs(shadow/enforced-1) > .1 {
		t.Errorf("in shadow %v would have been shed; enforced %v were: %v", shadow, enforced, o)
	}
}

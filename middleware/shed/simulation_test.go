package shed_test

import (
	"io"
	"math"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/internal/overload"
	"github.com/seed75154129/ratelimit/middleware/shed"
)

var priorities = map[shed.Priority]http.Header{
	shed.Critical: {"P": {"critical"}}, shed.High: {"P": {"high"}}, shed.Medium: {}, shed.Low: {"P": {"low"}},
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

// simulate runs a scenario in no time. A nil Shedder refuses nobody.
func simulate(t *testing.T, sc overload.Scenario, s *shed.Shedder) (o overload.Outcome) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { o = sc.Run(s) })
	return o
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
	overload.Scenario
	adaptive, fixed want // a limit of 24
}{
	{"70 %", overload.Scenario{Length: 300 * s, From: 20 * s, Load: always(.7)}, want{none, 1, 1, unloaded}, want{none, 1, 1, unloaded}},
	{"2 ×", overload.Scenario{Length: 120 * s, From: 30 * s, Load: always(2)}, want{.52, .95, .99, unloaded * 22 / 10}, want{.52, .95, .99, 2 * unloaded}},
	{"5 ×", overload.Scenario{Length: 90 * s, From: 30 * s, Load: always(5)}, want{.82, .95, .99, unloaded * 22 / 10}, want{.82, .95, .99, 2 * unloaded}},
	{"20 ×", overload.Scenario{Length: 40 * s, From: 20 * s, Load: always(20)}, want{.96, .95, .99, unloaded * 22 / 10}, want{.96, .95, .99, 2 * unloaded}},
	{"70 %, 5 % streams", overload.Scenario{Length: 300 * s, From: 70 * s, Load: always(.7), Streams: .05}, want{none, 1, 1, unloaded}, want{none, 1, 1, unloaded}},
	{"2 ×, 5 % streams", overload.Scenario{Length: 240 * s, From: 70 * s, Load: always(2), Streams: .05}, want{.52, .95, .99, unloaded * 22 / 10}, want{.52, .95, .99, 2 * unloaded}},
	{"a dependency 10 × slower", overload.Scenario{Length: 240 * s, From: 60 * s, To: 120 * s, Load: always(.7), Slow: slowness, Dependency: true}, want{.3, .7, .87, 0}, want{.6, .35, .87, 0}},
	{"the minute after", overload.Scenario{Length: 240 * s, From: 125 * s, To: 185 * s, Load: always(.7), Slow: slowness, Dependency: true}, want{none, 1, 1, 0}, want{none, 1, 1, 0}},
	{"slower for ten minutes", overload.Scenario{Length: 660 * s, From: 60 * s, To: 660 * s, Load: always(.7), Slow: between(60*s, 660*s, 10), Dependency: true}, want{.1, .85, .9, 0}, want{}}, // the fixed one is as in the first minute
	{"workers 10 × slower", overload.Scenario{Length: 240 * s, From: 60 * s, To: 120 * s, Load: always(.7), Slow: slowness}, want{.9, .09, .5, 0}, want{.9, 0, 0, 0}},
	{"a night of 2 %, then 90 %", overload.Scenario{Length: 660 * s, From: 600 * s, Load: func(at time.Duration) float64 {
		if at < 600*s {
			return .02
		}
		return .9
	}}, want{.01, .99, .99, 0}, want{.01, .99, .99, 0}},
	{"20 slow bodies a second", overload.Scenario{Length: 160 * s, From: 61 * s, Load: always(.5), Bodies: 2000}, want{none, 1, 1, unloaded}, want{none, 1, 1, unloaded}},
	{"20 slow readers a second", overload.Scenario{Length: 160 * s, From: 61 * s, Load: always(.5), Bodies: 2000, Readers: true}, want{none, 1, 1, unloaded}, want{none, 1, 1, unloaded}},
	{"1200 slow bodies end at once", overload.Scenario{Length: 170 * s, From: 125 * s, To: 145 * s, Load: always(.5), Bodies: 1200, Ending: 125 * s}, want{.25, .75, .99, 0}, want{.25, .75, .99, 0}},
}

func (w want) check(t *testing.T, o overload.Outcome) {
	t.Helper()
	t.Log(o)
	if w.shed > 0 && o.Shed > w.shed || o.Goodput < w.goodput || o.Critical < w.critical || w.criticalP99 > 0 && o.CriticalP99 > w.criticalP99 {
		t.Errorf("want %+v", w)
	}
}

// docs/overload.md has what this prints.
func TestOverload(t *testing.T) {
	for _, row := range table {
		t.Run(row.name, func(t *testing.T) {
			t.Run("adaptive", func(t *testing.T) {
				o := simulate(t, row.Scenario, &shed.Shedder{Min: 8})
				row.adaptive.check(t, o)
				if row.Bodies == 2000 && o.Most > 30 {
					t.Error("slow clients raise the limit")
				}
			})
			if row.fixed != (want{}) {
				t.Run("fixed", func(t *testing.T) {
					row.fixed.check(t, simulate(t, row.Scenario, &shed.Shedder{Min: 24, Max: 24}))
				})
			}
			if row.Length <= 120*s && row.Load(0) <= 2 {
				t.Run("none", func(t *testing.T) { want{}.check(t, simulate(t, row.Scenario, nil)) })
			}
		})
	}
}

// Minutes of twice what can be served, with other random numbers, move the limit nowhere; neither does a load that comes and goes.
func TestTheLimitDoesNotDrift(t *testing.T) {
	for seed, length := range []time.Duration{300 * s, 180 * s, 180 * s} {
		o := simulate(t, overload.Scenario{Length: length, From: 60 * s, Load: always(2), Seed: int64(seed) + 1}, &shed.Shedder{Min: 8})
		if t.Log(o); o.Least < 16 || o.Most > 48 || o.Goodput < .98 || o.Critical < .99 {
			t.Error("the limit drifts")
		}
	}
	waves := overload.Scenario{Length: 300 * s, From: 60 * s, Load: func(at time.Duration) float64 {
		if at/(10*s)%2 == 0 {
			return .7
		}
		return 3
	}}
	if o := simulate(t, waves, &shed.Shedder{Min: 8}); o.Goodput < .8 || o.Critical < .99 || o.Most > 48 {
		t.Errorf("waves: %v", o)
	}
}

// An hour in which nothing happens but a few requests of slow clients makes no overload worse.
func TestSlowClientsInQuietTimesMoveNoLimit(t *testing.T) {
	read := func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body) }
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		body    func() io.ReadCloser
	}{
		"the body ends late":      {read, func() io.ReadCloser { return overload.SlowBody(10 * s) }},
		"a byte now and then":     {read, func() io.ReadCloser { return &drips{200, 45 * time.Millisecond} }},
		"the response is blocked": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(nil) }, func() io.ReadCloser { return nil }},
		"read beside the work": {func(_ http.ResponseWriter, r *http.Request) {
			go func() { _, _ = r.Body.Read(nil) }()
			time.Sleep(10 * s)
		}, func() io.ReadCloser { return overload.SlowBody(11 * s) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := new(shed.Shedder)
				h := s.Handler(c.handler)
				var all sync.WaitGroup
				for range 1440 {
					all.Go(func() {
						h.ServeHTTP(&overload.Response{Slow: 10 * time.Second}, (&http.Request{Body: c.body()}).WithContext(t.Context()))
					})
					time.Sleep(2500 * time.Millisecond)
				}
				all.Wait()
				if o := (overload.Scenario{Length: 90 * time.Second, From: 30 * time.Second, Load: always(2)}).Run(s); o.Most > 30 || o.Goodput < .95 {
					t.Error(o)
				}
			})
		})
	}
}

// A Shedder in shadow counts what it would shed, where that changes nothing: behind a
// dependency that takes any number of requests.
func TestShadowCountsWhatItWouldShed(t *testing.T) {
	const many = 1 << 20 // workers
	sc := overload.Scenario{Length: 60 * s, Load: always(3. * 8 / many), Workers: many, Slow: always(2), Dependency: true}
	count := func(shadow bool) (o overload.Outcome, counted float64) {
		s := &shed.Shedder{Min: 24, Max: 24, Shadow: shadow}
		o = simulate(t, sc, s)
		for m := range s.Metrics() {
			if m.Name == "ratelimit_shed_total" {
				counted += m.Value
			}
		}
		return o, counted
	}
	o, shadow := count(true)
	if o.Shed > 0 {
		t.Errorf("in shadow: %v", o)
	}
	o, enforced := count(false)
	if enforced == 0 || enforced != math.Round(o.Shed*float64(o.N)) || math.Abs(shadow/enforced-1) > .1 {
		t.Errorf("in shadow %v would have been shed; enforced %v were: %v", shadow, enforced, o)
	}
}

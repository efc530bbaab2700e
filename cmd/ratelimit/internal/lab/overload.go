package lab

import (
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/internal/overload"
	"github.com/seed75154129/ratelimit/middleware/shed"
)

// What the page of overload simulates at most.
const (
	maxWorkers  = 64
	maxOverload = 20  // times the capacity
	maxSeconds  = 120 // length
	leastLimit  = 8   // of the adaptive limit, as in the tests of package shed
	perWorker   = 3   // places of the fixed limit, as there
)

// An overloadScenario is what the query of the page of overload says.
type overloadScenario struct {
	workers  int
	load     float64 // times the capacity
	critical float64 // share of requests
	length   time.Duration
}

func parseOverload(query url.Values) (overloadScenario, error) {
	q := fields{Values: query}
	s := overloadScenario{
		workers:  int(q.whole("workers", 8, 1, maxWorkers)),
		load:     q.number("load", 2, 0.1, maxOverload),
		critical: q.number("critical", 3, 1, 100) / 100,
		length:   time.Duration(q.whole("seconds", 60, 5, maxSeconds)) * time.Second,
	}
	if q.err == nil {
		sim := s.simulation()
		q.tooMany(s.load*sim.Capacity()*s.length.Seconds(), "the workers, the load or the seconds")
	}
	return s, q.end()
}

func (s overloadScenario) simulation() overload.Scenario {
	return overload.Scenario{Length: s.length, Load: func(time.Duration) float64 { return s.load }, Critical: s.critical, Workers: s.workers}
}

// An overloaded is what the page shows. Series of requests have a number for each column,
// by their arrival; the others have one for each second.
type overloaded struct {
	Capacity float64       `json:"capacity"` // requests a second
	Seconds  float64       `json:"seconds"`
	Requests int           `json:"requests"`
	Rows     []overloadRow `json:"rows"`
}

// An overloadRow is the server behind one limit, or none.
type overloadRow struct {
	Name   string `json:"name"`
	Min    int    `json:"min"` // of the limit; 0 without one
	InTime []int  `json:"inTime"`
	Late   []int  `json:"late"`
	Shed   []int  `json:"shed"`

	Limit  []float64 `json:"limit"`
	Inside []int     `json:"inside"`

	Goodput     float64   `json:"goodput"` // share of what could have been served
	ShedShare   float64   `json:"shedShare"`
	P99         float64   `json:"p99"` // seconds, of what was served
	CriticalP99 float64   `json:"criticalP99"`
	Served      [4]served `json:"served"` // from critical to low
}

// A served is how many requests of a priority came, and how many of them were served within a second.
type served struct {
	Requests int `json:"requests"`
	InTime   int `json:"inTime"`
}

func (s overloadScenario) simulate() (overloaded, error) {
	sim := s.simulation()
	result := overloaded{Capacity: sim.Capacity(), Seconds: s.length.Seconds(), Rows: []overloadRow{
		{Name: "none"}, {Name: "fixed", Min: perWorker * s.workers}, {Name: "adaptive", Min: leastLimit},
	}}
	var all sync.WaitGroup
	for i := range result.Rows {
		all.Go(func() { result.Rows[i].run(sim) })
	}
	all.Wait()
	for _, n := range result.Rows[0].Served {
		result.Requests += n.Requests
	}
	return result, nil
}

func (r *overloadRow) run(sim overload.Scenario) {
	var shedder *shed.Shedder
	switch r.Name {
	case "fixed":
		shedder = &shed.Shedder{Min: r.Min, Max: r.Min}
	case "adaptive":
		shedder = &shed.Shedder{Min: r.Min}
	}
	var o overload.Outcome
	// Only a test has virtual time for all of the standard library. A T of its own is enough for it.
	synctest.Test(new(testing.T), func(*testing.T) { o = sim.Run(shedder) })

	r.Goodput, r.ShedShare, r.P99, r.CriticalP99 = o.Goodput, o.Shed, o.P99.Seconds(), o.CriticalP99.Seconds()
	r.InTime, r.Late, r.Shed = make([]int, columns), make([]int, columns), make([]int, columns)
	for _, q := range o.Requests {
		at, n := column(q.At, sim.Length), &r.Served[shed.Critical-q.Priority]
		n.Requests++
		switch {
		case q.Shed:
			r.Shed[at]++
		case q.InTime():
			r.InTime[at]++
			n.InTime++
		default:
			r.Late[at]++
		}
	}
	for _, second := range o.Seconds {
		r.Limit, r.Inside = append(r.Limit, second.Limit), append(r.Inside, second.Inside)
	}
}

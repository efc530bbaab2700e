package lab

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/simulate"
	"github.com/seed75154129/ratelimit/internal/step"
)

// The bounds of a simulation, so that no address of the page keeps this process busy.
const (
	maxRate     = 10_000 // as for sliding_log
	maxPeriod   = 30 * 24 * time.Hour
	maxLoad     = 10
	maxPeriods  = 12
	maxClients  = 50
	maxRequests = 50_000
	maxParts    = 120  // of a drawn curve
	maxDrawn    = 1000 // requests in a part
)

// all are the algorithms in the order in which they are shown: those that can have the
// scenario's limit.
var all = func() (names []algorithms.Algorithm) {
	for _, row := range step.Table {
		if !row.Calendar {
			names = append(names, algorithms.Algorithm(row.Number))
		}
	}
	return names
}()

// chosen are the algorithms of a query that names none.
var chosen = []algorithms.Algorithm{algorithms.FixedWindow, algorithms.SlidingWindow, algorithms.TokenBucket, algorithms.LeakyBucket}

// A scenario is a limit, algorithms and traffic, as in the query of the page's address.
// Fields that the query does not have get defaults.
type scenario struct {
	rate, burst int64
	atOnce      int64 // of in_flight
	period      time.Duration
	takes       time.Duration // each request, once it is served
	algorithms  []algorithms.Algorithm
	traffic     string
	load        float64 // times the limit
	clients     int
	seed        uint64
	periods     int // how long it is
	drawn       []int
}

// traffics are the shapes of traffic. The page has their words.
var traffics = map[string]func(s scenario) []simulate.Request{
	"steady": func(s scenario) []simulate.Request { return s.source().Steady(s.load, s.length()) },
	"poisson": func(s scenario) []simulate.Request {
		return s.source().Poisson(simulate.Random(s.seed), s.load, s.length())
	},
	"bursty": func(s scenario) []simulate.Request {
		return s.source().Bursty(simulate.Random(s.seed), s.load, s.length())
	},
	"edges": func(s scenario) []simulate.Request { return s.source().Edges(s.load, s.length()) },
	"drip":  func(s scenario) []simulate.Request { return s.source().Drip(s.load, s.length()) },
	"clients": func(s scenario) []simulate.Request {
		return s.source().Clients(simulate.Random(s.seed), s.clients, s.load, s.length())
	},
	"drawn": func(s scenario) []simulate.Request { return simulate.Drawn(s.drawn, s.length()) },
}

func (s scenario) source() simulate.Traffic {
	return simulate.Traffic{Rate: s.rate, Period: s.period}
}

func (s scenario) length() time.Duration { return time.Duration(s.periods) * s.period }

// expected is about how many requests the traffic has.
func (s scenario) expected() float64 {
	if s.traffic == "drawn" {
		sum := 0
		for _, n := range s.drawn {
			sum += n
		}
		return float64(sum)
	}
	n := float64(s.rate) * s.load * float64(s.periods)
	if s.traffic == "clients" {
		of := n
		for i := 1; i < s.clients; i++ {
			n += of / float64(i+1)
		}
	}
	return n
}

// requests are the traffic.
func (s scenario) requests() []simulate.Request {
	requests := traffics[s.traffic](s)
	for i := range requests {
		requests[i].Duration = s.takes
	}
	return requests
}

// limit is the limit of one algorithm. Windows have no burst, and in_flight has a
// number of its own.
func (s scenario) limit(a algorithms.Algorithm) algorithms.Limit {
	l := algorithms.Limit{Rate: s.rate, Period: s.period, Algorithm: a}
	switch row := step.Lookup(uint16(a)); {
	case row.Held:
		return algorithms.MaxInFlight(s.atOnce)
	case row.Bucket:
		l.Burst = s.burst
	}
	return l
}

// A fieldError is a mistake in one field of the query.
type fieldError struct {
	field string
	err   error
}

func (e *fieldError) Error() string { return e.field + ": " + e.err.Error() }
func (e *fieldError) Unwrap() error { return e.err }

// Fields are a query, and the first mistake in it.
type fields struct {
	url.Values
	asked []string // for
	err   error
}

// Has reports whether the query has a field, which is one that it may have.
func (f *fields) Has(field string) bool {
	f.asked = append(f.asked, field)
	return f.Values.Has(field)
}

// end reports the first mistake, or else a field that nobody asked for.
func (f *fields) end() error {
	for _, field := range slices.Sorted(maps.Keys(f.Values)) {
		if !slices.Contains(f.asked, field) {
			f.fail(field, fmt.Errorf("no such field; choose from %q", f.asked))
		}
	}
	return f.err
}

func (f *fields) fail(field string, wrong error) {
	if wrong != nil && f.err == nil {
		f.err = &fieldError{field, wrong}
	}
}

// whole is a whole number.
func (f *fields) whole(field string, or, least, most int64) int64 {
	if !f.Has(field) {
		return or
	}
	n, wrong := wholeNumber(f.Get(field), least, most)
	f.fail(field, wrong)
	return n
}

// number is any number.
func (f *fields) number(field string, or, least, most float64) float64 {
	if !f.Has(field) {
		return or
	}
	n, wrong := strconv.ParseFloat(f.Get(field), 64)
	if wrong != nil || math.IsNaN(n) || n < least || n > most {
		f.fail(field, fmt.Errorf("write a number from %v to %v", least, most))
	}
	return n
}

// tooMany refuses more requests than the lab sends.
func (f *fields) tooMany(expected float64, lower string) {
	if expected > maxRequests {
		f.fail("load", fmt.Errorf("that is about %.0f requests; the lab sends at most %d: lower %s", expected, maxRequests, lower))
	}
}

// parseScenario reads a query, and reports the first mistake in it.
func parseScenario(query url.Values) (s scenario, err error) {
	q := fields{Values: query}
	s.rate = q.whole("rate", 100, 1, maxRate)
	s.burst = q.whole("burst", 20, 1, maxRate)
	s.atOnce = q.whole("atOnce", 20, 1, maxRate)
	s.periods = int(q.whole("periods", 4, 2, maxPeriods))
	s.clients = int(q.whole("clients", 5, 1, maxClients))
	s.seed = uint64(q.whole("seed", 1, 0, 1<<32))

	s.load = q.number("load", 1.5, 0.05, maxLoad)
	s.takes = time.Duration(q.number("takes", 1, 0.001, 86_400) * float64(time.Second))

	s.period, s.traffic = time.Minute, "edges"
	if q.Has("period") {
		limit, wrong := algorithms.ParseLimit("1/" + q.Get("period"))
		if s.period = limit.Period; wrong != nil || limit.Burst != 0 || s.period < time.Second || s.period > maxPeriod {
			q.fail("period", errors.New("write a time from 1s to 30d, such as 90s or 1h"))
		}
	}
	s.algorithms = chosen
	if q.Has("algorithms") {
		s.algorithms = nil
		for name := range strings.SplitSeq(q.Get("algorithms"), ",") {
			var a algorithms.Algorithm
			if _ = a.UnmarshalText([]byte(name)); !slices.Contains(all, a) {
				q.fail("algorithms", fmt.Errorf("there is no %q; choose from %q", name, all))
				continue
			}
			s.algorithms = append(s.algorithms, a)
		}
		slices.Sort(s.algorithms)
		s.algorithms = slices.Compact(s.algorithms)
	}
	if q.Has("traffic") {
		if s.traffic = q.Get("traffic"); traffics[s.traffic] == nil {
			q.fail("traffic", fmt.Errorf("there is no %q", s.traffic))
		}
	}
	if drawn := q.Has("drawn"); drawn || s.traffic == "drawn" {
		var wrong error
		s.drawn, wrong = parseDrawn(q.Get("drawn"))
		q.fail("drawn", wrong)
	}
	if q.err == nil {
		q.tooMany(s.expected(), "the rate, the load or the length")
	}
	for _, a := range s.algorithms {
		q.fail("rate", s.limit(a).Validate())
	}
	return s, q.end()
}

func wholeNumber(text string, least, most int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("write a whole number from %d to %d", least, most)
	}
	return n, nil
}

// parseDrawn reads how many requests come in each part of a drawn curve.
func parseDrawn(text string) (counts []int, err error) {
	if text == "" {
		return nil, errors.New("draw at least one request")
	}
	for part := range strings.SplitSeq(text, ",") {
		n, err := wholeNumber(part, 0, maxDrawn)
		if err != nil {
			return nil, err
		}
		if counts = append(counts, int(n)); len(counts) > maxParts {
			return nil, fmt.Errorf("a curve has at most %d parts", maxParts)
		}
	}
	return counts, nil
}

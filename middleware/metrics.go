package middleware

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// metrics is what all middlewares on one registry share: one collector, which
// emits their counts, and reads the state of their limiters only when scraped.
// Decisions only touch atomics.
//
// Its methods do nothing on nil, for middlewares without a registry.
type metrics struct {
	start       time.Time
	decision    *histogram
	store       *histogram
	queueDelay  *histogram
	storeErrors [len(errorClasses)]atomic.Uint64

	mu          sync.Mutex
	series      map[seriesKey]*series
	middlewares []*Middleware
	limiters    state
}

// errorClasses are the values of the label class. All are emitted from the start.
var errorClasses = [...]transport.ErrorClass{
	transport.ClassUnreachable, transport.ClassBusy, transport.ClassUnavailable,
	transport.ClassMoved, transport.ClassRefused, transport.ClassMisused, transport.ClassUnknown,
}

// register returns the metrics of a registry; nil without one. Middlewares that
// share a registry share them.
func register(r prometheus.Registerer) (*metrics, error) {
	if r == nil {
		return nil, nil
	}
	mt := &metrics{
		start:      time.Now(),
		decision:   newHistogram(latencies),
		store:      newHistogram(latencies),
		queueDelay: newHistogram(delays),
		series:     make(map[seriesKey]*series),
	}
	err := r.Register(mt)
	if taken, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if shared, ok := taken.ExistingCollector.(*metrics); ok {
			return shared, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("middleware: registerer: it has other metrics of the same names (wrap it by "+
			"prometheus.WrapRegistererWithPrefix) or does not take ours: %w", err)
	}
	return mt, nil
}

// attach adds a middleware and its limiter to what is collected.
func (mt *metrics) attach(m *Middleware) {
	if mt == nil {
		return
	}
	mt.mu.Lock()
	defer mt.mu.Unlock()
	mt.middlewares = append(mt.middlewares, m)
	for _, guard := range mt.limiters.add(m.limiter) {
		guards.Observe(guard, mt.called)
	}
}

// called counts and measures a call to a store.
func (mt *metrics) called(took time.Duration, d algorithms.Decision, err error) {
	mt.store.observe(took)
	mt.storeError(err)
	for i := range d.Results {
		mt.storeError(d.Results[i].Err)
	}
}

func (mt *metrics) storeError(err error) {
	class := transport.ClassOf(err) // "" for nil
	for i := range errorClasses {
		if errorClasses[i] == class {
			mt.storeErrors[i].Add(1)
		}
	}
}

// now reads the monotonic clock, which costs half of time.Now.
func (mt *metrics) now() time.Duration {
	if mt == nil {
		return 0
	}
	return time.Since(mt.start)
}

// decided measures a decision that began at a reading of now.
func (mt *metrics) decided(begun time.Duration) {
	if mt != nil {
		mt.decision.observe(mt.now() - begun)
	}
}

// queued measures how long a request has to wait for its turn.
func (mt *metrics) queued(delay time.Duration) {
	if mt != nil {
		mt.queueDelay.observe(delay)
	}
}

// follow adds the series of a set's rules. The set that was in force is released
// only afterwards, so that a rule that stays keeps its counts.
func (mt *metrics) follow(set *ruleset, limiter algorithms.Limiter) {
	if mt == nil {
		return
	}
	mt.mu.Lock()
	defer mt.mu.Unlock()
	expected := expectedOf(limiter)
	for i := range set.rules {
		c := &set.rules[i].check
		key := seriesKey{c.Rule, algorithmOf(c.Limit)}
		s := mt.series[key]
		if s == nil {
			s = new(series)
			mt.series[key] = s
		}
		s.users++
		s.expect(expected, &set.rules[i])
		set.watches[i].series = s
	}
}

// release drops the series of rules that no middleware has any more.
func (mt *metrics) release(set *ruleset) {
	if mt == nil || set == nil {
		return
	}
	mt.mu.Lock()
	defer mt.mu.Unlock()
	for i := range set.rules {
		c := &set.rules[i].check
		key := seriesKey{c.Rule, algorithmOf(c.Limit)}
		if s := mt.series[key]; s != nil {
			if s.users--; s.users == 0 {
				delete(mt.series, key)
			}
		}
	}
}

// A state is the parts of limiters that are collected, each once, however many
// middlewares share it.
type state struct {
	guards   map[*failmode.Guard]bool
	memories map[*algorithms.Memory]bool
}

// add adds the parts of a limiter, and returns the guards that are new.
func (s *state) add(limiter algorithms.Limiter) (fresh []*failmode.Guard) {
	if s.memories == nil {
		s.guards = make(map[*failmode.Guard]bool)
		s.memories = make(map[*algorithms.Memory]bool)
	}
	for l := range layers(limiter) {
		switch l := l.(type) {
		case *failmode.Guard:
			if !s.guards[l] {
				fresh = append(fresh, l)
			}
			s.guards[l] = true
			s.memories[guards.Memory(l)] = true
		case *algorithms.Memory:
			s.memories[l] = true
		}
	}
	return fresh
}

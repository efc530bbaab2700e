package failmode

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

const (
	defaultFailures   = 5
	defaultProbeEvery = 200 * time.Millisecond

	// A circuit opens too when more than half of at least this many decisions
	// failed within the window that the first of them began.
	failureWindow = time.Second
	failureCalls  = 20

	slowProbes   = 5                // slow probes close like one fast probe
	flapping     = 10 * time.Second // a circuit that opens so soon again is more careful
	mostPatience = 8                // times as many good probes as at first
)

// A circuit is that of one shard.
type circuit struct {
	shard   int
	isOpen  atomic.Bool
	watched atomic.Bool // there is a window, so answers count too

	mu       sync.Mutex
	begun    time.Time // of the window; zero while nothing fails
	calls    int       // in the window
	failures int       // of them
	inRow    int       // failures without a success between
	patience int       // how many times the good probes it wants
	since    time.Time // of the last transition
	opened   int64
	err      error // the last failure
}

// fails reports whether an error is a failure of the store.
func fails(err error) bool {
	switch algorithms.ClassOf(err) {
	case "", algorithms.ClassMisused, algorithms.ClassMoved:
		return false
	}
	return true
}

// report counts what became of a request's checks: one call for each circuit.
func (b *Breaker) report(begun time.Time, circuits []*circuit, d algorithms.Decision, err error) {
	if errors.Is(err, algorithms.ErrInvalidCheck) {
		return // what was not sent says nothing
	}
	for i, c := range circuits {
		if slices.Contains(circuits[:i], c) {
			continue
		}
		failure := err
		for j := i; j < min(len(d.Results), len(circuits)) && failure == nil; j++ {
			if circuits[j] == c {
				failure = d.Results[j].Err
			}
		}
		if failure != nil || c.watched.Load() {
			b.count(begun, c, failure)
		}
	}
}

// count counts one call through a circuit.
func (b *Breaker) count(begun time.Time, c *circuit, err error) {
	if algorithms.ClassOf(err) == algorithms.ClassMisused {
		b.misused.do(func() {
			b.logger.Error("ratelimit: Redis does not do what it is asked; this does not mend itself", "error", err)
		})
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.isOpen.Load() || begun.Before(c.since): // sent before the circuit opened: it says nothing of now
	case fails(err):
		c.err = err
		if c.fail(now, cmp.Or(b.Failures, defaultFailures)) {
			b.trip(c, now)
		}
	case !c.begun.IsZero():
		c.inRow = 0
		c.calls++
		if now.Sub(c.begun) > failureWindow {
			c.begun = time.Time{}
		}
	}
	c.watched.Store(!c.begun.IsZero())
}

// fail counts a failure and reports whether it is one too many. The caller
// holds c.mu.
func (c *circuit) fail(now time.Time, most int) bool {
	if now.Sub(c.begun) > failureWindow {
		c.begun, c.calls, c.failures = now, 0, 0
	}
	c.calls++
	c.failures++
	c.inRow++
	return c.inRow >= most || c.calls >= failureCalls && 2*c.failures > c.calls
}

// trip opens a circuit. The caller holds its lock.
func (b *Breaker) trip(c *circuit, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	if c.opened > 0 && now.Sub(c.since) < flapping {
		c.patience = min(2*c.patience, mostPatience)
	} else {
		c.patience = 1
	}
	c.begun, c.inRow = time.Time{}, 0
	c.since = now
	c.opened++
	c.isOpen.Store(true)
	b.open.Add(1)
	b.probes.Go(func() { b.probe(c) })
}

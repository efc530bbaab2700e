package monitor

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A phase says what happens to decisions that a shard counts.
type phase int32

const (
	closed  phase = iota // decisions are sent, and none has failed recently
	watched              // decisions are sent and counted, because one has failed
	open                 // nothing is sent but probes; enough good ones close the circuit
)

const (
	// window is how long a watched circuit counts before it begins anew. For so long a
	// good probe clears the shard of errors.
	window = time.Second
	// lateInRow late decisions in a row call a probe, and each error does. Those of one
	// batch are one, because its connection breaks for all of them.
	lateInRow = 5
	// maxApart errors for different keys within a window open a circuit although a probe
	// is good, if more than half of the decisions in the window met errors.
	maxApart = 20

	slowProbes = 5                // so many slow probes count as one fast probe
	flapping   = 10 * time.Second // a circuit that reopens within this needs more good probes
	maxBackoff = 8                // times as many good probes as at first
)

// A Circuit belongs to one shard. All its transitions are in this file:
//
//	closed  → watched  by the first failure
//	watched → closed   by a success after the window
//	watched → open     if a probe fails, or after maxApart errors
//	open    → closed   by good probes, or if the shard is gone
type Circuit struct {
	shard int
	state atomic.Int32 // a phase; written with mu held, read without

	mu      sync.Mutex
	begun   time.Time        // when the window began
	calls   int              // decisions in the window
	errors  int              // decisions in the window that met one
	apart   int              // of these, for different keys, and in different batches
	keys    [maxApart]uint64 // their keys
	batches [maxApart]uint64 // and batches; 0 if sent alone
	late    int              // since the last success, batches that were
	lates   [lateInRow]uint64
	probing bool      // while watched
	probed  time.Time // when that last began
	well    time.Time // when that was last good
	anew    time.Time // when a new connection was last tried after one that was good
	success time.Time // when a decision was last sent that succeeded, while watched
	backoff int       // by how much to multiply the good probes that are needed
	since   time.Time // of the last opening or closing
	opened  int64
	err     error // the last failure
}

func (c *Circuit) is(p phase) bool { return phase(c.state.Load()) == p }

// IsOpen reports whether decisions must not be sent to the shard.
func (c *Circuit) IsOpen() bool { return c.is(open) }

// A failure is that of one decision.
type failure struct {
	kind  kind
	key   uint64 // of the check
	batch uint64 // of the decision; 0 if it was sent alone
	err   error
}

// failed counts a failure. It says whether to probe the shard now, or to open its circuit
// without, and whether an error is the shard's fault as far as is known: until a probe
// is good.
func (c *Circuit) failed(sent, now time.Time, f failure) (probe, trip, blamed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	blamed = f.kind == failed && (c.IsOpen() || now.Sub(c.well) > window)
	if c.IsOpen() || sent.Before(c.since) { // outdated
		return false, false, blamed
	}
	c.err = f.err
	if c.is(closed) || now.Sub(c.begun) > window {
		c.state.Store(int32(watched))
		c.begun, c.calls, c.errors, c.apart = now, 0, 0, 0
	}
	c.calls++
	switch known := func(batches []uint64) bool { return f.batch != 0 && slices.Contains(batches, f.batch) }; {
	case f.kind == failed:
		c.errors++
		if c.apart < maxApart && !slices.Contains(c.keys[:c.apart], f.key) && !known(c.batches[:c.apart]) {
			c.keys[c.apart], c.batches[c.apart] = f.key, f.batch
			c.apart++
		}
		if !blamed && c.apart == maxApart && 2*c.errors > c.calls {
			return false, true, true
		}
	case c.late < lateInRow && !known(c.lates[:c.late]):
		c.lates[c.late] = f.batch
		c.late++
	}
	probe = (f.kind == failed || c.late == lateInRow) && !c.probing && now.Sub(c.probed) >= probeInterval
	if probe {
		c.probing, c.probed = true, now
	}
	return probe, false, blamed
}

// succeeded counts the success of a decision in a circuit that is watched.
func (c *Circuit) succeeded(sent, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.is(watched) || sent.Before(c.since) {
		return
	}
	c.calls++
	c.late = 0
	if sent.After(c.success) {
		c.success = sent
	}
	if now.Sub(c.begun) > window && !c.probing {
		c.state.Store(int32(closed))
	}
}

// judge ends the probe of a circuit that is watched. It reports whether the shard is
// well: the probe was good, or a decision that was sent after it has succeeded.
func (c *Circuit) judge(err error, now time.Time) (well bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probing = false
	if well = err == nil || c.success.After(c.probed); well {
		c.well, c.late = now, 0
	} else {
		c.err = err
	}
	return well
}

// asksAnew reports whether a new connection is to be tried after an error beside a good probe,
// which it is once a minute: decisions may be on older connections than probes.
func (c *Circuit) asksAnew(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.anew) < time.Minute {
		return false
	}
	c.anew = now
	return true
}

// abandon ends a probe of which nothing is known.
func (c *Circuit) abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probing = false
}

// open opens the circuit and reports whether it was not open already.
func (c *Circuit) open(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.IsOpen() {
		return false
	}
	if c.opened > 0 && now.Sub(c.since) < flapping {
		c.backoff = min(2*c.backoff, maxBackoff)
	} else {
		c.backoff = 1
	}
	c.state.Store(int32(open))
	c.since = now
	c.opened++
	return true
}

// recovered closes the circuit after it was open.
func (c *Circuit) recovered(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since, c.well, c.probed, c.late = now, now, time.Time{}, 0
	c.state.Store(int32(closed))
}

// probeFailed notes why a probe failed and returns the failure before.
func (c *Circuit) probeFailed(err error) (before error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, c.err = c.err, err
	return before
}

// wanted is how many good probes close the circuit, counted as slow ones.
func (c *Circuit) wanted() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slowProbes * c.backoff
}

// A State is what a circuit does, and what it did.
type State struct {
	Shard  int
	Open   bool
	Opened int64 // how often
	Err    error // the last failure
}

func (c *Circuit) now() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return State{c.shard, c.IsOpen(), c.opened, c.err}
}

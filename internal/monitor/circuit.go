package monitor

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/internal/transport"
)

// A phase says what happens to decisions that a shard counts.
type phase int32

const (
	// closed: decisions are sent, and none has failed recently.
	closed phase = iota
	// watched: decisions are sent and counted, because one has failed.
	watched
	// open: nothing is sent but probes. Enough good ones close the circuit.
	open
)

const (
	// Enough has failed when failuresInRow decisions failed in a row, or more than
	// half of at least failureCalls within a window that begins with a failure.
	// Decisions of one batch fail together, as when its connection breaks, and
	// failuresInRow batches must have failed in either case.
	failuresInRow = 5
	failureCalls  = 20
	failureWindow = time.Second

	slowProbes = 5                // so many slow probes count as one fast probe
	flapping   = 10 * time.Second // a circuit that reopens within this needs more good probes
	maxBackoff = 8                // times as many good probes as at first
)

// A Circuit belongs to one shard. All its transitions are in this file:
//
//	closed  → watched  by the first failure
//	watched → closed   by a success after the window, or by a probe
//	watched → open     when enough has failed, and no probe succeeds
//	open    → closed   by good probes, or if the shard is gone
type Circuit struct {
	shard   int
	witness *witness
	checked time.Time    // when a suspicion last led to a probe; guarded by the Monitor's mu
	state   atomic.Int32 // a phase; written with mu held, read without

	mu       sync.Mutex
	window   time.Time // when it began; zero while closed
	calls    int       // in the window
	failures failures  // in the window
	inRow    failures  // since the last success
	batches  [8]uint64 // that failed last
	backoff  int       // by how much to multiply the good probes that are needed
	since    time.Time // of the last opening or closing
	opened   int64
	err      error // the last failure
}

func (c *Circuit) is(p phase) bool { return phase(c.state.Load()) == p }

// IsOpen reports whether decisions must not be sent to the shard.
func (c *Circuit) IsOpen() bool { return c.is(open) }

// A suspicion says what to do after a failure.
type suspicion int

const (
	none      suspicion = iota
	suspected           // enough failed that others may be to blame for: probe
	broken              // enough failed that only the store can be to blame for: open
)

// failed counts the failure of a decision.
func (c *Circuit) failed(sent, now time.Time, kind failureKind, err error) suspicion {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.IsOpen() || sent.Before(c.since) { // outdated
		return none
	}
	c.err = err
	if now.Sub(c.window) > failureWindow {
		c.window, c.calls, c.failures = now, 0, failures{}
	}
	c.state.Store(int32(watched))
	c.calls++
	sameBatch := c.known(transport.BatchOf(err))
	c.failures.add(kind, sameBatch)
	c.inRow.add(kind, sameBatch)
	tooMany := func(inRow, failures tally) bool {
		return inRow.batches >= failuresInRow ||
			c.calls >= failureCalls && 2*failures.decisions > c.calls && failures.batches >= failuresInRow
	}
	switch {
	case tooMany(c.inRow.hard, c.failures.hard):
		return broken
	case tooMany(c.inRow.all, c.failures.all):
		return suspected
	}
	return none
}

// known reports whether a decision of this batch, which is 0 for one that was
// sent alone, has failed before. The caller holds mu.
func (c *Circuit) known(batch uint64) bool {
	if batch == 0 || slices.Contains(c.batches[:], batch) {
		return batch != 0
	}
	copy(c.batches[1:], c.batches[:])
	c.batches[0] = batch
	return false
}

// succeeded counts the success of a decision in a circuit that is watched.
func (c *Circuit) succeeded(sent, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.is(watched) || sent.Before(c.since) {
		return
	}
	c.calls++
	c.inRow = failures{}
	if now.Sub(c.window) > failureWindow {
		c.close()
	}
}

// cleared ends the watch: the failures were not the store's fault.
func (c *Circuit) cleared() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.is(watched) {
		c.close()
	}
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
	c.since = now
	c.close()
}

// close requires mu.
func (c *Circuit) close() {
	c.state.Store(int32(closed))
	c.window, c.inRow = time.Time{}, failures{}
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

// Package synced decides hot keys by copies of the store's states, and tells the store later
// what it has admitted.
//
// A copy is the state of a count as the store last returned it. For each count, the units that
// the store has not confirmed are at most a tenth of what is left by the copy, divided by the
// number of processes. So all processes together admit at most a tenth more than the limit,
// whichever of them gets the requests. A request for more than that, without a copy or with
// one older than two pauses asks the store, and its answer is the next copy.
//
// Units are told once, whether or not the store answers: it may have counted them. They are
// told by a settlement, which charges also beyond the limit, a pause after the first of them,
// or as soon as half of what may be untold is used. Up to 200 counts are told together, one
// such command after another. Without an answer, the copy is dropped.
package synced

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/naming"
	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/internal/table"
)

const (
	// untoldPart is the part of what is left that all processes together may not have told.
	untoldPart = 10
	// maxTold is how many counts are told by one command.
	maxTold = 200
	// together is how much earlier than due a count is told, if others are told then.
	together = 10 * time.Millisecond

	shardCount = 64
	shardSize  = 64 // counts; without a place, requests ask the store
)

// A Table has copies of up to 4,096 counts. It is safe for concurrent use.
type Table struct {
	seeds  table.Seeds
	start  time.Time
	begin  func(func()) bool
	tell   func([]algorithms.Charge) []algorithms.Result
	shards [shardCount]shard

	mu      sync.Mutex // after that of a shard
	untold  []*count   // that have units to tell
	timer   *time.Timer
	next    time.Duration // when the timer fires; 0: it does not
	telling bool
	closed  bool
}

type shard struct {
	mu     sync.Mutex
	counts table.Table[*count]
}

// A count is what a process knows of a count, and has not told. Times are since start.
type count struct {
	id    table.ID
	check algorithms.Check // its rule, key, limit and pause

	source algorithms.Source // of the copy
	asked  time.Duration     // when the store was asked for the copy
	at     int64             // the store's clock then, in µs
	state  step.State

	untold  int64 // units; negative if more was refunded
	telling int64 // units that the store was told, and has not confirmed
	refund  step.Placed
	listed  bool          // it is in Table.untold
	hurried bool          // and due at once
	due     time.Duration // under Table.mu
}

// Start sets what a Table needs before its first use: what runs a function in the background,
// and reports whether it does, and what has the store settle charges, and returns its answers.
func (t *Table) Start(begin func(func()) bool, tell func([]algorithms.Charge) []algorithms.Result) {
	t.seeds, t.start, t.begin, t.tell = table.NewSeeds(), time.Now(), begin, tell
}

func (t *Table) now() time.Duration { return time.Since(t.start) }

// find locks the shard of a check's count, and returns the count's entry, or nil.
func (t *Table) find(c *algorithms.Check) (*shard, table.ID, *table.Entry[*count]) {
	id, _ := t.seeds.ID(naming.Of(c))
	s := t.shard(id)
	s.mu.Lock()
	return s, id, s.counts.Find(id)
}

func (t *Table) shard(id table.ID) *shard { return &t.shards[id[1]>>1%shardCount] }

// Take admits a check by its copy, and fills in the empty result. If it returns false, the
// store decides.
func (t *Table) Take(c *algorithms.Check, instances int64, r *algorithms.Result) bool {
	var p step.Params
	cost, now := max(c.Cost, 1), t.now()
	if l := naming.Limit(c.Limit); !l.Numbers(&p, cost, 0) {
		return false
	}
	s, _, e := t.find(c)
	defer s.mu.Unlock()
	if e == nil || e.Value.check.Limit != c.Limit || now-e.Value.asked > 2*c.Sync {
		return false
	}
	n := e.Value
	at, current := n.current(&p, now)
	left, _ := p.Step.Left(current, at, p)
	pending, most := max(n.untold, 0)+max(n.telling, 0), left/(untoldPart*instances)
	if n.untold > 0 && 2*pending >= most {
		t.list(n, 0)
	}
	if pending+cost > most || !t.list(n, c.Sync) {
		return false
	}
	n.untold += cost
	p.SetCost(pending + cost)
	charged, where, _ := p.Take(current, at)
	var a step.Answer
	p.Answer(&a, true, &charged, where, at)
	r.Check, r.Source, r.HasRoom, r.Charged = *c, algorithms.SourceSync, true, cost
	r.Remaining, r.ResetAfter, r.At, r.Trace.Charge = a.Remaining, a.ResetAfter, time.UnixMicro(at), where
	e.Until = math.MaxInt64
	return true
}

// current returns the copy as it stands at a time, and the store's time then.
func (n *count) current(p *step.Params, now time.Duration) (at int64, current step.State) {
	at = n.at + max(now-n.asked, 0).Microseconds()
	return at, p.Current(n.state, at)
}

// Settle changes the cost of a charge by a copy. A refund of a window that has ended frees
// nothing. If Settle returns false, the store settles the charge.
func (t *Table) Settle(r *algorithms.Result, cost int64) bool {
	var p step.Params
	if l := naming.Limit(r.Check.Limit); !l.Numbers(&p, 1, 0) {
		return false
	}
	s, _, e := t.find(&r.Check)
	defer s.mu.Unlock()
	if e == nil || e.Value.check.Limit != r.Check.Limit || !t.list(e.Value, r.Check.Sync) {
		return false
	}
	n, delta := e.Value, cost-r.Charged
	if delta < 0 {
		at, current := n.current(&p, t.now())
		if _, where, _ := p.Take(current, at); !p.Bucket && where.At != r.Trace.Charge.At {
			delta = 0
		} else if n.refund.At == 0 || r.Trace.Charge.At < n.refund.At {
			n.refund = r.Trace.Charge
		}
	}
	n.untold += delta
	r.Charged, r.Remaining = cost, r.Remaining-delta
	return true
}

// Learn takes the store's answer to a request that asked at a time as the copy, if the check is
// decided by copies.
func (t *Table) Learn(at time.Time, r *algorithms.Result) {
	if r.Check.Sync == 0 || !r.Trace.Known {
		return
	}
	s, id, e := t.find(&r.Check)
	defer s.mu.Unlock()
	if e == nil {
		if room, _ := s.counts.Room(int64(t.now()), shardSize); !room {
			return
		}
		e = s.counts.Add(id)
		e.Value = &count{id: id}
	}
	n := e.Value
	if c := &r.Check; n.untold == 0 && n.telling == 0 {
		n.check = algorithms.Check{Rule: c.Rule, Key: c.Key, Limit: c.Limit, Sync: c.Sync}
	}
	if n.learn(at.Sub(t.start), r); !n.listed {
		e.Until = int64(n.asked + 2*n.check.Sync)
	}
}

func (n *count) learn(asked time.Duration, r *algorithms.Result) {
	if asked >= n.asked && r.Check.Limit == n.check.Limit {
		n.source, n.asked, n.at = r.Source, asked, r.At.UnixMicro()
		n.state = step.State{A: r.Trace.State[0], B: r.Trace.State[1], C: r.Trace.State[2]}
	}
}

// Drop forgets a count, and what was not told of it.
func (t *Table) Drop(c *algorithms.Check) {
	s, id, e := t.find(c)
	defer s.mu.Unlock()
	if e != nil {
		e.Value.untold = 0
		s.counts.Remove(id)
	}
}

// list has a count told within a pause. It reports false after End. It requires the shard's mu.
func (t *Table) list(n *count, pause time.Duration) bool {
	if n.listed && (n.hurried || pause > 0) {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	if !n.listed {
		t.untold = append(t.untold, n)
	}
	n.listed, n.hurried, n.due = true, pause == 0, t.now()+pause
	t.wake(n.due)
	return true
}

// wake sets the timer, unless it fires before. It requires mu.
func (t *Table) wake(at time.Duration) {
	if t.telling || t.closed || t.next != 0 && t.next <= at {
		return
	}
	t.next = at
	if pause := at - t.now(); t.timer == nil {
		t.timer = time.AfterFunc(pause, t.fire)
	} else {
		t.timer.Reset(pause)
	}
}

func (t *Table) fire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next = 0
	if t.telling || t.closed {
		return
	}
	if t.telling = t.begin(t.tellDue); !t.telling {
		t.wake(t.now() + together)
	}
}

// tellDue tells what is due.
func (t *Table) tellDue() {
	t.mu.Lock()
	now := t.now()
	var due []*count
	t.untold = slices.DeleteFunc(t.untold, func(n *count) bool {
		if n.due > now+together {
			return false
		}
		due = append(due, n)
		return true
	})
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.telling = false
		for _, n := range t.untold {
			t.wake(n.due)
		}
	}()
	t.send(due)
}

// send tells the store of counts that are not in the list any more.
func (t *Table) send(all []*count) {
	for counts := range slices.Chunk(all, maxTold) {
		var charges []algorithms.Charge
		for _, n := range counts {
			charges = append(charges, t.take(n))
		}
		asked := t.now()
		results := t.tell(charges)
		for i, n := range counts {
			t.told(n, asked, &results[i])
		}
	}
}

// take takes what is untold of a count, as a charge to be changed by so many units.
func (t *Table) take(n *count) algorithms.Charge {
	s := t.shard(n.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	units := n.untold
	r := algorithms.Result{Check: n.check, Source: n.source, Charged: max(1, -units)}
	r.Trace.Charge = n.refund
	n.untold, n.telling, n.refund, n.listed, n.hurried = 0, units, step.Placed{}, false, false
	return algorithms.Charge{Result: r, Cost: r.Charged + units}
}

// told takes the store's answer, if it has one.
func (t *Table) told(n *count, asked time.Duration, r *algorithms.Result) {
	s := t.shard(n.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	n.telling = 0
	if r.Err == nil && r.Trace.Known {
		n.learn(asked, r)
	} else {
		n.asked = asked - time.Hour // the copy lacks what may be lost, so the next request asks
	}
	if e := s.counts.Find(n.id); e != nil && e.Value == n && !n.listed {
		e.Until = int64(n.asked + 2*n.check.Sync)
	}
}

// End tells all that is untold. Take admits nothing afterwards.
func (t *Table) End() {
	t.mu.Lock()
	all := t.untold
	t.untold, t.closed = nil, true
	if t.timer != nil {
		t.timer.Stop()
	}
	t.mu.Unlock()
	t.send(all)
}

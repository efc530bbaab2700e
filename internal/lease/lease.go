// Package lease spends units that a store has counted in advance, for keys with more
// requests than commands should be sent.
//
// A block is an ordinary charge of many units. It never admits too much: the charges of
// a window are at most the limit, and a block is spent while the local time is before
// *when the store was asked for it + what was left of the window, as the store saw it*,
// less a thousandth for a clock that is slewed. The store was asked before it read its
// clock, so that is before the end of the window. In a sliding window the weight of the
// last one only falls until then. Other algorithms have no such end.
package lease

import (
	"math"
	"sync"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/naming"
	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/internal/table"
)

const (
	shardCount = 64
	shardSize  = 64 // keys; a further one replaces the one that is asked for least

	// demandSpan is for how long a block should last.
	demandSpan = 100 * time.Millisecond
	// maxLife is the longest life of a block. A clock that is slewed is not far off by then.
	maxLife = time.Second
)

// A Table has a Lease for each hot key that was asked for recently. It is safe for
// concurrent use.
type Table struct {
	seeds  table.Seeds
	shards [shardCount]shard
}

type shard struct {
	mu     sync.Mutex
	keys   map[table.ID]*Lease
	closed bool // its leases get no blocks any more
}

// A Lease spends units that the store has counted already. What it spends in a
// window is at most what the store granted in that window, so that all processes
// together stay within the limit. Units that it does not spend are not admitted by
// others. It is safe for concurrent use.
type Lease struct {
	mu    sync.Mutex
	limit algorithms.Limit

	// The block. Its units were counted in one window of the store.
	grant algorithms.Result // the charge, to refund what is left; its Charged is not used
	units int64             // that are left
	size  int64             // units when it was granted, with those that were left before
	sent  time.Time         // when it was asked for: before the store read its clock
	life  time.Duration     // from then on
	ends  *time.Timer       // refunds then what is left; nil before the first block

	// What the next block should be.
	stored  int64 // units that the store had left when it last answered
	span    time.Time
	asked   demand // in the current span
	before  demand // in the span before
	refills bool   // a block is under way
	gone    bool   // the lease was replaced, or its Table is closed
}

// A demand counts the requests for a key, each of which may ask for any number of units.
type demand struct{ requests, units int64 }

// Start sets what a Table needs before its first Lease.
func (t *Table) Start() {
	t.seeds = table.NewSeeds()
	for i := range t.shards {
		t.shards[i].keys = make(map[table.ID]*Lease)
	}
}

// place returns a check's ID, and the shard that has its lease.
func (t *Table) place(c *algorithms.Check) (table.ID, *shard) {
	id, _ := t.seeds.ID(naming.Of(c))
	return id, &t.shards[id[0]%shardCount]
}

// Find returns a check's lease, or nil.
func (t *Table) Find(c *algorithms.Check) *Lease {
	id, s := t.place(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[id]
}

// FindOrMake returns a check's lease, and makes it if there is none. If it replaces
// another one, what that has left must be refunded.
func (t *Table) FindOrMake(c *algorithms.Check, now time.Time) (l *Lease, left *algorithms.Charge) {
	id, s := t.place(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l = s.keys[id]; l != nil {
		return l, nil
	}
	if len(s.keys) >= shardSize {
		least := s.least(now)
		block := s.keys[least].end()
		left = &block
		delete(s.keys, least)
	}
	l = &Lease{limit: c.Limit, span: now, gone: s.closed}
	s.keys[id] = l
	return l, left
}

// End ends all leases and returns what they have not spent. No lease gets a block
// afterwards.
func (t *Table) End() (left []algorithms.Charge) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		s.closed = true
		for _, l := range s.keys {
			left = append(left, l.end())
		}
		clear(s.keys)
		s.mu.Unlock()
	}
	return left
}

// least is the lease that is asked for least: clients may send any number of keys,
// and must not take the leases of keys that are in use. It requires mu.
func (s *shard) least(now time.Time) (least table.ID) {
	lowest := math.Inf(1)
	for id, l := range s.keys {
		l.mu.Lock()
		rate := l.rate(now)
		l.mu.Unlock()
		if rate < lowest {
			least, lowest = id, rate
		}
	}
	return least
}

// Drop forgets a key's block.
func (t *Table) Drop(c *algorithms.Check) {
	if l := t.Find(c); l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.empty()
	}
}

// empty forgets the block. What it had is lost until the window ends. It requires mu.
func (l *Lease) empty() { l.units, l.size, l.stored = 0, 0, 0 }

// alive reports whether the block's window has certainly not ended. Both clocks
// count: the monotonic one stands still while a machine sleeps, and the wall clock
// may be set back. It requires mu.
func (l *Lease) alive(now time.Time) bool {
	return l.units > 0 && now.Sub(l.sent) < l.life && now.Round(0).Sub(l.sent.Round(0)) < l.life
}

// Spend takes a check's units from the block, if it has them, and fills in the
// empty result. If the block is nearly used up, Spend returns how many units to ask the
// store for; otherwise 0. The caller must call Refilled then. A block by another limit
// ends and must be refunded: the rules were replaced, or clients of several tiers share
// the key.
func (l *Lease) Spend(c *algorithms.Check, now time.Time, instances int64, r *algorithms.Result) (spent bool, next int64, left *algorithms.Charge) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limit != c.Limit {
		if l.units > 0 {
			block := l.take()
			left = &block
		}
		l.limit, l.size, l.stored = c.Limit, 0, 0
	}
	cost := max(c.Cost, 1)
	l.note(now, cost)
	if l.alive(now) && l.units >= cost {
		l.units -= cost
		passed := max(now.Sub(l.sent), 0) // the block may have come while this request waited for the lock
		r.Check, r.Source, r.HasRoom, r.Charged = *c, algorithms.SourceLease, true, cost
		r.Remaining, r.ResetAfter = l.units+l.stored, max(l.grant.ResetAfter-passed, time.Microsecond)
		r.At = l.grant.At.Add(passed.Truncate(time.Microsecond))
		r.Trace.Charge = step.Placed{At: l.grant.Trace.Charge.At}
		spent = true
	}
	if !l.refills && !l.gone && (!l.alive(now) || l.units <= l.size/5) {
		if next = min(max(l.asked.units, l.before.units), l.stored/(4*instances)); next > max(cost, 1) {
			l.refills = true
			return spent, next, left
		}
	}
	return spent, 0, left
}

// note counts a request and its units, by spans. It requires mu.
func (l *Lease) note(now time.Time, cost int64) {
	if passed := now.Sub(l.span); passed >= demandSpan {
		if l.before = (demand{}); passed < 2*demandSpan {
			l.before = l.asked
		}
		l.span, l.asked = now, demand{}
	}
	l.asked.requests++
	l.asked.units += cost
}

// rate is the number of requests a second. Without the lease, each costs a command. The
// rate falls while no request comes, and a key that is asked for the first time has a
// few milliseconds to be asked for again. It requires mu.
func (l *Lease) rate(now time.Time) float64 {
	passed := max(now.Sub(l.span), 0) + time.Millisecond
	if l.before.requests > 0 {
		passed += demandSpan
	}
	return float64(l.before.requests+l.asked.requests) / passed.Seconds()
}

// Saw notes what the store had left when it answered a request.
func (l *Lease) Saw(r *algorithms.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stored = max(r.Remaining, 0)
}

// Refilled ends what Spend began: with the charge of the block, or with nil. A block of
// the same window joins what is left of the older one. It returns the charge to refund:
// what is left of an older block that it cannot join, or the new block if no request
// would spend it.
func (l *Lease) Refilled(r *algorithms.Result, sent time.Time) (left algorithms.Charge) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refills = false
	if r == nil || r.Charged == 0 || r.Check.Limit != l.limit || l.gone {
		l.stored = 0 // until the store is asked again
		if r != nil && r.Charged > 0 {
			return algorithms.Charge{Result: *r}
		}
		return left
	}
	window := r.Trace.Charge.At
	if l.units > 0 && l.grant.Trace.Charge.At != window {
		left = l.take()
	}
	end := time.UnixMicro(window).Add(r.Check.Limit.Period)
	r.Trace.Followed += min(l.grant.Trace.Followed, l.units)
	l.life = min(end.Sub(r.At)/1000*999, maxLife) // a clock that is slewed gains less than a thousandth
	l.units += r.Charged
	l.grant, l.size, l.sent, l.stored = *r, l.units, sent, max(r.Remaining, 0)
	return left
}

// take takes all units out of the block, to refund them. It requires mu.
func (l *Lease) take() algorithms.Charge {
	r := l.grant
	r.Charged, l.units, l.size = l.units, 0, 0
	return algorithms.Charge{Result: r}
}

// end ends a lease and returns what it has not spent.
func (l *Lease) end() algorithms.Charge {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = true
	if l.ends != nil {
		l.ends.Stop()
	}
	return l.take()
}

// PutBack adds units to the block, if it is of their window. It reports whether it did.
func (l *Lease) PutBack(window, units int64) (added bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.units == 0 && l.size == 0 || l.grant.Trace.Charge.At != window {
		return false
	}
	l.units += units
	return true
}

// Left returns how many units the block has.
func (l *Lease) Left(now time.Time) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.alive(now) {
		return 0
	}
	return l.units
}

// RefundInTime has refund called with what is left of the block at the end of its
// life. A request that would do so may never come.
func (l *Lease) RefundInTime(refund func(algorithms.Charge)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch rest := time.Until(l.sent.Add(l.life)); {
	case l.units == 0:
	case l.ends == nil:
		l.ends = time.AfterFunc(rest, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			refund(l.take())
		})
	default:
		l.ends.Reset(rest)
	}
}

package failmode

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/step"
)

const (
	leaseShards  = 64
	leaseInShard = 64 // keys; a further one replaces the one that is asked for least

	// demandSpan is for how long a block should last.
	demandSpan = 100 * time.Millisecond
	// maxLease is the longest life of a block: what another process bans is admitted
	// here for as long, and a clock that is slewed is not far off by then.
	maxLease = time.Second
)

// leases has a lease for each hot key that was asked for lately.
type leases struct {
	seeds  [2]maphash.Seed
	source atomic.Value // algorithms.Source: who grants the blocks
	shards [leaseShards]leaseShard
}

type leaseShard struct {
	mu     sync.Mutex
	keys   map[denyID]*lease
	closed bool // its leases get no blocks any more
}

// A lease spends units that the store has counted already. What it spends in a
// window is at most what the store granted in that window, so that all processes
// together stay within the limit; what it does not spend is not admitted by others.
type lease struct {
	mu    sync.Mutex
	limit algorithms.Limit

	// The block. Its units were counted in one window of the store.
	grant algorithms.Result // the charge, to give back what is left; its Charged is not used
	units int64             // that are left
	size  int64             // when it was granted, with what was left before
	sent  time.Time         // when it was asked for: before the store read its clock
	life  time.Duration     // from then on
	ends  *time.Timer       // gives back then what is left; nil before the first block

	// What the next block should be.
	room    int64 // units that the store had left when it last answered
	span    time.Time
	asked   demand // in the current span
	before  demand // in the span before
	refills bool   // a block is under way
	gone    bool   // nobody finds the lease any more, or the Guard is closed
}

// A demand is what requests ask of a key: one may ask for any number of units.
type demand struct{ requests, units int64 }

func (ls *leases) begin() {
	ls.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	for i := range ls.shards {
		ls.shards[i].keys = make(map[denyID]*lease)
	}
}

// leasable reports whether a check's units may come from a block.
func leasable(c *algorithms.Check) bool { return c.Lease && !c.Shadow }

// place returns a check's ID, and the shard that has its lease.
func (ls *leases) place(c *algorithms.Check) (denyID, *leaseShard) {
	id := denyID{hash(ls.seeds[0], c), hash(ls.seeds[1], c)}
	return id, &ls.shards[id[0]%leaseShards]
}

// find returns a check's lease, or nil.
func (ls *leases) find(c *algorithms.Check) *lease {
	id, s := ls.place(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[id]
}

// findOrMake returns a check's lease, and makes it if there is none. One that made
// room for it is returned, too.
func (ls *leases) findOrMake(c *algorithms.Check, now time.Time) (l, replaced *lease) {
	id, s := ls.place(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l = s.keys[id]; l != nil {
		return l, nil
	}
	if len(s.keys) >= leaseInShard {
		least := s.least(now)
		replaced = s.keys[least]
		delete(s.keys, least)
	}
	l = &lease{limit: c.Limit, span: now, gone: s.closed}
	s.keys[id] = l
	return l, replaced
}

// least is the lease that is asked for least: clients may send any number of keys,
// and must not take the leases of keys that are in use. It requires mu.
func (s *leaseShard) least(now time.Time) (least denyID) {
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

// drop forgets a key's block.
func (ls *leases) drop(c *algorithms.Check) {
	if l := ls.find(c); l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.empty()
	}
}

// empty forgets the block. What it had is lost until the window ends. It requires mu.
func (l *lease) empty() { l.units, l.size, l.room = 0, 0, 0 }

// alive reports whether the block's window has certainly not ended. Both clocks
// count: the monotonic one stands still while a machine sleeps, and the wall clock
// may be set back. It requires mu.
func (l *lease) alive(now time.Time) bool {
	return l.units > 0 && now.Sub(l.sent) < l.life && now.Round(0).Sub(l.sent.Round(0)) < l.life
}

// spend takes a check's units from the block, if it has them, and fills in the
// empty result. If the block is nearly used up it returns how many units to ask for
// next; 0 is none. The caller must call refilled then. A block by another limit ends
// and is left, to give it back: the rules were replaced, or clients of several tiers
// share the key.
func (l *lease) spend(c *algorithms.Check, now time.Time, instances int64, r *algorithms.Result) (spent bool, next int64, left *algorithms.Charge) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limit != c.Limit {
		if l.units > 0 {
			block := l.take()
			left = &block
		}
		l.limit, l.size, l.room = c.Limit, 0, 0
	}
	cost := max(c.Cost, 1)
	l.note(now, cost)
	if l.alive(now) && l.units >= cost {
		l.units -= cost
		passed := max(now.Sub(l.sent), 0) // the block may have come while this request waited for the lock
		r.Check, r.Source, r.HasRoom, r.Charged = *c, algorithms.SourceLease, true, cost
		r.Remaining, r.ResetAfter = l.units+l.room, max(l.grant.ResetAfter-passed, time.Microsecond)
		r.At = l.grant.At.Add(passed.Truncate(time.Microsecond))
		lent.Trace(r).Charge = step.Placed{At: lent.Trace(&l.grant).Charge.At}
		spent = true
	}
	if !l.refills && !l.gone && (!l.alive(now) || l.units <= l.size/5) {
		if next = min(max(l.asked.units, l.before.units), l.room/(4*instances)); next > max(cost, 1) {
			l.refills = true
			return spent, next, left
		}
	}
	return spent, 0, left
}

// note counts a request for so many units, by spans. It requires mu.
func (l *lease) note(now time.Time, cost int64) {
	if passed := now.Sub(l.span); passed >= demandSpan {
		if l.before = (demand{}); passed < 2*demandSpan {
			l.before = l.asked
		}
		l.span, l.asked = now, demand{}
	}
	l.asked.requests++
	l.asked.units += cost
}

// rate is how many requests there are a second, each of which costs a command
// without the lease. It falls while nobody asks, and a key that is asked for the
// first time has a few milliseconds to be asked for again. It requires mu.
func (l *lease) rate(now time.Time) float64 {
	passed := max(now.Sub(l.span), 0) + time.Millisecond
	if l.before.requests > 0 {
		passed += demandSpan
	}
	return float64(l.before.requests+l.asked.requests) / passed.Seconds()
}

// saw notes what the store had left after a charge that was no block. Of a key that
// is banned nothing is spent.
func (l *lease) saw(r *algorithms.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.BannedFor > 0 {
		l.empty()
		return
	}
	l.room = max(r.Remaining, 0)
}

// refilled ends what spend began: with the charge that the block is, or without.
// It returns what was left of an older block that cannot be joined with it, or the
// new one if nobody would spend it.
func (l *lease) refilled(r *algorithms.Result, sent time.Time) (left algorithms.Charge) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refills = false
	if r != nil && r.BannedFor > 0 {
		l.empty()
	}
	if r == nil || r.Charged == 0 || r.Check.Limit != l.limit || l.gone {
		l.room = 0 // until the store is asked again
		if r != nil && r.Charged > 0 {
			return algorithms.Charge{Result: *r}
		}
		return left
	}
	window := lent.Trace(r).Charge.At
	if l.units > 0 && lent.Trace(&l.grant).Charge.At != window {
		left = l.take()
	}
	end := time.UnixMicro(window).Add(r.Check.Limit.Period)
	lent.Trace(r).Followed += min(lent.Trace(&l.grant).Followed, l.units)
	l.life = min(end.Sub(r.At)/1000*999, maxLease) // a clock that is slewed gains less than a thousandth
	l.units += r.Charged
	l.grant, l.size, l.sent, l.room = *r, l.units, sent, max(r.Remaining, 0)
	return left
}

// take takes all units out of the block, to give them back. It requires mu.
func (l *lease) take() algorithms.Charge {
	r := l.grant
	r.Charged, l.units, l.size = l.units, 0, 0
	return algorithms.Charge{Result: r}
}

// end ends a lease and returns what it has not spent.
func (l *lease) end() algorithms.Charge {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = true
	if l.ends != nil {
		l.ends.Stop()
	}
	return l.take()
}

// putBack undoes a spend while its window's block is there, and adds as much as
// it reports.
func (l *lease) putBack(window, units int64) (added bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.units == 0 && l.size == 0 || lent.Trace(&l.grant).Charge.At != window {
		return false
	}
	l.units += units
	return true
}

// left is how many units the block has.
func (l *lease) left(now time.Time) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.alive(now) {
		return 0
	}
	return l.units
}

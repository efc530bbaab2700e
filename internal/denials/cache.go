// Package denials remembers what a store has denied, so that a flood of requests on a key
// that is over its limit stays in this process.
//
// A denial is of a count, a limit and a cost: an expensive request denies no cheap ones, and
// a free plan denies no paid one. It has two times. Until its true end the store would deny
// the same again, unless units are given back. When it is a second old, one request asks the
// store, because another process may have given some back. Where such an end is unknown, or
// units are given back all the time, one asks after 20 ms.
//
// During a flood, one request asks when the end has come, too, and the others are denied
// until the answer, for 20 ms at most. If the answer admits and leaves no room, the next
// asks alone; otherwise all ask until one is denied. A client that comes 20 ms after the
// others is not denied for that, and a denial that ends before its answer comes is not
// remembered: a rate with many units in a round trip is served.
//
// What this process gives back, it forgets the denials of, and it does not remember answers
// to earlier questions. Without an answer of the store, a denial holds until its true end.
//
// A denial because of MaxDelay is not remembered: others may wait longer.
package denials

import (
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/naming"
	"github.com/seed75154129/ratelimit/internal/spare"
	"github.com/seed75154129/ratelimit/internal/table"
)

const (
	// askInterval is how old a denial may be before the store is asked again: about all keys
	// together at most maxAsked times, since there may be thousands of them in a flood.
	askInterval = time.Second
	maxAsked    = 200
	// askSoon is askInterval where units are given back all the time.
	askSoon = 20 * time.Millisecond
	// longest is for how long a cost above the limit is remembered.
	longest = 24 * time.Hour

	shardCount = 64
	shardSize  = 384 // counts, at most; a further one replaces any other
	perCount   = 4   // limits and costs of a count; a further one replaces any other
	slotCount  = 64
)

// A Cache remembers denials of up to 24,576 counts. Forgetting one costs a command and
// changes no decision. It is safe for concurrent use.
type Cache struct {
	start   time.Time
	seeds   table.Seeds
	seed    maphash.Seed
	refuses func(algorithms.Check) bool // the store cannot be asked now; by value, or all checks would be on the heap

	used   atomic.Bool  // something was remembered; before, nothing is hashed
	asked  atomic.Int64 // the current second since start, and how often the store was asked again in it
	shards [shardCount]shard
	spare  spare.Slices[algorithms.Result]
}

type entry = table.Entry[[perCount]denial]

type shard struct {
	mu     sync.Mutex
	counts table.Table[[perCount]denial]
	freed  [slotCount]time.Duration // when a count was last given back, by a hash of it
}

// A denial is what the store said. Its times are since start.
type denial struct {
	of        uint64        // a hash of its limit and cost; 0 is none
	asked     time.Duration // when the store was asked
	ends, ask time.Duration // its true end, by the earliest time that the store can have read; and when to ask again
	told      time.Duration // its end for clients, from when the answer came
	reset     time.Duration
	met       time.Duration // when it last denied a request, or one asked
	spent     bool          // the store has admitted a request since, and had no room left
	remaining int64
	clock     time.Duration // the store's clock at start, since 1970
}

// Start sets what a Cache needs before its first use. refuses reports that the store
// cannot be asked about a check now.
func (d *Cache) Start(refuses func(algorithms.Check) bool) {
	d.start, d.refuses, d.seeds, d.seed = time.Now(), refuses, table.NewSeeds(), maphash.MakeSeed()
}

func (d *Cache) now() time.Duration { return time.Since(d.start) }

// place returns a count's ID, and its shard.
func (d *Cache) place(c *algorithms.Check) (table.ID, *shard) {
	id, _ := d.seeds.ID(naming.Of(c))
	return id, &d.shards[id[1]>>1%shardCount]
}

// slot chooses a time of freed.
func slot(id table.ID) uint64 { return id[1] >> 7 % slotCount }

// of hashes what tells the denials of a count apart.
func (d *Cache) of(c *algorithms.Check) uint64 {
	return maphash.Comparable(d.seed, struct {
		limit algorithms.Limit
		cost  int64
		look  bool
	}{c.Limit, max(c.Cost, 1), c.Look}) | 1
}

// find returns a count's entry, if there is one, and in it what is known of a check. It
// requires the shard's mu.
func (d *Cache) find(s *shard, id table.ID, c *algorithms.Check) (*entry, *denial) {
	e := s.counts.Find(id)
	if e == nil {
		return nil, nil
	}
	hash := d.of(c)
	for i := range e.Value {
		if n := &e.Value[i]; n.of == hash {
			return e, n
		}
	}
	return e, nil
}

// known returns a check's denial if requests may be denied by it, or have to ask one at a time.
func (d *Cache) known(c *algorithms.Check, now time.Duration) (denial, bool) {
	if c.Shadow {
		return denial{}, false
	}
	id, s := d.place(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, n := d.find(s, id, c)
	if n == nil || n.over(now) && (now >= n.met+askSoon || now >= n.ends+askInterval) {
		return denial{}, false
	}
	n.met = now
	return *n, true
}

// over reports whether a denial has ended, and no request asks the store whether it has.
func (n *denial) over(now time.Duration) bool { return now >= n.ends && now >= n.ask }

// claim has this request ask the store about a known denial, and the others wait for the
// answer. If another request asks already, it returns the denial, and false.
func (d *Cache) claim(c *algorithms.Check, now time.Duration) (denial, bool) {
	id, s := d.place(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch _, n := d.find(s, id, c); {
	case n == nil: // forgotten meanwhile
		return denial{}, true
	case now < n.ask:
		return *n, false
	default:
		n.ask = min(now+askInterval, max(n.ends, now+askSoon))
		if now >= n.ends && !n.spent { // what is free by now, the one that asks may take for a period
			n.reset = max(n.reset, now+c.Limit.Period)
		}
		return *n, true
	}
}

// Reuse takes back the results of a denial by Decide that nobody looks at any more.
func (d *Cache) Reuse(results []algorithms.Result) { d.spare.Reuse(results) }

// Decide denies a request that is known to be denied. Checks of which nothing is known have
// no Source. If not, the store must be asked; again says that it is asked about a denial that
// is known, for Learn. Invalid checks are left to the store, which says what is wrong.
func (d *Cache) Decide(checks []algorithms.Check) (_ algorithms.Decision, denied, again bool) {
	if !d.used.Load() {
		return algorithms.Decision{}, false, false
	}
	var few [4]denial
	all := few[:]
	if len(checks) > len(few) {
		all = make([]denial, len(checks))
	}
	now, due := d.now(), true
	for i := range checks {
		n, known := d.known(&checks[i], now)
		switch {
		case !known, n.over(now) && d.refuses(checks[i]):
			continue
		case n.over(now):
			again = true
		default:
			denied = true
			due = due && now >= n.ask && !d.refuses(checks[i])
		}
		all[i] = n
	}
	if !denied && !again || algorithms.Validate(checks...) != nil {
		return algorithms.Decision{}, false, false
	}
	if !denied || due && d.mayAsk(now) {
		if denied {
			d.asked.Add(1)
		}
		denied = false
		for i := range checks {
			if all[i].of != 0 {
				var claimed bool
				all[i], claimed = d.claim(&checks[i], now)
				denied = denied || !claimed
			}
		}
		if !denied {
			return algorithms.Decision{}, false, true
		}
	}
	results := d.spare.Make(len(checks))
	for i := range checks {
		if results[i].Check = checks[i]; all[i].of != 0 && !all[i].over(now) {
			all[i].fill(&results[i], now)
		}
	}
	return algorithms.Decision{Results: results}, true, false
}

// mayAsk reports whether the store may be asked again in this second.
func (d *Cache) mayAsk(now time.Duration) bool {
	second, last := int64(now/askInterval)<<32, d.asked.Load()
	if last>>32<<32 != second {
		d.asked.CompareAndSwap(last, second)
		return true
	}
	return last-second < maxAsked
}

// Find returns the denial of a check, if it is known. The store is not asked again, however
// old the denial is.
func (d *Cache) Find(c *algorithms.Check) (algorithms.Result, bool) {
	if !d.used.Load() {
		return algorithms.Result{}, false
	}
	now := d.now()
	n, known := d.known(c, now)
	if !known || now >= n.ends {
		return algorithms.Result{}, false
	}
	r := algorithms.Result{Check: *c}
	n.fill(&r, now)
	return r, true
}

// fill fills in the empty result of a check that is denied here.
func (n *denial) fill(r *algorithms.Result, now time.Duration) {
	r.Source, r.Remaining, r.RetryAfter, r.ResetAfter = algorithms.SourceDenyCache, n.remaining, ceil(max(n.told, n.ask)-now), ceil(n.reset-now)
	r.At = time.UnixMicro((n.clock + now).Microseconds())
	if n.told == algorithms.Never {
		r.RetryAfter = algorithms.Never
	}
}

// ceil rounds up to whole microseconds, as the times of results are.
func ceil(d time.Duration) time.Duration {
	return max((d + time.Microsecond - 1).Truncate(time.Microsecond), 0)
}

// Learn takes the store's answer about a check, which was asked at a time. again is what
// Decide has returned.
func (d *Cache) Learn(at time.Time, r *algorithms.Result, again bool) {
	c := &r.Check
	denied := r.Err == nil && r.Denies() && r.RetryAfter > 0 && !naming.Limit(c.Limit).Row().DeniedByDelay(c.MaxDelay > 0, r.Remaining, c.Cost)
	if !denied && !again {
		return
	}
	asked := at.Sub(d.start)
	id, s := d.place(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, n := d.find(s, id, c)
	if !denied {
		switch {
		case n == nil, asked < n.asked: // an answer to an earlier question
		case n.spent || r.Charged == 0 || r.Remaining >= max(c.Cost, 1):
			*n = denial{}
		default: // the next request asks alone, too
			now := d.now()
			n.ends, n.ask, n.told, n.reset, n.spent = now, now, now, now+r.ResetAfter, true
		}
		return
	}
	if s.freed[slot(id)] > asked {
		return
	}
	now := d.now()
	learned := denial{
		of: d.of(c), asked: asked, ends: asked + r.RetryAfter, ask: asked + askInterval, told: now + r.RetryAfter, reset: now + r.ResetAfter,
		remaining: r.Remaining, clock: time.Duration(r.At.UnixMicro())*time.Microsecond - now,
	}
	switch {
	case r.RetryAfter == algorithms.Never:
		learned.ends, learned.told = asked+longest, algorithms.Never
	case c.Limit.Algorithm == algorithms.InFlight: // any request may end
		learned.ends, learned.ask = now+askSoon, now+askSoon
	case c.Provisional:
		learned.ask = now + askSoon
	}
	switch {
	case learned.ends <= now: // units come faster than answers
		if n != nil {
			*n = denial{}
		}
		return
	case n == nil:
		e, n = s.add(id, e, now)
		learned.met = -askSoon
	default:
		learned.met = n.met
	}
	learned.ask = min(learned.ask, learned.ends)
	*n = learned
	e.Until = max(e.Until, int64(learned.ends))
	d.used.Store(true)
}

// add returns the count's entry, made if it is nil, and room for another denial in it. It
// requires mu.
func (s *shard) add(id table.ID, e *entry, now time.Duration) (*entry, *denial) {
	if e == nil {
		if room, _ := s.counts.Room(int64(now), shardSize); !room {
			s.counts.RemoveAny()
		}
		e = s.counts.Add(id)
	}
	for i := range e.Value {
		if n := &e.Value[i]; n.of == 0 || n.ends <= now {
			return e, n
		}
	}
	return e, &e.Value[rand.IntN(perCount)]
}

// Forget drops what is known of a count, of which units were given back, and later what the
// store answers to requests that were sent before.
func (d *Cache) Forget(c *algorithms.Check) {
	now := d.now()
	id, s := d.place(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freed[slot(id)] = now
	s.counts.Remove(id)
}

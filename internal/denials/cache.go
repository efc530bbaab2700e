// Package denials remembers what a store said about keys that it denied, so that a
// flood of requests on a key that is over its limit stays in this process.
//
// A [Cache] keeps the state of a count, not the denial. The algorithm decides by the
// state again, so that an entry is right for every limit, cost and delay. Whether a
// check fits is decided at the store's time plus what has passed since the store was
// asked. That is the latest that the store's clock can show, so no request is denied
// that the store would admit. What clients are told is computed from when the answer
// was received. That is the earliest, so no client comes back too early.
package denials

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/inside"
	"github.com/seed75154129/ratelimit/internal/naming"
	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/internal/table"
)

var internal = algorithms.Internal.Open(&inside.Allow)

const (
	setCount = 4096
	setSize  = 8 // entries; a further one replaces a random one

	// maxCosts is after how many costs that were denied in a row a higher one is
	// denied, too, if the store does not say its state. Each of them asked the store.
	maxCosts = 16
)

// A Cache remembers what the store last said about up to 32,768 keys that it denied.
// Forgetting a key costs a command and changes no decision.
//
// While an entry's state denies, the store is not asked. When units are free again,
// as many requests ask as fit, and the others wait for them. The answers replace the
// state. So a flood on one key sends the store the requests that it admits, one more,
// those that were under way when the entry began, and one a second.
//
// A Cache is safe for concurrent use.
type Cache struct {
	start   time.Time
	seeds   table.Seeds
	refuses func(algorithms.Check) bool // the store cannot be asked now

	used      atomic.Bool   // there was an entry; before, nothing is hashed
	forgotten atomic.Uint64 // how often keys were forgotten
	rechecked atomic.Int64  // the last recheck, since start
	sets      [setCount]set
	signs     [setCount]atomic.Uint64 // of each set: a bit for each entry; see mayKnow
}

// A set has the entries of keys with the same hash.
type set struct {
	mu        sync.Mutex // over the fields, and those of the entries
	forgotten uint64     // Cache.forgotten when a key of the set was last forgotten
	used      int
	hashes    [setSize]uint64 // the first halves of the entries' IDs: a look-up fetches no entries of other keys
	entries   [setSize]*entry
	changed   uint64 // Cache.forgotten when a key was last banned, unbanned or reset
	signs     *atomic.Uint64
}

// What a look-up reads is at the beginning of an entry, in two cache lines.
type entry struct {
	table.ID
	lastAnswer
	rechecked time.Duration // the last recheck
	pending   int64         // units for which requests under way have asked
	denied    denial        // the zero one if the state says everything

	wake       chan struct{} // closed when there may be news; nil if no request waits
	unanswered bool          // the requests that asked got no answer
}

// A lastAnswer is what the store last said about a count.
type lastAnswer struct {
	exact    bool     // it said the state
	state    [3]int64 // where exact
	room     int64    // otherwise: units that were left
	at       int64    // on the store's clock, in µs
	sent     time.Duration
	received time.Duration
}

// A denial is a last answer that is more than its state: a ban, or a denial by a store
// that does not say the state, such as that of a sliding_log or a store of the user's
// own. Until retryAt the cost is denied, and so is every higher one.
type denial struct {
	costs     int           // so many denials in a row were of another cost than the one before
	retryAt   time.Duration // from when the store may admit
	limit     algorithms.Limit
	cost      int64
	remaining int64
	toldAt    time.Duration // the same for clients: from when the answer was received
	resetAt   time.Duration
	banEnds   time.Duration // from when the store may say that the key is not banned; 0 if it did not say that it is
	banToldAt time.Duration
	byHand    bool // a ban that binds rules without one
}

func denialOf(r *algorithms.Result, a *lastAnswer) denial {
	d := denial{
		limit: r.Check.Limit, cost: internal.Check(&r.Check).LeastCost(), remaining: r.Remaining,
		retryAt: a.sent + r.RetryAfter, toldAt: a.received + r.RetryAfter, resetAt: a.received + r.ResetAfter,
		byHand: r.Check.Ban == (algorithms.Ban{}), // a rule's own is not for rules without one
	}
	if r.BannedFor > 0 && r.RetryAfter < algorithms.Never {
		d.banEnds, d.banToldAt = a.sent+r.BannedFor, a.received+r.BannedFor
	}
	return d
}

// verdict is what clients are told of the denial.
func (n *denial) verdict(now time.Duration) step.Verdict {
	return step.Verdict{Known: true, Remaining: n.remaining, RetryAfter: ceil(n.toldAt - now), ResetAfter: ceil(n.resetAt - now)}
}

// ceil rounds up to whole microseconds, as the times of results are.
func ceil(d time.Duration) time.Duration {
	return (d + time.Microsecond - 1).Truncate(time.Microsecond)
}

// Start sets what a Cache needs before its first use. refuses reports that the store
// cannot be asked about a check now.
func (d *Cache) Start(refuses func(algorithms.Check) bool) {
	d.start, d.refuses = time.Now(), refuses
	d.seeds = table.NewSeeds()
	for i := range d.sets {
		d.sets[i].signs = &d.signs[i]
	}
}

// Used reports whether there was an entry. Before, nothing is known of any check.
func (d *Cache) Used() bool { return d.used.Load() }

func (d *Cache) now() time.Duration { return time.Since(d.start) }

func (d *Cache) id(c *algorithms.Check) table.ID { return d.seeds.ID(naming.Of(c)) }

// place returns the set of a check, and the hash that leads there.
func (d *Cache) place(c *algorithms.Check) (*set, uint64) {
	h := d.id(c)[0]
	return &d.sets[h%setCount], h
}

// mayKnow reports whether there may be an entry with this hash. Of a request that is
// denied, most checks have none: this tells without the lock, in 32 KiB for all sets.
func (d *Cache) mayKnow(h uint64) bool { return d.signs[h%setCount].Load()&sign(h) != 0 }

// sign is a hash's bit, by bits of it that do not choose the set.
func sign(h uint64) uint64 { return 1 << (h >> 58) }

// updateSigns makes the bits those of the entries. It requires mu.
func (s *set) updateSigns() {
	all := uint64(0)
	for _, h := range s.hashes[:s.used] {
		all |= sign(h)
	}
	s.signs.Store(all)
}

// find returns what is known of a check, or nil. The second half of an ID is
// computed only if the first is found. It requires mu.
func (d *Cache) find(s *set, h uint64, c *algorithms.Check) *entry {
	for i := range s.used {
		if s.hashes[i] == h && s.entries[i].ID[1] == d.id(c)[1] {
			return s.entries[i]
		}
	}
	return nil
}

// add requires mu.
func (s *set) add(e *entry) *entry {
	i := s.used
	if i < setSize {
		s.used++
	} else {
		i = rand.IntN(setSize)
	}
	s.hashes[i], s.entries[i] = e.ID[0], e
	s.updateSigns()
	return e
}

// remove takes an entry out of the set and wakes the requests that wait for it. It
// requires mu.
func (s *set) remove(e *entry) {
	if i := slices.Index(s.entries[:s.used], e); i >= 0 {
		s.used--
		s.hashes[i], s.entries[i] = s.hashes[s.used], s.entries[s.used]
		s.entries[s.used] = nil
		s.updateSigns()
	}
	e.wakeAll()
}

// wakeAll wakes the requests that wait. It requires mu.
func (e *entry) wakeAll() {
	if e.wake != nil {
		close(e.wake)
		e.wake = nil
	}
}

// verdict decides a check by the entry, beside the units for which other requests
// have asked. It requires mu.
func (e *entry) verdict(c *algorithms.Check, now time.Duration, pending int64) step.Verdict {
	if e.exact {
		return internal.Limit(c.Limit).Again(internal.Check(c).LeastCost(), c.MaxDelay, e.state, e.at+(now-e.sent).Microseconds(), e.at+(now-e.received).Microseconds(), pending)
	}
	cost, n := internal.Check(c).LeastCost(), &e.denied
	if n.banEnds == 0 && n.limit == c.Limit && now < n.retryAt && (n.cost == cost || n.cost < cost && n.costs >= maxCosts) {
		return n.verdict(now)
	}
	return step.Verdict{Known: true, Room: pending == 0 || pending+cost <= e.room, RetryAfter: time.Microsecond, ResetAfter: time.Microsecond}
}

// banned is the denial by a ban that has not ended and binds a check, and how long it
// is still to last; 0 if there is none. It requires mu.
func (e *entry) banned(c *algorithms.Check, now time.Duration) (v step.Verdict, rest time.Duration) {
	n := &e.denied
	if now >= n.banEnds || !n.byHand && c.Ban == (algorithms.Ban{}) {
		return v, 0
	}
	return n.verdict(now), ceil(n.banToldAt - now)
}

// passes reports whether a check denies nothing for lack of room: nothing is remembered
// of its answers, and what is remembered of its key does not decide it.
func passes(c *algorithms.Check) bool { return c.Shadow }

// asksAlways reports whether a check's denials are not to be cached: any request may end, and
// the store counts the denials that lead to a ban. A ban itself is cached, for a moment.
func asksAlways(c *algorithms.Check) bool {
	return internal.Check(c).Holds() || c.Ban != (algorithms.Ban{})
}

// A Moment is when the store was asked. Answers may overtake each other, and may come
// after a key was settled, banned or reset: by the Moment, a late answer is noticed.
type Moment struct {
	since     time.Duration // start
	forgotten uint64
}

// Now returns the Moment to note before the store is asked.
func (d *Cache) Now() Moment { return Moment{d.now(), d.forgotten.Load()} }

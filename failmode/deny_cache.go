package failmode

import (
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/step"
)

const (
	denySets  = 4096
	denyInSet = 8 // entries; a further one replaces a random one

	// maxCosts is after how many costs that were denied in a row a store that does
	// not say its state is asked no more how much longer a higher one has to wait.
	maxCosts = 16
)

// A denyCache remembers what the store last said about keys that it denied. It
// keeps the state of a count, not the denial: the step decides by it again, so
// that an entry says nothing about limits, costs or delays, and what is told is
// as exact as what the store tells. A key that is forgotten costs a command.
//
// While an entry's state denies, nobody asks the store. When it has room again,
// as many ask as it has room for, and the others wait for them. What they are
// answered replaces the state. So a flood on one key sends at most what is
// admitted, one, what was under way when the entry began, and one a second.
type denyCache struct {
	start   time.Time
	seeds   [2]maphash.Seed
	refuses func(*algorithms.Check) bool // the store cannot be asked now

	used    atomic.Bool   // there was an entry; before, nothing is hashed
	emptied atomic.Uint64 // how often keys were forgotten
	looked  atomic.Int64  // the last second look, since start
	sets    [denySets]denySet
	signs   [denySets]atomic.Uint64 // of each set: a bit for each entry; see mayKnow
}

// A denySet has the entries of keys with the same hash.
type denySet struct {
	mu      sync.Mutex // over the fields, and those of the entries
	emptied uint64     // denyCache.emptied when a key of the set was last forgotten
	used    int
	hashes  [denyInSet]uint64 // the first halves of the entries' IDs: a look fetches no entries of other keys
	entries [denyInSet]*denyEntry
	changed uint64 // emptied when a key was last banned, lifted or reset
	signs   *atomic.Uint64
}

// A denyID identifies a count by 128 bits of hash, with seeds of this process:
// keys may be long, and clients choose them.
type denyID [2]uint64

// What a look reads is at its beginning, in two lines of the processor's caches.
type denyEntry struct {
	denyID
	lastAnswer
	looked time.Duration // the last second look
	asking int64         // units for which requests have asked that are under way
	denied denial        // the zero one where the state says it all

	wake chan struct{} // closed when there may be news; nil if nobody waits
	lost bool          // those who asked got no answer
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

// A denial is a last answer that is more than its state: a ban, or what a store
// denied that does not say the state, as of a sliding_log or in a store of the
// user's own. Until retryAt the cost is denied, and so is every higher one.
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
		limit: r.Check.Limit, cost: max(r.Check.Cost, 1), remaining: r.Remaining,
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

// ceil is a time in whole microseconds, as those of results are.
func ceil(d time.Duration) time.Duration {
	return (d + time.Microsecond - 1).Truncate(time.Microsecond)
}

func (d *denyCache) begin(refuses func(*algorithms.Check) bool) {
	d.start, d.refuses = time.Now(), refuses
	d.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	for i := range d.sets {
		d.sets[i].signs = &d.signs[i]
	}
}

func (d *denyCache) now() time.Duration { return time.Since(d.start) }

func (d *denyCache) sending() sending { return sending{d.now(), d.emptied.Load()} }

// hash hashes what identifies a count.
func hash(seed maphash.Seed, c *algorithms.Check) uint64 {
	const odd = 0x9e3779b97f4a7c15
	h := maphash.String(seed, c.Rule)
	h = h*odd ^ maphash.String(seed, c.Key)
	h = h*odd ^ maphash.String(seed, stepLimit(c.Limit).Name())
	h = (h ^ uint64(c.Limit.Period)) * odd
	if c.Limit.Calendar != "" {
		h = h*odd ^ maphash.String(seed, c.Limit.Calendar)
	}
	return h ^ h>>32
}

// place returns the set of a check, and the hash that leads there.
func (d *denyCache) place(c *algorithms.Check) (*denySet, uint64) {
	h := hash(d.seeds[0], c)
	return &d.sets[h%denySets], h
}

// mayKnow reports whether there may be an entry with this hash. Of a request that is
// denied, most checks have none: this tells without the lock, in 32 KiB for all sets.
func (d *denyCache) mayKnow(h uint64) bool { return d.signs[h%denySets].Load()&sign(h) != 0 }

// sign is a hash's bit, by bits of it that do not choose the set.
func sign(h uint64) uint64 { return 1 << (h >> 58) }

// resign makes the bits those of the entries. It requires mu.
func (s *denySet) resign() {
	all := uint64(0)
	for _, h := range s.hashes[:s.used] {
		all |= sign(h)
	}
	s.signs.Store(all)
}

// entry returns what is known of a check, or nil. The second half of an ID is
// only computed where the first is found. It requires mu.
func (d *denyCache) entry(s *denySet, h uint64, c *algorithms.Check) *denyEntry {
	for i := range s.used {
		if s.hashes[i] == h && s.entries[i].denyID[1] == hash(d.seeds[1], c) {
			return s.entries[i]
		}
	}
	return nil
}

// remove takes an entry out of the set and wakes those who wait for it. It
// requires mu.
func (s *denySet) remove(e *denyEntry) {
	if i := slices.Index(s.entries[:s.used], e); i >= 0 {
		s.used--
		s.hashes[i], s.entries[i] = s.hashes[s.used], s.entries[s.used]
		s.entries[s.used] = nil
		s.resign()
	}
	e.tell()
}

// tell wakes those who wait. It requires mu.
func (e *denyEntry) tell() {
	if e.wake != nil {
		close(e.wake)
		e.wake = nil
	}
}

// verdict decides a check by the entry, beside the units for which others have
// asked. It requires mu.
func (e *denyEntry) verdict(c *algorithms.Check, now time.Duration, asking int64) step.Verdict {
	if e.exact {
		return stepLimit(c.Limit).Again(c.Cost, c.MaxDelay, e.state, e.at+(now-e.sent).Microseconds(), e.at+(now-e.received).Microseconds(), asking)
	}
	cost, n := max(c.Cost, 1), &e.denied
	if n.banEnds == 0 && n.limit == c.Limit && now < n.retryAt && (n.cost == cost || n.cost < cost && n.costs >= maxCosts) {
		return n.verdict(now)
	}
	return step.Verdict{Known: true, Room: asking == 0 || asking+cost <= e.room, RetryAfter: time.Microsecond, ResetAfter: time.Microsecond}
}

// banned is the denial by a ban that has not ended and binds a check, and how long it
// is still to last; 0 if there is none. It requires mu.
func (e *denyEntry) banned(c *algorithms.Check, now time.Duration) (v step.Verdict, rest time.Duration) {
	n := &e.denied
	if now >= n.banEnds || !n.byHand && c.Ban == (algorithms.Ban{}) {
		return v, 0
	}
	return n.verdict(now), ceil(n.banToldAt - now)
}

// asksAlways reports whether a check's denials are not to be cached. A ban on its
// key is, for a moment.
func asksAlways(c *algorithms.Check) bool { return c.NoCache || c.Ban != (algorithms.Ban{}) }

// learn takes the store's answer to a question. It begins an entry if the answer
// is a denial by the state.
func (d *denyCache) learn(sent sending, l *lookup, r *algorithms.Result) {
	denied := begins(r)
	if l.entry == nil && !denied && (!asksAlways(&r.Check) || !d.used.Load()) {
		return // no entry is as good as one that has room
	}
	a := lastAnswer{at: r.At.UnixMicro(), sent: sent.at, received: d.now(), room: r.Remaining}
	a.state, a.exact = lent.Trace(r).State, lent.Trace(r).Known
	s, h := d.place(&r.Check)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.entry != nil {
		l.entry.asking -= l.reserved
		if l.entry.asking == 0 || r.Charged == 0 { // otherwise as much room is reserved as before
			defer l.entry.tell()
		}
	}
	if s.emptied > sent.emptied {
		return
	}
	e := d.entry(s, h, &r.Check)
	switch {
	case e == nil && !denied:
		return
	case e == nil:
		e = s.add(&denyEntry{denyID: denyID{h, hash(d.seeds[1], &r.Check)}, lastAnswer: a})
		d.used.Store(true)
	case e.newer(&a):
		e.lastAnswer = a
	}
	if e != l.entry {
		e.tell()
	}
	if e.at != a.at { // it was not the newer one
		return
	}
	before := e.denied
	if e.denied = (denial{}); r.BannedFor > 0 || denied && !a.exact {
		e.denied = denialOf(r, &a)
		if e.denied.costs = before.costs; e.denied.cost != before.cost {
			e.denied.costs++
		}
	}
}

// add requires mu.
func (s *denySet) add(e *denyEntry) *denyEntry {
	i := s.used
	if i < denyInSet {
		s.used++
	} else {
		i = rand.IntN(denyInSet) //nolint:gosec // any will do
	}
	s.hashes[i], s.entries[i] = e.denyID[0], e
	s.resign()
	return e
}

// begins reports whether a result begins an entry. A denial for want of patience
// says nothing of other requests, and neither does Never, unless there is a state.
func begins(r *algorithms.Result) bool {
	switch {
	case !r.Denies() || r.RetryAfter <= 0:
		return false
	case r.BannedFor > 0:
		return true
	case impatient(r):
		return false
	}
	exact := lent.Trace(r).Known
	return exact || r.RetryAfter != algorithms.Never
}

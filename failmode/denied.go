package failmode

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

const (
	deniedShards  = 16
	deniedInShard = 1024 // keys; a further key replaces a random one
)

// deniedKeys remembers which keys the store last denied, and until when. A key
// that it has forgotten counts as not denied. Its zero value is not ready.
type deniedKeys struct {
	seeds  [2]maphash.Seed
	count  atomic.Int64 // entries; while 0, which is usual, nothing is locked
	shards [deniedShards]struct {
		mu      sync.Mutex
		entries map[deniedID]deniedEntry
	}
}

// A deniedID identifies a count by 128 bits of hash, with seeds of this process:
// keys may be long, and clients choose them.
type deniedID [2]uint64

type deniedEntry struct {
	result algorithms.Result
	at     time.Time
}

func (d *deniedKeys) begin() {
	d.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	for i := range d.shards {
		d.shards[i].entries = make(map[deniedID]deniedEntry)
	}
}

func (d *deniedKeys) id(c *algorithms.Check) (id deniedID) {
	count := struct {
		rule, key, algorithm string
		period               time.Duration
	}{c.Rule, c.Key, lent.AlgorithmOf(c.Limit), c.Limit.Period}
	for i, seed := range d.seeds {
		id[i] = maphash.Comparable(seed, count)
	}
	return id
}

// note remembers a denial by the store until there will be room. An admission
// ends it.
func (d *deniedKeys) note(r *algorithms.Result, now time.Time) {
	switch {
	case r.Allowed:
		if d.count.Load() > 0 {
			d.forget(&r.Check)
		}
		return
	case r.Check.Shadow, r.RetryAfter <= 0, r.RetryAfter == algorithms.Never:
		return
	case r.Banned: // local counting remembers bans
		return
	case lent.Impatient(r): // with a longer MaxDelay there may be room
		return
	}
	id := d.id(&r.Check)
	s := &d.shards[id[0]%deniedShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.entries[id]; !known && len(s.entries) >= deniedInShard {
		for other := range s.entries {
			delete(s.entries, other)
			d.count.Add(-1)
			break
		}
	}
	before := len(s.entries)
	s.entries[id] = deniedEntry{*r, now}
	d.count.Add(int64(len(s.entries) - before))
}

// forget drops the denial of a key that may have room again.
func (d *deniedKeys) forget(c *algorithms.Check) {
	id := d.id(c)
	s := &d.shards[id[0]%deniedShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.entries[id]; known {
		delete(s.entries, id)
		d.count.Add(-1)
	}
}

// find returns the store's last denial of a check, with its times as of now. It
// does not apply to another limit or a lower cost.
func (d *deniedKeys) find(c *algorithms.Check, now time.Time) (algorithms.Result, bool) {
	if d.count.Load() == 0 {
		return algorithms.Result{}, false
	}
	id := d.id(c)
	s := &d.shards[id[0]%deniedShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	e, known := s.entries[id]
	if !known {
		return algorithms.Result{}, false
	}
	r, age := e.result, now.Sub(e.at)
	if age >= r.RetryAfter {
		delete(s.entries, id)
		d.count.Add(-1)
		return algorithms.Result{}, false
	}
	if r.Check.Limit != c.Limit || max(r.Check.Cost, 1) > max(c.Cost, 1) {
		return algorithms.Result{}, false
	}
	r.Check, r.At = *c, r.At.Add(age)
	r.RetryAfter -= age
	r.ResetAfter = max(r.ResetAfter-age, 0)
	return r, true
}

package algorithms

import (
	"cmp"
	"context"
	"hash/maphash"
	"sync"
	"time"
)

// defaultMaxKeys is the bound of a Memory whose MaxKeys is 0.
const defaultMaxKeys = 1 << 18

// Memory counts in this process. Its zero value is ready.
//
// Its memory is bounded. Fully replenished keys may be evicted; other keys never
// are, because that would free clients that are limited. When MaxKeys are in use,
// further keys are counted in sketches. A sketch counts many keys together in
// constant memory and errs only towards denying. Its charges can be given back
// only once the key has found room, and Reset does not clear them. A ban, and the
// denials that lead to one, take the place of a key. If there is none, those denials
// are not counted. A ban by hand finds room even so, for as many entries again.
//
// Keys are told apart by 128 bits of hash with secret seeds of this process. A key
// takes 64 to 128 bytes, however long it is; a sliding_log takes about 100 more, and
// 16 for each further request in it. A sketch takes 8 MiB, once it is needed. Each rule that
// overflows has one, for each algorithm and period. There are at most 7: six
// rules have their own, and all further ones share the last, which admits a key
// once until all of its units are free again. A sketch that has been empty for a
// minute is dropped when new keys come.
//
// Memory is safe for concurrent use. It starts no goroutines.
type Memory struct {
	// MaxKeys bounds the keys that have a count or a ban of their own; 0 means 262,144.
	// Bans by hand may exceed it by as many again. It must not change after first use.
	MaxKeys int

	once   sync.Once
	seeds  [2]maphash.Seed
	start  time.Time
	clock  func() time.Time // nil: the wall clock; see bridge.Algorithms.Clock
	most   int              // entries in a shard at most
	shards [memoryShards]memoryShard
}

func (m *Memory) ready() {
	m.once.Do(func() {
		m.seeds, m.start = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, time.Now()
		m.most = max(cmp.Or(m.MaxKeys, defaultMaxKeys)/memoryShards, 1)
	})
}

// now is the wall clock at the start plus the monotonic clock: it never steps.
func (m *Memory) now() int64 {
	if m.clock != nil {
		return m.clock().UnixMicro()
	}
	return m.start.UnixMicro() + time.Since(m.start).Microseconds()
}

// Take implements [Limiter]. Its only errors are about the checks.
func (m *Memory) Take(_ context.Context, checks ...Check) (Decision, error) {
	return m.decide(true, checks)
}

// Peek implements [Limiter]. Its only errors are about the checks.
func (m *Memory) Peek(_ context.Context, checks ...Check) (Decision, error) {
	return m.decide(false, checks)
}

func (m *Memory) decide(charge bool, checks []Check) (Decision, error) {
	m.ready()
	var roomParams [4]params
	ps, err := prepare(checks, &roomParams)
	if err != nil {
		return Decision{}, err
	}
	var roomPlaces [4]place
	places := roomPlaces[:0]
	for i := range checks {
		places = append(places, m.place(&checks[i], &ps[i]))
	}
	locked := m.lock(places)
	defer m.unlock(locked)
	return m.decideAt(m.now(), charge, checks, ps, places), nil
}

// decideAt is the twin of lua/take.lua. The places' shards are locked.
func (m *Memory) decideAt(now int64, charge bool, checks []Check, ps []params, places []place) Decision {
	d := Decision{Allowed: true, Results: newResults(len(checks))}
	for i := range checks {
		p, pl, res := &ps[i], &places[i], &d.Results[i]
		var healed bool
		if pl.current, healed = pl.load(now, p); healed && charge {
			pl.store(pl.current, p.until(pl.current, now), now, p, m.most)
		}
		res.Check, res.Source, res.At = checks[i], SourceMemory, time.UnixMicro(now)
		pl.charged, pl.where, res.Allowed = p.take(pl.current, now)
		d.Allowed = d.Allowed && !res.Denies()
		if pl.meetsBan(&checks[i], charge, now) {
			d.Allowed = d.Allowed && pl.bannedUntil <= now
		}
	}
	for i := range checks {
		p, pl, res := &ps[i], &places[i], &d.Results[i]
		if charge && d.Allowed && res.Allowed {
			res.Charged = p.cost
		}
		resetAt := p.answer(res, pl.current, pl.charged, pl.where, now)
		if res.Charged > 0 {
			pl.store(pl.charged, resetAt, now, p, m.most)
		}
		if pl.estimated {
			pl.shard.overflowed++
		}
		if pl.bans {
			pl.decideBan(now, charge, res, m.most)
		}
	}
	return d
}

// Settle implements [Limiter]. Its only errors are about the charges.
func (m *Memory) Settle(_ context.Context, charges ...Charge) ([]Result, error) {
	m.ready()
	results, corrections, err := prepareSettle(charges, SourceMemory)
	for i := range corrections {
		m.settle(&corrections[i])
	}
	return results, err
}

func (m *Memory) settle(c *correction) {
	pl := m.place(&c.result.Check, &c.params)
	pl.shard.mu.Lock()
	defer pl.shard.mu.Unlock()
	m.settleAt(m.now(), c, &pl)
}

// settleAt is the twin of lua/settle.lua. Nothing is given back to a sketch,
// since store only raises its cells.
func (m *Memory) settleAt(now int64, c *correction, pl *place) {
	current, healed := pl.load(now, &c.params)
	settled, changed := c.settle(current, healed, now)
	if changed {
		pl.store(settled, c.until(settled, now), now, &c.params, m.most)
	}
	c.answer(settled, now)
}

// Ban implements [Limiter]. Its only errors are about the checks and the time, and
// that there is no room for another ban.
func (m *Memory) Ban(_ context.Context, d time.Duration, checks ...Check) error {
	length, err := banLength(d)
	if err != nil {
		return err
	}
	return m.change(checks, func(pl *place, c *Check) error {
		return pl.banByHand(m.now(), length, c.banRule(), m.most)
	})
}

// Reset implements [Limiter]. Its only errors are about the checks. Counts in a
// sketch stay.
func (m *Memory) Reset(_ context.Context, checks ...Check) error {
	return m.change(checks, func(pl *place, _ *Check) error {
		pl.shard.table.remove(pl.id)
		pl.shard.table.remove(pl.ban)
		return nil
	})
}

// change does something to the places of valid checks, one after the other.
func (m *Memory) change(checks []Check, do func(*place, *Check) error) error {
	m.ready()
	var room [4]params
	ps, err := prepare(checks, &room)
	if err != nil {
		return err
	}
	for i := range checks {
		pl := m.place(&checks[i], &ps[i])
		pl.shard.mu.Lock()
		err = cmp.Or(err, do(&pl, &checks[i]))
		pl.shard.mu.Unlock()
	}
	return err
}

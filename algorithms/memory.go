package algorithms

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/seed75154129/ratelimit/internal/memory"
)

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

	// Now is the clock; nil means the wall clock at the start plus the monotonic
	// clock. It must not change after first use.
	Now func() time.Time

	once  sync.Once
	store memory.Store
}

func (m *Memory) ready() *memory.Store {
	m.once.Do(func() { m.store.MaxKeys, m.store.Clock = m.MaxKeys, m.Now })
	return &m.store
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
	var room [4]memory.Count
	counts, err := countsOf(checks, &room)
	if err != nil {
		return Decision{}, err
	}
	var d Decision
	now, allowed := m.ready().Decide(charge, counts)
	d.Allowed, d.Results = allowed, newResults(len(checks))
	for i := range counts {
		d.Results[i].counted(&checks[i], &counts[i], now)
	}
	return d, nil
}

// countsOf validates the checks and makes them counts. Room for four lets the usual
// request go without an allocation.
func countsOf(checks []Check, room *[4]memory.Count) ([]memory.Count, error) {
	counts := room[:min(len(checks), len(room))]
	if len(checks) > len(room) {
		counts = make([]memory.Count, len(checks))
	}
	for i := range checks {
		c := &checks[i]
		if !c.count(&counts[i]) {
			return nil, c.Validate()
		}
		for j := range checks[:i] {
			if sameCount(c, &checks[j], counts[i].Row, counts[j].Row) {
				return nil, twice(c, j, i)
			}
		}
	}
	return counts, nil
}

// count makes a check a count; false if it is not valid.
func (c *Check) count(to *memory.Count) bool {
	to.Rule, to.Key, to.Bans, to.Shadow, to.Waits = c.Rule, c.Key, c.bans(), c.Shadow, c.MaxDelay > 0
	if !c.numbers(&to.Params) {
		return false
	}
	if to.Ban.Within = cmp.Or(to.Period, day.Microseconds()); c.Ban != (Ban{}) {
		to.Ban = c.banRule()
	}
	return true
}

// counted makes the result of a check what its count came to.
func (r *Result) counted(c *Check, n *memory.Count, now int64) {
	r.Check, r.Source, r.At = *c, SourceMemory, time.UnixMicro(now)
	r.HasRoom, r.Charged, r.trace.Charge = n.Room, n.Charged, n.Where
	r.state(&n.Params, &n.State, &n.Answer)
	r.ban(n.BannedUntil, now)
}

// Settle implements [Limiter]. Its only errors are about the charges.
func (m *Memory) Settle(_ context.Context, charges ...Charge) ([]Result, error) {
	results, corrections, err := prepareSettle(charges, SourceMemory)
	for i := range corrections {
		m.settle(&corrections[i])
	}
	return results, err
}

func (m *Memory) settle(c *settlement) {
	c.answer(m.ready().Settle(c.result.Check.Rule, c.result.Check.Key, &c.Correction))
}

// Ban implements [Limiter]. Its only errors are about the checks and the time, and
// that there is no room for another ban.
func (m *Memory) Ban(_ context.Context, d time.Duration, checks ...Check) error {
	length, err := banLength(d)
	if err != nil {
		return err
	}
	var room [4]memory.Count
	counts, err := countsOf(checks, &room)
	if err != nil {
		return err
	}
	return m.ready().BanByHand(length, counts)
}

// Reset implements [Limiter]. Its only errors are about the checks. Counts in a
// sketch stay.
func (m *Memory) Reset(_ context.Context, checks ...Check) error {
	var room [4]memory.Count
	counts, err := countsOf(checks, &room)
	if err == nil {
		m.ready().Reset(counts)
	}
	return err
}

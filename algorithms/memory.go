package algorithms

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/seed75154129/ratelimit/internal/memory"
	"github.com/seed75154129/ratelimit/internal/spare"
)

// Memory counts in this process. Its zero value is ready. It is safe for concurrent use
// and starts no goroutines.
//
// Its memory is bounded. Fully replenished keys may be evicted. Other keys are never
// evicted, because an evicted key would have all of its units again. While MaxKeys keys
// are in use, further keys are counted in sketches. A sketch counts many keys together in
// constant memory, and errs only towards denying. Settle refunds nothing to a sketch, and
// Reset does not clear it. What a Middleware counts for bans is never in a sketch: it may
// use up to MaxKeys further entries, and is not counted beyond them.
//
// Keys are identified by 128 bits of hash, with secret seeds of this process. A key takes
// 64 to 128 bytes, however long it is. In a sliding_log it takes about 100 bytes more, and
// 16 for each further request. A sketch takes 8 MiB and is made when it is needed. There
// are at most 7 sketches. Each of the first six serves the keys of one Rule,
// algorithm and period. All other keys share the seventh, which is strict: after it has
// admitted a request of a key, it denies the key until all units of the key are free
// again. A sketch that has been empty for a minute is dropped when new keys come.
type Memory struct {
	// MaxKeys bounds the keys that have a count of their own; 0 means 262,144. Bans may take
	// as many entries again. It must not change after first use.
	MaxKeys int

	// Now is the clock; nil means the wall clock at first use plus the monotonic time
	// since. It must not change after first use.
	Now func() time.Time

	once   sync.Once
	store  memory.Store
	denied spare.Slices[Result]
}

// Store is what a failmode.Guard needs of a Memory beside its decisions. It is not for programs,
// and may change.
func (m *Memory) Store() *memory.Store { return m.ready() }

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
	if d.Allowed = allowed; allowed || !charge { // of denials by Peek, none is given back
		d.Results = make([]Result, len(checks))
	} else {
		d.Results = m.denied.Make(len(checks))
	}
	for i := range counts {
		d.Results[i].counted(&checks[i], &counts[i], now)
	}
	return d, nil
}

// Reuse lets the Memory write another denial over the results of d, a denial by its Take that
// nobody looks at any more. A Middleware does so if no function of the program's has seen it.
func (m *Memory) Reuse(d Decision) { m.denied.Reuse(d.Results) }

// countsOf validates the checks and converts them to counts. Up to four counts are in
// room, which saves an allocation.
func countsOf(checks []Check, room *[4]memory.Count) ([]memory.Count, error) {
	counts := room[:min(len(checks), len(room))]
	if len(checks) > len(room) {
		counts = make([]memory.Count, len(checks))
	}
	for i := range checks {
		if !checks[i].Count(&counts[i]) || sameAs(checks, i) < i {
			return nil, whyInvalid(checks, i)
		}
	}
	return counts, nil
}

// Count converts the check to a count of a Memory's Store, and reports whether the check is
// valid.
func (c *Check) Count(to *memory.Count) bool {
	to.Rule, to.Key, to.Shadow = c.Rule, c.Key, c.Shadow
	return c.numbers(&to.Params)
}

// counted fills in the result from a decided count.
func (r *Result) counted(c *Check, n *memory.Count, now int64) {
	r.Check, r.Source, r.At = *c, SourceMemory, time.UnixMicro(now)
	r.HasRoom, r.Charged, r.Trace.Charge = n.Room, n.Charged, n.Where
	r.state(&n.Params, &n.State, &n.Answer)
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

// Metrics yields what the Memory has counted.
func (m *Memory) Metrics() iter.Seq[Metric] {
	return func(yield func(Metric) bool) {
		stats := m.ready().Stats()
		slices.Values([]Metric{
			{Name: "ratelimit_local_keys", Value: float64(stats.Keys)},
			{Name: "ratelimit_local_evictions_total", Value: float64(stats.Evicted)},
			{Name: "ratelimit_local_overflow_total", Value: float64(stats.Overflowed)},
			{Name: "ratelimit_local_sketches", Value: float64(stats.Sketches)},
		})(yield)
	}
}

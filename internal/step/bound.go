package step

import (
	"sync/atomic"
	"time"
)

// A Bound is a cached conversion of a valid limit and a cost to params. Most requests
// have one of a few limits.
type Bound struct {
	Slot   uint64 // in Bounds
	limit  Limit
	cost   int64
	params Params
	args   []any // of the step's twin; shared, so never written
}

// Bounds caches the conversions that were used last, by hash. Two with the same hash
// replace each other, which costs only time.
var Bounds [256]atomic.Pointer[Bound]

// Numbers sets p to the params of a check, and reports whether the limit is valid. cost
// and maxDelay must not be negative.
func (l Limit) Numbers(p *Params, cost int64, maxDelay time.Duration) (ok bool) {
	slot := l.boundIndex(cost)
	cached := &Bounds[slot]
	b := cached.Load()
	if b == nil || b.limit != l || b.cost != cost {
		row := l.Row()
		if !l.OkFor(row) {
			return false
		}
		b = &Bound{Slot: slot, limit: l, cost: cost, params: l.Params(cost, 0, row)}
		if !row.Calendar {
			b.args = b.params.Step.Arguments(nil, b.params)
		}
		b.params.Bound = b
		cached.Store(b)
	}
	*p = b.params
	if p.Queue && maxDelay > 0 {
		p.wait(maxDelay.Microseconds())
	}
	return true
}

// boundIndex hashes a limit and a cost.
func (l Limit) boundIndex(cost int64) uint64 {
	mixed := uint64(l.Rate)*0x9e3779b97f4a7c15 + uint64(l.Period)*0xc2b2ae3d27d4eb4f + uint64(l.Burst)*0x165667b19e3779f9 +
		uint64(cost)*0x27d4eb2f165667c5 + uint64(l.Algorithm)*0x85ebca77c2b2ae63
	if l.Calendar != "" {
		mixed = (mixed ^ idOf(l.Calendar)) * 0x9e3779b97f4a7c15
	}
	return mixed >> 56 % uint64(len(Bounds))
}

// Arguments appends the arguments of the step's twin.
func (p *Params) Arguments(args []any) []any {
	if p.Bound != nil && !p.Calendar {
		return append(args, p.Bound.args...)
	}
	return p.Step.Arguments(args, *p)
}

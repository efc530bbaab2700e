package step

import (
	"sync/atomic"
	"time"
)

// A bound is a valid limit at a cost, as numbers. Most requests have one of a few,
// which are computed once.
type bound struct {
	limit  Limit
	cost   int64
	params Params
	args   []any // that the step's twin gets; shared, so never written
}

// Bounds has those that were used last, each in a place of its own unless they
// meet: then they take turns, which costs time and nothing else.
var Bounds [256]atomic.Pointer[bound]

// Numbers returns the params of a check; false if the limit is not valid. The cost
// and the longest delay must not be negative.
func (l Limit) Numbers(p *Params, cost int64, maxDelay time.Duration) (ok bool) {
	place := &Bounds[l.slot(cost)]
	b := place.Load()
	if b == nil || b.limit != l || b.cost != cost {
		row := l.Row()
		if !l.OkFor(row) {
			return false
		}
		b = &bound{limit: l, cost: cost, params: l.Params(cost, 0, row)}
		if !row.Calendar {
			b.args = b.params.Step.Arguments(nil, b.params)
		}
		b.params.Bound = b
		place.Store(b)
	}
	*p = b.params
	if p.Queue && maxDelay > 0 {
		p.wait(maxDelay.Microseconds())
	}
	return true
}

// slot is the place of the numbers. Algorithms differ in their first letter
// or in their length.
func (l Limit) slot(cost int64) uint64 {
	algorithm := uint64(len(l.Algorithm))
	if algorithm > 0 {
		algorithm = algorithm<<8 | uint64(l.Algorithm[0])
	}
	mixed := uint64(l.Rate)*0x9e3779b97f4a7c15 + uint64(l.Period)*0xc2b2ae3d27d4eb4f + uint64(l.Burst)*0x165667b19e3779f9 +
		uint64(cost)*0x27d4eb2f165667c5 + algorithm*0x85ebca77c2b2ae63
	if l.Calendar != "" {
		mixed = (mixed ^ idOf(l.Calendar)) * 0x9e3779b97f4a7c15
	}
	return mixed >> 56 % uint64(len(Bounds))
}

// Arguments appends what the step's twin gets.
func (p *Params) Arguments(args []any) []any {
	if p.Bound != nil && !p.Calendar {
		return append(args, p.Bound.args...)
	}
	return p.Step.Arguments(args, *p)
}

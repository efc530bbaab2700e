package algorithms

import "sync/atomic"

// A bound is a valid limit at a cost, as numbers. Most requests have one of a few,
// which are computed once.
type bound struct {
	limit  Limit
	cost   int64
	params params
	args   []any // that the step's twin gets; shared, so never written
}

// bounds has those that were used last, each in a place of its own unless they
// meet: then they take turns, which costs time and nothing else.
var bounds [256]atomic.Pointer[bound]

// numbers returns a check's params; false if it is not valid. Check.Validate has
// the reasons.
func (c *Check) numbers() (p params, ok bool) {
	if !c.okBeside() {
		return params{}, false
	}
	place := &bounds[c.slot()]
	b := place.Load()
	if b == nil || b.limit != c.Limit || b.cost != c.Cost {
		row := c.Limit.row()
		if !c.Limit.okFor(row) {
			return params{}, false
		}
		b = &bound{limit: c.Limit, cost: c.Cost, params: paramsOf(&Check{Limit: c.Limit, Cost: c.Cost}, row)}
		b.args = b.params.step.arguments(nil, b.params)
		b.params.bound = b
		place.Store(b)
	}
	p = b.params
	if p.queue && c.MaxDelay > 0 {
		p.wait(c.MaxDelay.Microseconds())
	}
	return p, true
}

// slot is the place of a check's numbers. Algorithms differ in their first letter
// or in their length.
func (c *Check) slot() uint64 {
	l, algorithm := &c.Limit, uint64(len(c.Limit.Algorithm))
	if algorithm > 0 {
		algorithm = algorithm<<8 | uint64(l.Algorithm[0])
	}
	mixed := uint64(l.Rate)*0x9e3779b97f4a7c15 + uint64(l.Period)*0xc2b2ae3d27d4eb4f + uint64(l.Burst)*0x165667b19e3779f9 +
		uint64(c.Cost)*0x27d4eb2f165667c5 + algorithm*0x85ebca77c2b2ae63
	return mixed >> 56 % uint64(len(bounds))
}

// arguments appends what the step's twin gets.
func (p *params) arguments(args []any) []any {
	if p.bound != nil {
		return append(args, p.bound.args...)
	}
	return p.step.arguments(args, *p)
}

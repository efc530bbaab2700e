package algorithms

import "sync/atomic"

// A settledCost holds the cost at which a charge was last settled. All copies of the
// result share it, so that no unit is refunded twice. It is nil for results that a
// limiter outside this module has made: each copy is a charge of its own.
type settledCost struct {
	complement atomic.Int64 // of the cost, which is negative; 0: the charge was never settled
	rising     atomic.Int64 // units of the cost that settlements under way are to charge first
}

// now returns what a charge of this many units costs now.
func (s *settledCost) now(units int64) int64 {
	if s != nil {
		if complement := s.complement.Load(); complement != 0 {
			return ^complement
		}
	}
	return units
}

// claim sets the charge's cost for all copies of its result, and returns the costs before
// and after. Units that another settlement has not charged yet cannot be refunded: the
// cost after is at least those. ok is false if there is nothing to settle: the charge has
// this cost already, or it has ended at 0. Each claim that is ok has its end.
func (s *settledCost) claim(units, cost int64) (before, after int64, ok bool) {
	for s != nil {
		complement := s.complement.Load()
		if before = ^complement; complement == 0 {
			before = units
		}
		if before <= 0 || before == cost {
			return before, before, false
		}
		rise := max(cost-before, 0)
		if rise == 0 {
			if after = max(cost, s.rising.Load()); after >= before {
				return before, before, false
			}
		} else {
			after = cost
			s.rising.Add(rise)
		}
		if s.complement.CompareAndSwap(complement, ^after) {
			return before, after, true
		}
		s.rising.Add(-rise)
	}
	return units, cost, units > 0 && units != cost
}

// end ends a claim. If the settlement was not made, it undoes the claim, but not the
// claims that others have made since.
func (s *settledCost) end(before, after int64, made bool) {
	for s != nil && !made {
		complement := s.complement.Load()
		made = s.complement.CompareAndSwap(complement, ^max(^complement+before-after, 0))
	}
	if s != nil && after > before { // last: until then nobody refunds these units
		s.rising.Add(before - after)
	}
}

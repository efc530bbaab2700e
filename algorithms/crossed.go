package algorithms

import "slices"

// Crossed reports whether the decision or the settlement that returned r raised the use of
// r's key from below percent of the limit to percent or above: 80 means that four fifths
// are used, 100 that nothing is left. In each window of a fixed_window, only one charge of
// all processes crosses the percentage, unless units are refunded or counts are reset. A
// bucket or a sliding window can be crossed again as it recovers. With Lease, this process
// estimates the count. A result of [SourceFallback] or [SourceFailOpen] crosses nothing.
func (r *Result) Crossed(percent float64) bool {
	at := percent / 100 * float64(r.Check.Limit.Quota())
	return slices.ContainsFunc(r.spans(), func(s span) bool { return float64(s.before) < at && at <= float64(s.after) })
}

// unmoved is of settlements that changed nothing.
var unmoved = []span{}

// spans returns what the decision or the settlement that returned r did to its count.
func (r *Result) spans() []span {
	switch {
	case r.Source == SourceFallback || r.Source == SourceFailOpen || r.BannedFor > 0:
		return nil
	case r.moved != nil:
		return *r.moved
	case r.Charged == 0:
		return nil
	}
	return []span{r.spanOf(r.Charged)}
}

// spanOf is the span of the change of so many units that led to r.
func (r *Result) spanOf(units int64) span {
	used := r.Check.Limit.Quota() - r.Remaining
	return span{used - units, used}
}

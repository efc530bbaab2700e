package algorithms

import "slices"

// Crossed reports whether the decision or the settlement that returned r took its key
// from below percent of the limit to percent or above: 80 means that four fifths are
// used, 100 that nothing is left. In a fixed window exactly one charge crosses it, in all
// processes together, until units are refunded or counts are reset. A bucket or a sliding
// window can be crossed again as it recovers. With Lease, this process estimates the
// count. A result of [SourceFallback] or [SourceFailOpen] crosses nothing.
func (r *Result) Crossed(percent float64) bool {
	at := percent / 100 * float64(r.Check.Limit.Quota())
	return slices.ContainsFunc(r.spans(), func(s span) bool { return float64(s.before) < at && at <= float64(s.after) })
}

// A span is how many units a key had used before and after a charge or a settlement.
type span struct{ before, after int64 }

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

// Over makes a copy of a result the last of its request: it crosses what was crossed
// after the decision.
func (h hiddenResult) Over() {
	if h.r.moved == nil {
		h.r.moved = &unmoved
	}
}

// With adds a further charge of the request for the same count: as it was taken, and as
// it is now. The result is Over.
func (h hiddenResult) With(taken, now *Result) {
	h.Over()
	spans := append(slices.Clone(h.r.spans()), taken.spans()...)
	if now.moved != nil {
		spans = append(spans, now.spans()...)
	}
	h.r.moved = &spans
	h.r.Charged += now.Charged
	if !now.At.Before(h.r.At) { // one settlement is at one time, and its last charge has the last word
		h.r.At, h.r.Remaining, h.r.RetryAfter, h.r.ResetAfter = now.At, now.Remaining, now.RetryAfter, now.ResetAfter
	}
}

package algorithms

// A Metric is one number, as it was when it was read. docs/metrics.md lists all of them; a
// minor version may add some. No label has a client's key.
type Metric struct {
	Name   string   // as in Prometheus; a name that ends in _total only grows
	Labels []string // names and values in turn: "rule", "login", "outcome", "denied"
	Value  float64  // of a histogram: the sum of all observed values

	Bounds []float64 // of a histogram: the upper bounds of its buckets, in order; otherwise nil
	Counts []uint64  // of a histogram: how many values are in each bucket, and in one more above the last bound
}

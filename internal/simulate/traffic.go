package simulate

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Traffic is what comes to a limit of Rate units in each Period. Its loads are
// multiples of the limit. Each request costs one unit.
type Traffic struct {
	Rate   int64
	Period time.Duration
}

// Random returns the source of chance of a seed.
func Random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, seed)) }

// Steady comes evenly.
func (t Traffic) Steady(load float64, length time.Duration) []Request {
	every := time.Duration(t.mean(load))
	return evenly(nil, every/2, every, int(length/every))
}

// Poisson comes at random.
func (t Traffic) Poisson(r *rand.Rand, load float64, length time.Duration) []Request {
	mean := t.mean(load)
	var all []Request
	for at := wait(r, mean); at < length; at += wait(r, mean) {
		all = append(all, Request{At: at, Cost: 1})
	}
	return all
}

// Bursty is a source that is on for a tenth of a period and off for half a period,
// on average, all at random. While it is on, it sends six times its load.
func (t Traffic) Bursty(r *rand.Rand, load float64, length time.Duration) []Request {
	on, off, every := float64(t.Period)/10, float64(t.Period)/2, t.mean(6*load)
	var all []Request
	for begin := time.Duration(0); begin < length; {
		end := begin + wait(r, on)
		for at := begin + wait(r, every); at < min(end, length); at += wait(r, every) {
			all = append(all, Request{At: at, Cost: 1})
		}
		begin = end + wait(r, off)
	}
	return all
}

// Edges spends load limits in the last sixtieth of a window and as much in the
// first of the next, which is the worst for fixed_window; nothing for a period;
// then again.
func (t Traffic) Edges(load float64, length time.Duration) []Request {
	var all []Request
	n, span := t.units(load), t.Period/60
	for edge := t.Period; edge < length; edge += 2 * t.Period {
		for i := range 2 * n {
			all = append(all, Request{At: edge - span + part(span, i, n), Cost: 1})
		}
	}
	return all
}

// Drip spends load limits in the last sixtieth of a window and as much, evenly, in
// all of the next, which is the worst for sliding_window and for buckets; nothing
// for a period; then again.
func (t Traffic) Drip(load float64, length time.Duration) []Request {
	var all []Request
	n, span := t.units(load), t.Period/60
	for edge := t.Period; edge < length; edge += 3 * t.Period {
		for i := range n {
			all = append(all, Request{At: edge - span + part(span, i, n), Cost: 1})
		}
		for i := range n - 1 {
			all = append(all, Request{At: edge + part(t.Period, i+1, n), Cost: 1})
		}
	}
	return all
}

// Clients is n clients, each Poisson: the first sends the load, the second half of
// it, the third a third.
func (t Traffic) Clients(r *rand.Rand, n int, load float64, length time.Duration) []Request {
	var all []Request
	for client := range n {
		for _, q := range t.Poisson(r, load/float64(client+1), length) {
			q.Client = client
			all = append(all, q)
		}
	}
	InOrder(all)
	return all
}

// Drawn divides the length into as many parts as there are counts, and has that
// many requests come evenly in each.
func Drawn(counts []int, length time.Duration) []Request {
	var all []Request
	for i, n := range counts {
		from, to := length*time.Duration(i)/time.Duration(len(counts)), length*time.Duration(i+1)/time.Duration(len(counts))
		if n > 0 {
			every := (to - from) / time.Duration(n)
			all = evenly(all, from+every/2, every, n)
		}
	}
	return all
}

// InOrder sorts requests by their times, those of one time as they are.
func InOrder(all []Request) {
	slices.SortStableFunc(all, func(a, b Request) int { return cmp.Compare(a.At, b.At) })
}

// mean is the time between two requests, on average.
func (t Traffic) mean(load float64) float64 { return float64(t.Period) / (float64(t.Rate) * load) }

func (t Traffic) units(load float64) int { return max(int(math.Round(float64(t.Rate)*load)), 1) }

// part is i nths of d, so that the nth request after an edge is not before it.
func part(d time.Duration, i, n int) time.Duration {
	return time.Duration(float64(d) * float64(i) / float64(n))
}

func evenly(all []Request, from, every time.Duration, n int) []Request {
	for i := range n {
		all = append(all, Request{At: from + time.Duration(i)*every, Cost: 1})
	}
	return all
}

// wait is a random time, exponential around its mean, in whole microseconds.
func wait(r *rand.Rand, mean float64) time.Duration {
	return time.Duration(r.ExpFloat64() * mean).Truncate(time.Microsecond)
}

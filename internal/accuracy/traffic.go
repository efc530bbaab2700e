package accuracy

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// A request of a client, at a time counted from an edge of a window.
type request struct {
	at     time.Duration
	client int
	cost   int64
}

// A shape is traffic that all algorithms are measured with.
type shape struct {
	slug     string // in names of figures and files
	title    string
	about    string
	requests []request
	picture  bool
	from     time.Duration // where its picture begins
}

func shapes() []shape {
	return []shape{{
		slug: "steady_half", title: "steady, 0.5×", about: "one request every 1.2 s",
		requests: steady(0.5, 30*period),
	}, {
		slug: "steady_full", title: "steady, 1×", about: "one every 0.6 s",
		requests: steady(1, 30*period),
	}, {
		slug: "steady", title: "steady, 1.5×", about: "one every 0.4 s",
		requests: steady(1.5, 30*period), picture: true,
	}, {
		slug: "poisson", title: "Poisson, 1×", about: "at random, 100 a minute on average",
		requests: poisson(random(1), rate, 1, 200*period), picture: true, from: 6 * period,
	}, {
		slug: "bursty", title: "bursty, 1×", about: "on for 6 s at 10 a second, off for 30 s, on average; all at random",
		requests: bursty(random(2), 200*period), picture: true, from: 4 * period,
	}, {
		slug: "window_edges", title: "window edges", about: "100 in the last second of a minute, 100 in the first of the next; nothing for a minute; again",
		requests: edges(30), picture: true,
	}, {
		slug: "edge_then_drip", title: "edge, then drip", about: "100 in the last second of a minute, one every 0.6 s in the next; nothing for a minute; again",
		requests: drip(30), picture: true,
	}, {
		slug: "costs", title: "costs of 1 to 10", about: "Poisson, 100 units a minute on average",
		requests: costs(random(3), 400*period),
	}, {
		slug: "clients", title: "many clients", about: "2000 clients, each Poisson: half send at most 1 a minute, 0.5 % more than the limit, none more than 3 times as much",
		requests: population(random(4), 2000, 6*period),
	}}
}

func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, seed)) }

// steady comes evenly, at load times the rate.
func steady(load float64, length time.Duration) []request {
	every := time.Duration(float64(period) / (rate * load))
	return evenly(nil, every/2, every, int(length/every))
}

func evenly(all []request, from, every time.Duration, n int) []request {
	for i := range n {
		all = append(all, request{at: from + time.Duration(i)*every, cost: 1})
	}
	return all
}

// poisson comes at random, at load times a rate.
func poisson(r *rand.Rand, rate int64, load float64, length time.Duration) []request {
	mean := float64(period) / (float64(rate) * load)
	var all []request
	for at := wait(r, mean); at < length; at += wait(r, mean) {
		all = append(all, request{at: at, cost: 1})
	}
	return all
}

// wait is a random time, exponential around its mean, in whole microseconds.
func wait(r *rand.Rand, mean float64) time.Duration {
	return time.Duration(r.ExpFloat64() * mean).Truncate(time.Microsecond)
}

// bursty is a source that is on or off.
func bursty(r *rand.Rand, length time.Duration) []request {
	const on, off = 6 * time.Second, 30 * time.Second
	const every = time.Second / 10
	var all []request
	for begin := time.Duration(0); begin < length; {
		end := begin + wait(r, float64(on))
		for at := begin + wait(r, float64(every)); at < end; at += wait(r, float64(every)) {
			all = append(all, request{at: at, cost: 1})
		}
		begin = end + wait(r, float64(off))
	}
	return all
}

// edges spends two windows' limits around the edge between them, which is the
// worst for fixed_window.
func edges(rounds int) []request {
	var all []request
	for i := range rounds {
		edge := time.Duration(2*i+1) * period
		all = evenly(all, edge-time.Second, time.Second/rate, 2*rate)
	}
	return all
}

// drip spends one window at its end and, evenly, the whole of the next, which
// is the worst for sliding_window and for buckets.
func drip(rounds int) []request {
	var all []request
	for i := range rounds {
		edge := time.Duration(3*i+1) * period
		all = evenly(all, edge-time.Second, time.Second/rate, rate)
		all = evenly(all, edge+period/rate, period/rate, rate-1)
	}
	return all
}

// mostCost is what a request of costs takes at most.
const mostCost = 10

// costs is poisson with requests that take more than one unit.
func costs(r *rand.Rand, length time.Duration) []request {
	all := poisson(r, rate, 2/(1.0+mostCost), length)
	for i := range all {
		all[i].cost = 1 + r.Int64N(mostCost)
	}
	return all
}

// population is clients of which most send little and few send much: their
// loads follow Pareto's distribution with exponent 1, up to 3.
func population(r *rand.Rand, clients int, length time.Duration) []request {
	var all []request
	for client := range clients {
		load := math.Min(0.005/(1-r.Float64()), 3)
		for _, q := range poisson(r, rate, load, length) {
			q.client = client
			all = append(all, q)
		}
	}
	slices.SortStableFunc(all, func(a, b request) int { return cmp.Compare(a.at, b.at) })
	return all
}

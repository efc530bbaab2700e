package accuracy

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/seed75154129/ratelimit/internal/simulate"
)

// traffic has loads relative to the limit of all columns.
var traffic = simulate.Traffic{Rate: rate, Period: period}

// A shape is traffic that all algorithms are measured with.
type shape struct {
	slug     string // in names of figures and files
	title    string
	about    string
	requests []simulate.Request
	picture  bool
	from     time.Duration // where its picture begins
}

func shapes() []shape {
	return []shape{{
		slug: "steady_half", title: "steady, 0.5×", about: "one request every 1.2 s",
		requests: traffic.Steady(0.5, 30*period),
	}, {
		slug: "steady_full", title: "steady, 1×", about: "one request every 0.6 s",
		requests: traffic.Steady(1, 30*period),
	}, {
		slug: "steady", title: "steady, 1.5×", about: "one every 0.4 s",
		requests: traffic.Steady(1.5, 30*period), picture: true,
	}, {
		slug: "poisson", title: "Poisson, 1×", about: "at random, 100 a minute on average",
		requests: traffic.Poisson(simulate.Random(1), 1, 200*period), picture: true, from: 6 * period,
	}, {
		slug: "bursty", title: "bursty, 1×", about: "at random: on average 6 s with 10 requests a second, then 30 s without",
		requests: traffic.Bursty(simulate.Random(2), 1, 200*period), picture: true, from: 4 * period,
	}, {
		slug: "window_edges", title: "window edges", about: "every two minutes: 100 in the last second of a minute, 100 in the first of the next",
		requests: traffic.Edges(1, 60*period), picture: true,
	}, {
		slug: "edge_then_drip", title: "edge, then drip", about: "every three minutes: 100 in the last second of a minute, one request every 0.6 s in the next",
		requests: traffic.Drip(1, 90*period), picture: true,
	}, {
		slug: "costs", title: "costs of 1 to 10", about: "Poisson, 100 units a minute on average",
		requests: costs(simulate.Random(3), 400*period),
	}, {
		slug: "clients", title: "many clients", about: "2,000 clients, each Poisson: half send at most 1 a minute, 9 clients none; one client in 200 averages above the limit, up to threefold",
		requests: population(simulate.Random(4), 2000, 6*period),
	}}
}

// mostCost is what a request of costs takes at most.
const mostCost = 10

// costs is Poisson with requests that take more than one unit.
func costs(r *rand.Rand, length time.Duration) []simulate.Request {
	all := traffic.Poisson(r, 2/(1.0+mostCost), length)
	for i := range all {
		all[i].Cost = 1 + r.Int64N(mostCost)
	}
	return all
}

// population is clients of which most send little and few send much: their
// loads follow Pareto's distribution with exponent 1, up to 3.
func population(r *rand.Rand, clients int, length time.Duration) []simulate.Request {
	var all []simulate.Request
	for client := range clients {
		load := math.Min(0.005/(1-r.Float64()), 3)
		for _, q := range traffic.Poisson(r, load, length) {
			q.Client = client
			all = append(all, q)
		}
	}
	simulate.InOrder(all)
	return all
}

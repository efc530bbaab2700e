package outages

import (
	"net/http"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

const (
	namespace = "outages"
	instances = 2
	share     = 100 // of the limit of "local"
	limit     = instances * share

	abuser   = "abuser"
	newcomer = "newcomer"
)

// forGood is a period that does not end during a test, so that used units stay
// used: its windows begin in 1970, 2020 and 2070.
const forGood = 50 * 365 * 24 * time.Hour

var localLimit = algorithms.Limit{Rate: limit, Period: forGood, Algorithm: algorithms.SlidingWindow}

// rules are one for each fail mode, and one that applies to all requests. No
// window of theirs ends, so counts are exact.
func rules() []ratelimit.Rule {
	client := keyfunc.Func(func(r *http.Request) (string, error) { return recordOf(r).client, nil })
	wide := func(a algorithms.Algorithm) algorithms.Limit {
		return algorithms.Limit{Rate: 10_000, Period: forGood, Algorithm: a}
	}
	return []ratelimit.Rule{
		{Name: "each", Key: client, Limit: algorithms.Limit{Rate: 1_000_000, Period: forGood, Algorithm: algorithms.FixedWindow}},
		{Name: "local", Match: []string{"/local"}, Key: client, Fail: failmode.Local,
			Limit: localLimit},
		{Name: "open", Match: []string{"/open"}, Key: client, Fail: failmode.Open, Limit: wide(algorithms.FixedWindow)},
		{Name: "closed", Match: []string{"/closed"}, Key: client, Fail: failmode.Closed, Limit: wide(algorithms.SlidingLog)},
	}
}

var routes = []string{"local", "open", "closed"}

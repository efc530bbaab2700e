package lab

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/simulate"
	"github.com/seed75154129/ratelimit/internal/step"
)

// columns is into how many parts of equal length the page divides time.
const columns = 240

// A simulation is the content of the page. All series have a number for each column.
type simulation struct {
	Rate     int64   `json:"rate"`
	Period   float64 `json:"period"` // in seconds
	Periods  int     `json:"periods"`
	Clients  int     `json:"clients"`
	Requests int     `json:"requests"`
	Arrivals []int   `json:"arrivals"`
	Rows     []row   `json:"rows"`
}

// A row holds the decisions of one algorithm about the traffic.
type row struct {
	Algorithm algorithms.Algorithm `json:"algorithm"`
	Limit     string               `json:"limit"` // the text form
	Quota     int64                `json:"quota"`
	Bucket    bool                 `json:"bucket"` // has a burst
	Held      bool                 `json:"held"`   // limits the requests under way
	Go        string               `json:"go"`
	YAML      string               `json:"yaml"`

	Admitted     []int     `json:"admitted"`
	Denied       []int     `json:"denied"`
	FalseAdmits  []int     `json:"falseAdmits"`
	FalseDenials []int     `json:"falseDenials"`
	Served       []int64   `json:"served"`    // the most units in a window that ends there, of any client
	Remaining    []int64   `json:"remaining"` // at the column's end, the least of any client
	Waiting      []int     `json:"waiting"`   // the most that wait for their turn, of any client
	AtOnce       []int     `json:"atOnce"`    // the most that are under way, of any client
	Wait         []float64 `json:"wait"`      // seconds that a request which comes there waits at most

	Totals    totals   `json:"totals"`
	PerClient []client `json:"perClient,omitempty"` // where there are several
}

// Totals are the numbers beside a plot, by the definitions of internal/simulate.
type totals struct {
	Admitted     int     `json:"admitted"`
	Denied       int     `json:"denied"`
	Worst        int64   `json:"worst"`
	FalseAdmits  int     `json:"falseAdmits"`
	FalseDenials int     `json:"falseDenials"`
	LongestWait  float64 `json:"longestWait"` // in seconds
	AtOnce       int     `json:"atOnce"`
}

type client struct {
	Admitted int   `json:"admitted"`
	Denied   int   `json:"denied"`
	Worst    int64 `json:"worst"`
}

func (s scenario) simulate() (simulation, error) {
	requests := s.requests()
	result := simulation{
		Rate: s.rate, Period: s.period.Seconds(), Periods: s.periods, Clients: 1, Requests: len(requests),
		Arrivals: make([]int, columns),
	}
	if s.traffic == "clients" {
		result.Clients = s.clients
	}
	for _, q := range requests {
		result.Arrivals[s.column(q.At)]++
	}
	for _, a := range s.algorithms {
		r, err := s.run(a, requests, result.Clients)
		if err != nil {
			return simulation{}, err
		}
		result.Rows = append(result.Rows, r)
	}
	return result, nil
}

func (s scenario) run(a algorithms.Algorithm, requests []simulate.Request, clients int) (row, error) {
	limit := s.limit(a)
	peeks := make([]time.Duration, columns)
	for i := range peeks {
		peeks[i] = s.begin(i+1) - time.Microsecond
	}
	outcomes, left, err := simulate.Run(requests, limit, peeks...)
	if err != nil {
		return row{}, err
	}
	kind := step.Lookup(uint16(a))
	r := row{
		Algorithm: a, Limit: limit.String(), Quota: limit.Quota(), Bucket: kind.Bucket, Held: kind.Held,
		Admitted: make([]int, columns), Denied: make([]int, columns),
		FalseAdmits: make([]int, columns), FalseDenials: make([]int, columns),
		Served: make([]int64, columns), Remaining: left, Wait: make([]float64, columns),
	}
	r.Waiting = s.most(requests, outcomes, func(i int) (from, to time.Duration) { return requests[i].At, outcomes[i].Served })
	r.AtOnce = s.most(requests, outcomes, func(i int) (from, to time.Duration) {
		return outcomes[i].Served, outcomes[i].Served + requests[i].Duration
	})
	if r.YAML, err = ruleFile(limit); err != nil {
		return row{}, err
	}
	if r.Go, err = program(limit); err != nil {
		return row{}, err
	}
	score := simulate.Judge(requests, outcomes, s.rate, s.period, func(i int) {
		if outcomes[i].Allowed {
			r.FalseAdmits[s.column(requests[i].At)]++
		} else {
			r.FalseDenials[s.column(requests[i].At)]++
		}
	})
	r.Totals = totals{
		Admitted: score.Admitted, Denied: score.Denied(), Worst: score.Worst,
		FalseAdmits: score.FalseAdmits, FalseDenials: score.FalseDenials, LongestWait: score.MaxDelay.Seconds(),
		AtOnce: slices.Max(r.AtOnce),
	}
	served, each := make(simulate.Logs), make([]client, clients)
	for i, q := range requests {
		c, o, column := &each[q.Client], outcomes[i], s.column(q.At)
		if !o.Allowed {
			r.Denied[column]++
			c.Denied++
			continue
		}
		log := served.Of(q.Client)
		log.Add(o.Served, q.Cost)
		r.Admitted[column]++
		r.Wait[column] = max(r.Wait[column], (o.Served - q.At).Seconds())
		c.Admitted, c.Worst = c.Admitted+1, max(c.Worst, log.Units(o.Served, s.period))
	}
	for i := range r.Served {
		for _, log := range served {
			r.Served[i] = max(r.Served[i], log.Most(s.begin(i), s.begin(i+1), s.period))
		}
	}
	if clients > 1 {
		r.PerClient = each
	}
	return r, nil
}

// column is the column that a time is in.
func (s scenario) column(at time.Duration) int { return column(at, s.length()) }

func column(at, length time.Duration) int {
	return min(int(float64(at)/float64(length)*columns), columns-1)
}

// begin is when a column begins.
func (s scenario) begin(column int) time.Duration {
	return time.Duration(float64(s.length()) * float64(column) / columns)
}

// most is how many admitted requests of one client are between from and to at once, at
// most, in each column.
func (s scenario) most(requests []simulate.Request, outcomes []simulate.Outcome, span func(i int) (from, to time.Duration)) []int {
	type change struct {
		at         time.Duration
		by, client int
	}
	var changes []change
	for i, q := range requests {
		if from, to := span(i); outcomes[i].Allowed && from < to {
			changes = append(changes, change{from, 1, q.Client}, change{to, -1, q.Client})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	most, now := make([]int, columns), make([]int, maxClients)
	for i := range most {
		most[i] = slices.Max(now)
		for len(changes) > 0 && changes[0].at < s.begin(i+1) {
			c := changes[0]
			now[c.client] += c.by
			most[i] = max(most[i], now[c.client])
			changes = changes[1:]
		}
	}
	return most
}

package simulate

import (
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/rated"
)

// tenAMinute is a limit of each algorithm.
func tenAMinute() (limits []algorithms.Limit) {
	for _, row := range rated.Rows {
		limit := algorithms.Limit{Rate: 10, Period: time.Minute, Algorithm: algorithms.Algorithm(row.Number)}
		if row.Bucket {
			limit.Burst = 4
		}
		limits = append(limits, limit)
	}
	return limits
}

// Virtual time decides as the real clock would: here the fake one of synctest.
func TestVirtualTimeIsTime(t *testing.T) {
	traffic := Traffic{10, time.Minute}
	requests := traffic.Clients(Random(1), 3, 2, 8*time.Minute)
	for _, limit := range tenAMinute() {
		got, _, err := Run(requests, limit)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) {
			memory, start := new(algorithms.Memory), time.Now()
			if !start.Equal(edge(limit.Period)) {
				t.Fatalf("fake time begins at %s, virtual time at %s", start, edge(limit.Period))
			}
			for i, q := range requests {
				time.Sleep(time.Until(start.Add(q.At)))
				d, err := memory.Take(t.Context(), algorithms.Check{Rule: "r", Key: strconv.Itoa(q.Client), Limit: limit, Cost: q.Cost})
				if err != nil {
					t.Fatal(err)
				}
				if want := (Outcome{d.Allowed, q.At + d.Delay(), d.Results[0].Remaining}); got[i] != want {
					t.Fatalf("%s: request %d: %+v, want %+v", limit, i, got[i], want)
				}
			}
		})
	}
}

// in_flight admits a request if fewer than N of its client's are under way, and only
// then. A request that ends as another arrives has made room for it.
func TestInFlightIsExact(t *testing.T) {
	const most = 3
	r := Random(1)
	requests := Traffic{100, time.Minute}.Clients(r, 3, 2, 4*time.Minute)
	for i := range requests { // on a grid, so that ends and arrivals meet
		requests[i].At = requests[i].At.Truncate(s / 4)
		requests[i].Duration = wait(r, float64(2*s)).Truncate(s / 4)
	}
	peeks := make([]time.Duration, 600)
	for i := range peeks {
		peeks[i] = time.Duration(i) * s / 2
	}
	outcomes, left, err := Run(requests, algorithms.MaxInFlight(most), peeks...)
	if err != nil {
		t.Fatal(err)
	}
	underWay := func(before []Request, client int, at time.Duration) (n int64) {
		for i, q := range before {
			if outcomes[i].Allowed && q.Client == client && q.At <= at && at < q.At+q.Duration {
				n++
			}
		}
		return n
	}
	full, met := 0, 0
	for i, q := range requests {
		n := underWay(requests[:i], q.Client, q.At)
		want := Outcome{n < most, q.At, most - n}
		if want.Allowed {
			want.Remaining--
		} else {
			full++
		}
		if outcomes[i] != want {
			t.Fatalf("request %d, with %d under way: %+v, want %+v", i, n, outcomes[i], want)
		}
		met += int(underWay(requests[:i], q.Client, q.At-1) - n)
	}
	for i, at := range peeks {
		want := int64(most)
		for client := range 3 {
			want = min(want, most-underWay(requests, client, at))
		}
		if left[i] != want {
			t.Fatalf("at %s: %d left, want %d", at, left[i], want)
		}
	}
	if full < 50 || met < 50 || left[len(left)-1] != most {
		t.Errorf("%d denied, %d ended as another arrived, %d left in the end", full, met, left[len(left)-1])
	}
}

// The charges of other algorithms stay when a request is over.
func TestOnlyInFlightEnds(t *testing.T) {
	requests := Traffic{10, time.Minute}.Poisson(Random(1), 2, 8*time.Minute)
	for _, limit := range tenAMinute() {
		want, _, err := Run(requests, limit)
		if err != nil {
			t.Fatal(err)
		}
		long := slices.Clone(requests)
		for i := range long {
			long[i].Duration = s
		}
		if got, _, err := Run(long, limit); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: durations change what is decided, %v", limit, err)
		}
	}
}

func TestRunPeeks(t *testing.T) {
	limit := algorithms.Limit{Rate: 10, Period: 10 * time.Second, Burst: 4, Algorithm: algorithms.TokenBucket}
	requests := []Request{{At: s, Client: 1, Cost: 3}, {At: s, Client: 2, Cost: 1}, {At: 2 * s, Client: 1, Cost: 9}}
	_, left, err := Run(requests[:2], limit, 0, s, s+1, 2*s, 3*s, 9*s)
	if want := []int64{4, 1, 1, 2, 3, 4}; err != nil || !slices.Equal(left, want) {
		t.Errorf("%d, %v; want %d", left, err, want)
	}
	if outcomes, _, err := Run(requests, limit, s); err != nil || outcomes[2].Allowed {
		t.Errorf("%v, %v", outcomes, err)
	}
	if _, _, err := Run([]Request{{Cost: -1}}, limit); err == nil {
		t.Error("a negative cost is simulated")
	}
}

// Time begins where a window of any period does: of 7 days on a Thursday.
func TestTimeBeginsAtAnEdge(t *testing.T) {
	for _, period := range []time.Duration{time.Microsecond, time.Second, 7 * time.Second, 90 * time.Second, time.Hour, 24 * time.Hour, 7 * 24 * time.Hour} {
		at := edge(period)
		if at.UnixNano()%int64(period) != 0 || at.Year() != 2000 {
			t.Errorf("%s: %s", period, at)
		}
	}
	limit := algorithms.Limit{Rate: 1, Period: 7 * time.Second, Algorithm: algorithms.FixedWindow}
	outcomes, _, err := Run([]Request{{At: 0, Cost: 1}, {At: 7*s - time.Microsecond, Cost: 1}, {At: 7 * s, Cost: 1}}, limit)
	if err != nil || !outcomes[0].Allowed || outcomes[1].Allowed || !outcomes[2].Allowed {
		t.Errorf("%+v, %v", outcomes, err)
	}
}

func TestTraffic(t *testing.T) {
	traffic, length := Traffic{100, time.Minute}, 10*time.Minute
	for name, c := range map[string]struct {
		got         []Request
		least, most int
	}{
		"steady":  {traffic.Steady(1.5, length), 1500, 1500},
		"poisson": {traffic.Poisson(Random(1), 1.5, length), 1380, 1620},
		"bursty":  {traffic.Bursty(Random(1), 1.5, length), 500, 3000},
		"edges":   {traffic.Edges(1.5, length), 5 * 300, 5 * 300},
		"drip":    {traffic.Drip(1.5, length), 3 * 299, 3 * 299},
		"clients": {traffic.Clients(Random(1), 3, 1.5, length), 2550, 2950},
		"drawn":   {Drawn([]int{0, 3, 0, 100}, length), 103, 103},
		"one":     {traffic.Edges(0.001, length), 10, 10},
	} {
		if n := len(c.got); n < c.least || n > c.most {
			t.Errorf("%s: %d requests, want %d to %d", name, n, c.least, c.most)
		}
		last := time.Duration(0)
		for _, q := range c.got {
			if q.At < last || q.At >= length || q.Cost != 1 || q.Client > 2 {
				t.Fatalf("%s: %+v after %s", name, q, last)
			}
			last = q.At
		}
	}
	if !slices.Equal(traffic.Poisson(Random(7), 1, length), traffic.Poisson(Random(7), 1, length)) {
		t.Error("a seed gives other traffic the second time")
	}
}

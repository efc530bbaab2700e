package algorithms

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/internal/step"
)

// fiftyYears is a period of which nothing ends while a test runs: its windows
// begin in 2019 and 2069.
const fiftyYears = 50 * 365 * 24 * time.Hour

// endless is a limit that frees nothing while a test runs, so that with every
// algorithm the total it admits is exact, however long the test takes.
func endless(a Algorithm, units int64) Limit {
	row := step.Lookup(uint16(a))
	units = min(units, row.MaxRate)
	l := Limit{Rate: units, Period: fiftyYears, Algorithm: a}
	switch {
	case row.Bucket:
		l.Burst = units
	case row.Calendar:
		l.Period, l.Calendar = 0, "year@UTC"
	}
	return l
}

// following is the algorithm n rows further down the table, from its top again
// after its end.
func following(i, n int) Algorithm { return Algorithm(step.Table[(i+n)%len(step.Table)].Number) }

const (
	tight = 100       // units that many requests compete for
	wide  = 1_000_000 // more than any test takes
)

// userAndEveryone are requests of two users who together may make more than
// everyone may. Each algorithm is once that of everyone's limit.
func userAndEveryone() (requests [][]Check) {
	for i := range step.Table {
		everyone := Check{Rule: "everyone", Key: fmt.Sprint("everyone-", i), Limit: endless(following(i, 0), tight)}
		for _, user := range []string{"alice", "bob"} {
			requests = append(requests, []Check{
				everyone,
				{Rule: "user", Key: fmt.Sprint(user, "-", i), Limit: endless(following(i, 1), tight*3/4)},
			})
		}
	}
	return requests
}

// A tally is what became of requests that were taken in turns.
type tally struct {
	admitted []int64       // how often, for each request
	took     time.Duration // by all denied ones together
}

// used is what each check's count should be.
func (t *tally) used(requests [][]Check) map[Check]int64 {
	used := map[Check]int64{}
	for i, checks := range requests {
		for _, c := range checks {
			used[c] += t.admitted[i] * max(c.Cost, 1)
		}
	}
	return used
}

func rotated(checks []Check, n int) []Check {
	n %= len(checks)
	return append(checks[n:len(checks):len(checks)], checks[:n]...)
}

// errOf is the error of a check that could not be decided.
func errOf(d Decision) error {
	for i := range d.Results {
		if err := d.Results[i].Err; err != nil {
			return err
		}
	}
	return nil
}

// usedOf asks the store how much of a check's limit is used.
func usedOf(t *testing.T, c Limiter, check Check) int64 {
	t.Helper()
	d, err := c.Peek(t.Context(), check)
	if err != nil {
		t.Fatal(err)
	}
	return check.Limit.Quota() - d.Results[0].Remaining
}

// Many processes with many goroutines each, on one Redis and the same keys, are admitted
// exactly the limit. A request of several rules is charged to all of them or to none: the
// rules with room have counted what was admitted.
func TestProcessesAdmitExactlyTheLimit(t *testing.T) {
	t.Parallel()
	const processes, goroutines = 3, 8 // in each process
	times := 20                        // that each goroutine takes each request, more often than it can be admitted
	if testing.Short() {
		times = 10
	}
	srv, requests := redistest.Start(t), userAndEveryone()
	opts := srv.Options()
	opts.ReadTimeout = roomy
	got := tally{admitted: make([]int64, len(requests))}
	var all sync.WaitGroup
	var limiters [processes]*Redis
	for i := range limiters {
		client := redis.NewClient(opts)
		defer client.Close()
		limiters[i] = &Redis{Client: client, Namespace: "processes", Budget: roomy}
	}
	for _, r := range limiters {
		for g := range goroutines {
			all.Go(func() {
				for n := range times * len(requests) { // each begins with another, and with its checks in another order
					i := (n + g) % len(requests)
					d, err := r.Take(t.Context(), rotated(requests[i], n+g)...)
					if err := cmp.Or(err, errOf(d)); err != nil {
						t.Error(err)
						return
					}
					if d.Allowed {
						atomic.AddInt64(&got.admitted[i], 1)
					}
				}
			})
		}
	}
	all.Wait()
	for i := 0; i < len(requests); i += 2 {
		alice, bob := got.admitted[i], got.admitted[i+1]
		if most := requests[i][1].Limit.Quota(); alice+bob != tight || alice > most || bob > most {
			t.Errorf("%s: admitted %d of alice and %d of bob, want %d, and of each at most %d", requests[i][0].Limit, alice, bob, tight, most)
		}
	}
	for c, units := range got.used(requests) {
		if used := usedOf(t, limiters[0], c); used != units {
			t.Errorf("rule %s, key %s, %s: %d units used in Redis, %d were admitted", c.Rule, c.Key, c.Limit, used, units)
		}
	}
}

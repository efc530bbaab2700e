package algorithms

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/internal/step"
)

// fiftyYears is a period of which nothing ends while a test runs: its windows
// begin in 2019 and 2069.
const fiftyYears = 50 * 365 * 24 * time.Hour

// endless is a limit that frees nothing while a test runs, so that with every
// algorithm the total it admits is exact, however long the test takes.
func endless(a Algorithm, units int64) Limit {
	row := step.Lookup(string(a))
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
func following(i, n int) Algorithm { return Algorithm(step.Table[(i+n)%len(step.Table)].Name) }

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
	Admitted []int64       // how often, for each request
	Took     time.Duration // by all denied ones together
}

func (t *tally) add(o tally) {
	if t.Admitted == nil {
		t.Admitted = make([]int64, len(o.Admitted))
	}
	for i, n := range o.Admitted {
		t.Admitted[i] += n
	}
	t.Took += o.Took
}

// used is what each check's count should be.
func (t *tally) used(requests [][]Check) map[Check]int64 {
	used := map[Check]int64{}
	for i, checks := range requests {
		for _, c := range checks {
			used[c] += t.Admitted[i] * max(c.Cost, 1)
		}
	}
	return used
}

// takeTurns has goroutines take each request so many times, all beginning with
// another and with the checks in another order.
func takeTurns(ctx context.Context, l Limiter, goroutines, times int, requests [][]Check) (tally, error) {
	var mu sync.Mutex
	all := tally{Admitted: make([]int64, len(requests))}
	var errs []error
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			mine := tally{Admitted: make([]int64, len(requests))}
			var err error
			for n := 0; n < times*len(requests) && err == nil; n++ {
				i := (n + g) % len(requests)
				begin := time.Now()
				d, takeErr := l.Take(ctx, rotated(requests[i], n+g)...)
				if d.Allowed {
					mine.Admitted[i]++
				} else {
					mine.Took += time.Since(begin)
				}
				err = cmp.Or(takeErr, errOf(d))
			}
			mu.Lock()
			defer mu.Unlock()
			all.add(mine)
			errs = append(errs, err)
		})
	}
	wg.Wait()
	return all, errors.Join(errs...)
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

const (
	processes  = 3
	goroutines = 8 // in each process
)

// Many processes with many goroutines each, on one Redis and the same keys, are admitted
// exactly the limit. A request of several rules is charged to all of them or to none: the
// rules with room have counted what was admitted.
func TestProcessesAdmitExactlyTheLimit(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	requests := userAndEveryone()
	got := takeInProcesses(t, srv, requests)
	for i := 0; i < len(requests); i += 2 {
		alice, bob := got.Admitted[i], got.Admitted[i+1]
		if most := requests[i][1].Limit.Quota(); alice+bob != tight || alice > most || bob > most {
			t.Errorf("%s: admitted %d of alice and %d of bob, want %d, and of each at most %d", requests[i][0].Limit, alice, bob, tight, most)
		}
	}
	wantUsed(t, srv, got.used(requests))
}

// takeInProcesses takes the requests in processes with goroutines, each more
// often than it can be admitted.
func takeInProcesses(t *testing.T, srv *redistest.Server, requests [][]Check) tally {
	t.Helper()
	times := 20
	if testing.Short() {
		times = 10
	}
	begin := time.Now()
	all := runProcesses(t, job{Redis: srv.Addr, Goroutines: goroutines, Times: times, Requests: requests})
	t.Logf("%d processes of %d goroutines took %d requests in %s", processes, goroutines,
		processes*goroutines*times*len(requests), time.Since(begin).Round(time.Millisecond))
	return all
}

// wantUsed wants the counts in Redis as they are.
func wantUsed(t *testing.T, srv *redistest.Server, want map[Check]int64) {
	t.Helper()
	r := &Redis{Client: srv.Client(t), Namespace: jobNamespace, Budget: roomy}
	for c, units := range want {
		if got := usedOf(t, r, c); got != units {
			t.Errorf("rule %s, key %s, %s: %d units used in Redis, %d were admitted", c.Rule, c.Key, c.Limit, got, units)
		}
	}
}

package benchmarks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A subject is what is measured: it makes what one caller does for each of its
// requests. An error says that the request was not decided as it should be.
type subject func() func(client int) error

// stride visits the clients in an order in which neighbours share nothing.
const stride = 7919

var callerCounts = []int{1, 16, 128, 1024}

// A load is how requests come.
type load struct {
	callers int             // exactly that many goroutines
	servers []*redis.Client // whose CPU time, round trips and scripts are reported
	timed   int             // one request in so many is timed; 0 means every one
	failing bool            // errors are counted, and end nothing
}

// inProcess is the timing of requests that take about as long as looking at the
// clock does.
const inProcess = 16

// measure shares b.N requests among the callers.
func (l load) measure(b *testing.B, s subject) {
	b.Helper()
	b.ReportAllocs()
	do, latencies := l.begin(s)
	before := usageOf(b, l.servers...)
	b.ResetTimer()
	_, err := l.send(do, latencies, b.N)
	b.StopTimer()
	if err != nil {
		b.Fatal(err)
	}
	if len(l.servers) > 0 {
		usageOf(b, l.servers...).since(before).report(b, b.N)
	}
	report(b, latencies)
}

// begin makes what the callers do.
func (l load) begin(s subject) ([]func(int) error, []sampler) {
	do, latencies := make([]func(int) error, l.callers), make([]sampler, l.callers)
	for i := range do {
		do[i] = s()
		latencies[i] = sampler{every: cmp.Or(l.timed, 1), latest: make([]time.Duration, 0, samplesKept/l.callers)}
	}
	return do, latencies
}

// send shares n requests among the callers.
func (l load) send(do []func(int) error, latencies []sampler, n int) (failed int64, err error) {
	errs := make([]error, l.callers)
	// Callers fetch their work in small shares: large ones would leave some
	// without at the end, and single requests make them meet at the counter.
	share := max(1, min(64, n/(l.callers*16)))
	var next, failures atomic.Int64
	var group sync.WaitGroup
	for i := range do {
		group.Go(func() {
			for {
				end := int(next.Add(int64(share)))
				if end-share >= n {
					return
				}
				for k := end - share; k < min(end, n); k++ {
					if err := latencies[i].call(do[i], k*stride%clients); err == nil {
						continue
					} else if failures.Add(1); !l.failing {
						errs[i] = err
						return
					}
				}
			}
		})
	}
	group.Wait()
	return failures.Load(), errors.Join(errs...)
}

// turnLength is about how long one turn of a load is.
const turnLength = 100 * time.Millisecond

// A tally is what was measured of a contender in its turns.
type tally struct {
	load
	do            []func(int) error
	latencies     []sampler
	next          int // requests in the next turn
	n             int
	failed        int64
	took          time.Duration
	used          usage
	allocs, bytes uint64
}

func (l load) tally(s subject) *tally {
	do, latencies := l.begin(s)
	return &tally{load: l, do: do, latencies: latencies, next: l.callers}
}

// turn sends requests for about turnLength.
func (t *tally) turn(tb testing.TB) {
	tb.Helper()
	var before, after runtime.MemStats
	used := usageOf(tb, t.servers...)
	runtime.ReadMemStats(&before)
	begin := time.Now()
	failed, err := t.send(t.do, t.latencies, t.next)
	took := time.Since(begin)
	if err != nil {
		tb.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	t.used.add(usageOf(tb, t.servers...).since(used))
	t.n, t.failed, t.took = t.n+t.next, t.failed+failed, t.took+took
	t.allocs, t.bytes = t.allocs+after.Mallocs-before.Mallocs, t.bytes+after.TotalAlloc-before.TotalAlloc
	t.next = max(int(float64(t.next)*min(float64(turnLength)/float64(took), 8)), t.callers)
}

func (t *tally) report(b *testing.B) {
	b.Helper()
	b.ReportAllocs()
	n := float64(t.n)
	b.ReportMetric(float64(t.took.Nanoseconds())/n, "ns/op")
	b.ReportMetric(float64(t.allocs)/n, "allocs/op")
	b.ReportMetric(float64(t.bytes)/n, "B/op")
	if len(t.servers) > 0 {
		t.used.report(b, t.n)
	}
	if t.failing {
		b.ReportMetric(100*float64(t.failed)/n, "failed-%")
	}
	report(b, t.latencies)
}

// warm serves every client once, so that connections, scripts and keys are there.
func warm(tb testing.TB, s subject) {
	tb.Helper()
	if err := share(16, clients, s); err != nil {
		tb.Fatal(err)
	}
}

// share divides n requests among callers, a client at a time.
func share(callers, n int, s subject) error {
	var group sync.WaitGroup
	errs := make([]error, callers)
	for i := range callers {
		group.Go(func() {
			do := s()
			for k := i; k < n && errs[i] == nil; k += callers {
				errs[i] = do(k % clients)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// samplesKept bounds the latencies that a measurement keeps, of all callers.
const samplesKept = 1 << 16

// A sampler keeps the latest latencies of one caller.
type sampler struct {
	every, until int // requests: timed is every n-th
	n            int
	latest       []time.Duration
}

func (s *sampler) call(do func(int) error, client int) error {
	if s.until--; s.until > 0 {
		return do(client)
	}
	s.until = s.every
	start := time.Now()
	err := do(client)
	s.add(time.Since(start))
	return err
}

func (s *sampler) add(latency time.Duration) {
	if len(s.latest) < cap(s.latest) {
		s.latest = append(s.latest, latency)
	} else {
		s.latest[s.n%len(s.latest)] = latency
	}
	s.n++
}

// runLength is for how long is measured what b.N does not count: short runs have a
// short one.
func runLength() time.Duration {
	if testing.Short() {
		return time.Second
	}
	return 4 * time.Second
}

// takeTurns does each of n for so long, in turns and in any order: a machine may be
// slow for seconds. It returns how many turns each had.
func takeTurns(length time.Duration, n int, do func(turn, i int)) (turns int) {
	for begin := time.Now(); time.Since(begin) < length; turns++ {
		for _, i := range rand.Perm(n) {
			do(turns, i)
		}
	}
	return turns
}

// alone has one caller ask all subjects for so long, in turns.
func alone(tb testing.TB, length time.Duration, subjects ...subject) []sampler {
	tb.Helper()
	do, latencies := make([]func(int) error, len(subjects)), make([]sampler, len(subjects))
	for i, s := range subjects {
		do[i], latencies[i] = s(), sampler{every: 1, latest: make([]time.Duration, 0, samplesKept)}
	}
	takeTurns(length, len(subjects), func(turn, i int) {
		if err := latencies[i].call(do[i], turn*stride%clients); err != nil {
			tb.Fatal(err)
		}
	})
	return latencies
}

func (s *sampler) median() float64 {
	slices.Sort(s.latest)
	return float64(quantile(s.latest, .5))
}

func report(b *testing.B, callers []sampler) {
	var all []time.Duration
	for _, c := range callers {
		all = append(all, c.latest...)
	}
	slices.Sort(all)
	b.ReportMetric(float64(quantile(all, .5)), "p50-ns")
	b.ReportMetric(float64(quantile(all, .99)), "p99-ns")
}

// quantile is the q-quantile of what is sorted.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// A usage is what servers have used since their start.
type usage struct {
	cpu, reads, scripts float64 // seconds, read events, calls
	asked               float64 // how many servers: each has read an INFO for it
}

func usageOf(tb testing.TB, servers ...*redis.Client) (u usage) {
	tb.Helper()
	for _, server := range servers {
		info, err := server.Info(context.Background(), "everything").Result()
		if err != nil {
			tb.Fatal(err)
		}
		for field, sum := range map[string]*float64{
			"used_cpu_user:": &u.cpu, "used_cpu_sys:": &u.cpu, "total_reads_processed:": &u.reads,
		} {
			value, err := infoField(info, field)
			if err != nil {
				tb.Fatal(err)
			}
			*sum += value
		}
		for _, field := range []string{"cmdstat_eval:calls=", "cmdstat_evalsha:calls="} {
			if calls, err := infoField(info, field); err == nil { // there is none before the first
				u.scripts += calls
			}
		}
		u.asked++
	}
	return u
}

// infoField is the number behind a line's beginning.
func infoField(info, begin string) (float64, error) {
	_, rest, found := strings.Cut(info, "\n"+begin)
	if !found {
		return 0, fmt.Errorf("INFO has no %s", begin)
	}
	end := strings.IndexAny(rest, ",\r")
	return strconv.ParseFloat(rest[:max(end, 0)], 64)
}

// since is what was used since a look before, but for the looks themselves.
func (u usage) since(before usage) usage {
	return usage{cpu: u.cpu - before.cpu, reads: u.reads - before.reads - u.asked, scripts: u.scripts - before.scripts}
}

func (u *usage) add(more usage) {
	u.cpu, u.reads, u.scripts = u.cpu+more.cpu, u.reads+more.reads, u.scripts+more.scripts
}

// report says what was used for so many operations.
func (u usage) report(b *testing.B, operations int) {
	b.Helper()
	n := float64(operations)
	b.ReportMetric(u.cpu*1e6/n, "redis-cpu-µs/op")
	b.ReportMetric(u.reads/n, "reads/op")
	b.ReportMetric(u.scripts/n, "scripts/op")
}

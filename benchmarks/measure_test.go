package benchmarks

import (
	"context"
	"fmt"
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

// measure shares b.N requests among exactly that many callers. Of a server it
// also reports the CPU time and how often it read from a connection, which
// counts round trips; server is nil where there is none.
func measure(b *testing.B, callers int, server *redis.Client, s subject) {
	b.Helper()
	b.ReportAllocs()
	do := make([]func(int) error, callers)
	for i := range do {
		do[i] = s()
	}
	var latencies *sampler
	if callers == 1 {
		latencies = new(sampler)
		do[0] = latencies.around(do[0])
	}
	var next atomic.Int64
	var group sync.WaitGroup
	errs := make([]error, callers)
	before := usageOf(b, server)
	b.ResetTimer()
	for i := range do {
		group.Go(func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				if err := do[i](int(n * stride % clients)); err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	group.Wait()
	b.StopTimer()
	for _, err := range errs {
		if err != nil {
			b.Fatal(err)
		}
	}
	if server != nil {
		usageOf(b, server).report(b, before, b.N)
	}
	if latencies != nil {
		b.ReportMetric(latencies.median(), "p50-ns")
	}
}

// warm serves every client once, so that connections, scripts and keys are there.
func warm(b *testing.B, s subject) {
	b.Helper()
	const callers = 16
	var group sync.WaitGroup
	errs := make([]error, callers)
	for i := range callers {
		group.Go(func() {
			do := s()
			for client := i; client < clients && errs[i] == nil; client += callers {
				errs[i] = do(client)
			}
		})
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			b.Fatal(err)
		}
	}
}

// A sampler keeps the latest latencies.
type sampler struct {
	n      int
	latest [1 << 14]time.Duration
}

func (s *sampler) around(do func(int) error) func(int) error {
	return func(client int) error {
		start := time.Now()
		err := do(client)
		s.latest[s.n%len(s.latest)] = time.Since(start)
		s.n++
		return err
	}
}

func (s *sampler) median() float64 {
	kept := s.latest[:min(s.n, len(s.latest))]
	slices.Sort(kept)
	return float64(kept[len(kept)/2])
}

// A usage is what a server has used since its start.
type usage struct{ cpu, reads float64 } // seconds, read events

func usageOf(b *testing.B, server *redis.Client) (u usage) {
	b.Helper()
	if server == nil {
		return u
	}
	info, err := server.Info(context.Background(), "everything").Result()
	if err != nil {
		b.Fatal(err)
	}
	for field, sum := range map[string]*float64{
		"used_cpu_user": &u.cpu, "used_cpu_sys": &u.cpu, "total_reads_processed": &u.reads,
	} {
		value, err := infoField(info, field)
		if err != nil {
			b.Fatal(err)
		}
		*sum += value
	}
	return u
}

func infoField(info, field string) (float64, error) {
	_, rest, found := strings.Cut(info, "\n"+field+":")
	if !found {
		return 0, fmt.Errorf("INFO has no %s", field)
	}
	value, _, _ := strings.Cut(rest, "\r")
	return strconv.ParseFloat(value, 64)
}

func (u usage) report(b *testing.B, before usage, operations int) {
	b.Helper()
	n := float64(operations)
	b.ReportMetric((u.cpu-before.cpu)*1e6/n, "redis-cpu-µs/op")
	b.ReportMetric((u.reads-before.reads-1)/n, "reads/op") // but the one of INFO
}

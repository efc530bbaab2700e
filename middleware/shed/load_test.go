package shed_test

import (
	"context"
	"io"
	"math"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/internal/overload"
	"github.com/seed75154129/ratelimit/middleware/shed"
)

// A real server whose handlers need one of 8 database connections, for 50 ms on average,
// and clients that give up after a second. What it reports is of the last 10 of 15 s:
//
//	go test ./middleware/shed -run '^$' -bench EightConnections -benchtime 1x
func BenchmarkEightConnections(b *testing.B) {
	for _, load := range []struct {
		name  string
		times float64
	}{{"70 percent", .7}, {"2 times", 2}, {"5 times", 5}} {
		for _, c := range []struct {
			name    string
			shedder *shed.Shedder
		}{{"none", nil}, {"fixed 16", fixed(16)}, {"adaptive", adaptive()}} {
			b.Run(load.name+"/"+c.name, func(b *testing.B) {
				for b.Loop() {
					loadTest(b, load.times, c.shedder)
				}
			})
		}
	}
}

func loadTest(b *testing.B, times float64, s *shed.Shedder) {
	const length, warm = 15 * time.Second, 5 * time.Second
	var (
		traffic         overload.Scenario
		pool            = make(chan struct{}, overload.Workers)
		worked, queries atomic.Int64 // time and number of queries
	)
	h := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case pool <- struct{}{}:
		case <-r.Context().Done():
			return
		}
		defer func() { <-pool }()
		begun := time.Now()
		const sigma = 0.5
		time.Sleep(time.Duration(overload.Service * math.Exp(sigma*rand.NormFloat64()-sigma*sigma/2) * 1e9))
		worked.Add(int64(time.Since(begun)))
		queries.Add(1)
		_, _ = io.WriteString(w, "a row\n")
	}))
	if s != nil {
		h = s.Handler(h)
	}
	server := httptest.NewServer(h)
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2000}}
	var (
		mu               sync.Mutex
		all              sync.WaitGroup
		latencies        []time.Duration
		n, refused       int
		critical, served int
	)
	begin := time.Now()
	for at := time.Duration(0); at < length; at += time.Duration(rand.ExpFloat64() / (times * traffic.Capacity()) * 1e9) {
		time.Sleep(time.Until(begin.Add(at)))
		p, counts := traffic.Draw(rand.Float64()), at >= warm
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			r, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
			r.Header = priorities[p]
			begun, code := time.Now(), 0
			if response, err := client.Do(r); err == nil {
				_, _ = io.Copy(io.Discard, response.Body)
				response.Body.Close()
				code = response.StatusCode
			}
			if !counts {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			n++
			if p == shed.Critical {
				critical++
			}
			switch code {
			case http.StatusServiceUnavailable:
				refused++
			case http.StatusOK:
				latencies = append(latencies, time.Since(begun))
				if p == shed.Critical {
					served++
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(n)/(length-warm).Seconds(), "sent/s")
	b.ReportMetric(100*float64(refused)/float64(n), "%shed")
	b.ReportMetric(100*float64(served)/float64(max(critical, 1)), "%critical")
	b.ReportMetric(float64(len(latencies))/(length-warm).Seconds(), "served/s")
	b.ReportMetric(float64(overload.P99(latencies).Milliseconds()), "p99-ms")
	b.ReportMetric(float64(worked.Load())/float64(queries.Load())/1e6, "query-ms")
}

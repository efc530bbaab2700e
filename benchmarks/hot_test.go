package benchmarks

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// perHour is as much as fits into a window: no measurement uses it up.
var perHour = algorithms.Limit{Rate: 90_000_000, Period: time.Hour, Algorithm: algorithms.FixedWindow}

// BenchmarkHot is an admitted request where all come from one client and count
// on one key: asked for each time, with sync, and by peers. Peers that fail
// under contention are charged with it: their failed-% is reported.
func BenchmarkHot(b *testing.B) {
	s := start(b)
	rule := ratelimit.Rule{Name: "hot", Key: keyfunc.IP, Limit: perHour}
	strict := limit(b, s.ours, "hot", []ratelimit.Rule{rule})
	rule.Sync = 100 * time.Millisecond
	synced := limit(b, s.ours, "synced", []ratelimit.Rule{rule})
	all := []contender{
		{"handler", oneClient(serving(strict, http.StatusNoContent)), &strict},
		{"sync", oneClient(serving(synced, http.StatusNoContent)), &synced},
	}
	hot := []layer{{"hot", perHour, ip, host}}
	for _, p := range redisPeers(b, s.theirs, hot) {
		all = append(all, contender{p.name, oneClient(serving(p.handler, http.StatusNoContent)), nil})
	}
	compare(b, load{servers: s.all(), failing: true}, all)
	b.Run("sync_total", func(b *testing.B) { syncTotal(b, s) })
}

func oneClient(s subject) subject {
	return func() func(int) error {
		do := s()
		return func(int) error { return do(0) }
	}
}

// syncTotal asks for twice what a limit with sync admits.
func syncTotal(b *testing.B, s server) {
	b.Helper()
	half := perHour
	half.Rate = max(1, int64(b.N/2))
	rules := []ratelimit.Rule{{Name: "hot", Key: keyfunc.IP, Limit: half, Sync: 100 * time.Millisecond}}
	synced := limit(b, s.ours, fmt.Sprint("half-", b.N), rules)
	var admitted atomic.Int64
	load{callers: 128, servers: s.all()}.measure(b, func() func(int) error {
		c := newCaller()
		return func(int) error {
			if c.call(synced, 0); c.status == http.StatusNoContent {
				admitted.Add(1)
			}
			return nil
		}
	})
	if n := admitted.Load(); 10*n > 11*half.Rate {
		b.Errorf("%d admitted with sync, the limit is %d", n, half.Rate)
	}
	b.ReportMetric(float64(admitted.Load())/float64(half.Rate), "admitted/limit")
}

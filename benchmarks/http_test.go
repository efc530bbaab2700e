package benchmarks

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// BenchmarkOpenLoop is a request over HTTP, without the middleware, with a GET in
// its place, and with it, where requests arrive at a constant rate, half and a tenth
// of what the server with the middleware can answer. Latencies count from the
// arrival, so they have in them how long a request waits for those before.
func BenchmarkOpenLoop(b *testing.B) {
	proxies := keyfunc.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	rules := standard()
	rules[0].Key, rules[1].Key, rules[2].Key = proxies.IP(), proxies.UserID("X-User-ID"), proxies.IP()
	client := start(b).ours
	ours := limit(b, client, "http", rules)
	bare, behind := listen(b, admitted), listen(b, ours)
	asking := listen(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := client.Get(r.Context(), "nothing").Err(); !errors.Is(err, redis.Nil) {
			b.Error(err)
		}
		admitted.ServeHTTP(w, r)
	}))
	get := func(addr string, seconds, rate float64) outcome {
		o, err := traffic{
			Addr: addr, Request: "GET /search?q=limits", Connections: 128, Clients: clients, Seconds: seconds, Rate: rate,
		}.send()
		if err != nil || o.Sent == 0 || o.Admitted != o.Sent {
			b.Fatalf("not all were admitted: %+v, %v", o, err)
		}
		return o
	}
	seconds := runLength().Seconds()
	get(behind, seconds/2, 0) // makes connections and keys
	peak := get(behind, seconds/2, 0)
	before := ours.sources()
	for _, part := range []struct {
		name string
		of   float64
	}{{"half", 2}, {"tenth", 10}} {
		rate := float64(peak.Sent) / peak.Seconds / part.of
		for _, s := range []struct{ name, addr string }{{"bare", bare}, {"get", asking}, {"limited", behind}} {
			b.Run(part.name+"/"+s.name, func(b *testing.B) {
				var o outcome
				for range b.N {
					o = get(s.addr, seconds, rate)
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(rate, "arrivals/s")
				b.ReportMetric(float64(o.P50)/1e3, "p50-µs")
				b.ReportMetric(float64(o.P99)/1e3, "p99-µs")
			})
		}
	}
	after := ours.sources()
	for source, n := range after {
		if source != algorithms.SourceRedis.String() && n > before[source] {
			b.Errorf("%s decided %.0f checks", source, n-before[source])
		}
	}
}

// BenchmarkFloodHTTP is a flood over HTTP by clients that are over their limit: the
// limiter in front, beside a server that only writes the same 429, in turns.
func BenchmarkFloodHTTP(b *testing.B) {
	proxies := keyfunc.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	rules := standard()
	rules[0].Key, rules[1].Key, rules[2].Key = proxies.IP(), proxies.UserID("X-User-ID"), proxies.IP()
	rules[0].Limit = usedUp
	ours := limit(b, start(b).ours, "flood-http", rules)
	_ = refusal(ours)
	all := []struct{ name, addr string }{{"limited", listen(b, ours)}, {"writing_429", listen(b, writing(refusal(ours)))}}
	flood := func(addr string, seconds float64) outcome {
		o, err := traffic{
			Addr: addr, Request: "GET /search?q=limits", Connections: 128, Clients: clients, Seconds: seconds,
		}.send()
		if err != nil || o.Sent == 0 || o.Other > 0 {
			b.Fatalf("not all were answered: %+v, %v", o, err)
		}
		return o
	}
	flood(all[0].addr, 1) // uses up what the clients may have
	sums := make([]outcome, len(all))
	takeTurns(2*runLength(), len(all), func(_, i int) {
		o := flood(all[i].addr, runLength().Seconds()/8)
		sums[i].Sent, sums[i].Admitted, sums[i].Seconds = sums[i].Sent+o.Sent, sums[i].Admitted+o.Admitted, sums[i].Seconds+o.Seconds
	})
	for i, s := range all {
		b.Run(s.name, func(b *testing.B) {
			b.ReportMetric(sums[i].Seconds*1e9/float64(sums[i].Sent), "ns/op")
			b.ReportMetric(100*float64(sums[i].Admitted)/float64(sums[i].Sent), "admitted-%")
		})
	}
}

// BenchmarkCrowd is one client with 1000 connections that asks as fast as it is
// answered, against 200 a minute and the budget that everybody has, while
// others log in. It should admit no more than the limit and this process' share,
// which is all of it in the only process, refuse no login and open no circuit: the
// report says if a round did.
func BenchmarkCrowd(b *testing.B) {
	for range b.N {
		crowd(b)
	}
}

func crowd(b *testing.B) {
	b.Helper()
	const most = 200
	// The client and the budget are those of the README.
	client := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: start(b).ours.Options().Addr}))
	b.Cleanup(func() { _ = client.Close() })
	lines := new(log)
	g := &failmode.Guard{
		Limiter: &algorithms.Redis{Client: client, Namespace: "crowd"}, Instances: 1, Logger: lines.logger(),
	}
	b.Cleanup(func() { _ = g.Close() })
	if err := g.Warm(b.Context()); err != nil {
		b.Fatal(err)
	}
	h := handler(b, ratelimit.Config{Limiter: g, Logger: lines.logger(), Rules: []ratelimit.Rule{
		{Name: "ip", Key: keyfunc.IP, Limit: algorithms.PerMinute(most), Fail: failmode.Open},
		{Name: "login", Match: []string{"POST /login"}, Key: keyfunc.IP, Limit: algorithms.PerMinute(5), Fail: failmode.Closed},
	}})
	addr, seconds := listen(b, h), runLength().Seconds()
	var flood, logins outcome
	var errs [2]error
	var both sync.WaitGroup
	both.Go(func() {
		flood, errs[0] = traffic{Addr: addr, Request: "GET /", Connections: 1000, Seconds: seconds}.send()
	})
	both.Go(func() {
		time.Sleep(300 * time.Millisecond) // the flood has begun
		logins, errs[1] = traffic{
			Addr: addr, Request: "POST /login", Connections: 25, From: 1, Rate: 25 / (seconds - .5), Seconds: seconds - .5,
		}.send()
	})
	both.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		b.Fatal(err)
	}
	circuits := strings.Count(lines.String(), "circuit open")
	if flood.Other > 0 || flood.Admitted > 2*most || logins.Admitted < logins.Sent || circuits > 0 {
		b.Logf("flood %+v, logins %+v, %d circuits:\n%s", flood, logins, circuits, lines)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(flood.Sent)/flood.Seconds, "requests/s")
	b.ReportMetric(float64(flood.Admitted), "admitted")
	b.ReportMetric(float64(logins.Sent-logins.Admitted), "refused-logins")
	b.ReportMetric(float64(logins.P99)/1e3, "login-p99-µs")
	b.ReportMetric(float64(circuits), "circuits")
}

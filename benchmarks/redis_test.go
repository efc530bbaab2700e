package benchmarks

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/redistest"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// patience is a budget that no decision of a busy machine outlasts: what ran
// out of it would be decided without Redis, in no time.
const patience = 5 * time.Second

// A server is a redis-server with clients of equal options, but for defaults:
// those of FailFast, which peers are no slower with, and timeouts that no busy
// machine outlasts.
type server struct {
	ours, theirs, defaults *redis.Client
}

func start(tb testing.TB) server {
	tb.Helper()
	addr := redistest.Start(tb).Addr
	options := func() *redis.Options {
		return &redis.Options{
			Addr: addr, DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience,
		}
	}
	s := server{
		redis.NewClient(algorithms.FailFast(options())), redis.NewClient(algorithms.FailFast(options())), redis.NewClient(options()),
	}
	tb.Cleanup(func() { _, _, _ = s.ours.Close(), s.theirs.Close(), s.defaults.Close() })
	return s
}

// all is the servers to look at.
func (s server) all() []*redis.Client { return []*redis.Client{s.theirs} }

// A limited is our middleware over Redis, as the README makes it. Its metrics say
// who decided.
type limited struct {
	http.Handler
	guard    *failmode.Guard
	limit    *ratelimit.Middleware
	warnings *log
}

func limit(tb testing.TB, c algorithms.Client, namespace string, rules []ratelimit.Rule) limited {
	tb.Helper()
	l := limited{warnings: new(log)}
	l.guard = &failmode.Guard{
		Limiter:   &algorithms.Redis{Client: c, Namespace: namespace, Budget: patience},
		Instances: 1,
		Logger:    slog.New(slog.NewTextHandler(l.warnings, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	tb.Cleanup(func() { _ = l.guard.Close() })
	var err error
	if l.limit, err = ratelimit.New(ratelimit.Config{Limiter: l.guard, Rules: rules, Logger: new(log).logger()}); err != nil {
		tb.Fatal(err)
	}
	l.Handler = l.limit.Handler(admitted)
	return l
}

// A log keeps what a logger writes.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// sources is how many checks each source has decided.
func (l limited) sources() map[string]float64 {
	counts := make(map[string]float64)
	for m := range l.limit.Metrics() {
		if i := slices.Index(m.Labels, "source"); m.Name == "ratelimit_decisions_total" {
			counts[m.Labels[i+1]] += m.Value
		}
	}
	return counts
}

// decided reports who has decided since a look before. A check that this process decided
// by itself, because Redis did not, fails: it would be a decision in no time.
func (l limited) decided(b *testing.B, before map[string]float64) {
	b.Helper()
	var all float64
	after := l.sources()
	for source := range after {
		after[source] -= before[source]
		all += after[source]
	}
	for source, n := range after {
		if n > 0 && !slices.ContainsFunc(known, func(s algorithms.Source) bool { return s.String() == source }) {
			b.Fatalf("%s decided %.0f of %.0f checks:\n%s", source, n, all, l.warnings)
		}
	}
	for _, source := range known {
		b.ReportMetric(100*after[source.String()]/max(all, 1), source.String()+"-%")
	}
}

// known are the sources that a measured decision may have.
var known = []algorithms.Source{algorithms.SourceRedis, algorithms.SourceDenyCache, algorithms.SourceSync}

// A contender is one of several that are asked for the same.
type contender struct {
	name string
	subject
	ours *limited // whose sources are looked at; nil for the others
}

// compare measures all contenders with each number of callers. They take turns in any
// order: a machine may be slow for seconds.
func compare(b *testing.B, how load, all []contender) {
	b.Helper()
	for _, n := range callerCounts {
		how.callers = n
		tallies, before := make([]*tally, len(all)), make([]map[string]float64, len(all))
		for i, c := range all {
			if tallies[i] = how.tally(c.subject); c.ours != nil {
				before[i] = c.ours.sources()
			}
		}
		takeTurns(time.Duration(len(all))*runLength()/8, len(all), func(_, i int) { tallies[i].turn(b) })
		for i, c := range all {
			b.Run(fmt.Sprintf("%s/callers=%d", c.name, n), func(b *testing.B) {
				tallies[i].report(b)
				if c.ours != nil {
					c.ours.decided(b, before[i])
				}
			})
		}
	}
}

// BenchmarkRedis is an admitted request with the standard stack in Redis, beside
// a bare GET, one call of the baseline script, and the peers.
func BenchmarkRedis(b *testing.B) {
	s := start(b)
	ours, defaults := limit(b, s.ours, "bench", standard()), limit(b, s.defaults, "bench-default", standard())
	all := []contender{
		{"get", getting(s.ours), nil},
		{"baseline", calling(s.ours, baseline), nil},
		{"handler", serving(ours, http.StatusNoContent), &ours},
		{"default_client", serving(defaults, http.StatusNoContent), &defaults},
	}
	for _, p := range redisPeers(b, s.theirs, layered(perIP)) {
		if p.name == "redis_rate" || p.name == "rueidis" { // which have no middleware
			all = append(all, contender{p.name, deciding(p, true), nil})
		} else {
			all = append(all, contender{p.name, serving(p.handler, http.StatusNoContent), nil})
		}
	}
	for _, c := range all {
		warm(b, c.subject)
	}
	compare(b, load{servers: s.all()}, all)
}

// BenchmarkInFlight is an admitted request with three sliding windows in Redis, and with
// two of them and in_flight in place of the third, its release included.
func BenchmarkInFlight(b *testing.B) {
	s := start(b)
	windows := standard()
	for i := range windows {
		windows[i].Limit.Algorithm, windows[i].Limit.Burst = algorithms.SlidingWindow, 0
	}
	held := slices.Clone(windows)
	held[0].Limit = algorithms.MaxInFlight(100_000)
	three, with := limit(b, s.ours, "windows", windows), limit(b, s.ours, "held", held)
	all := []contender{
		{"sliding_window", serving(three, http.StatusNoContent), &three},
		{"in_flight", serving(with, http.StatusNoContent), &with},
	}
	for _, c := range all {
		warm(b, c.subject)
	}
	compare(b, load{servers: s.all()}, all)
}

// BenchmarkAlone is the latency of one caller, with the standard stack in Redis, and
// of the command alone that the handler sends. The contenders take turns in any
// order, request by request: a machine that sleeps while it waits is at some
// moments twice as fast as at others, whoever asks.
func BenchmarkAlone(b *testing.B) {
	s := start(b)
	ours := limit(b, s.ours, "alone", standard())
	scripts := record(b, s.theirs, clients, func(c *redis.Client) subject {
		return taking(&algorithms.Redis{Client: c, Namespace: "bare", Budget: patience})
	})
	all := []contender{
		{"get", getting(s.ours), nil},
		{"baseline", calling(s.ours, baseline), nil},
		{"script", sending(s.ours, scripts), nil},
		{"handler", serving(ours, http.StatusNoContent), nil},
		{"redis_rate", deciding(redisRate(s.theirs, layered(perIP)), true), nil},
	}
	var subjects []subject
	for _, c := range all {
		warm(b, c.subject)
		subjects = append(subjects, c.subject)
	}
	before := ours.sources()
	latencies := alone(b, runLength(), subjects...)
	redis := algorithms.SourceRedis.String()
	if n := ours.sources()[redis] - before[redis]; int(n) != len(standard())*latencies[0].n {
		b.Fatalf("Redis decided %.0f checks of %d requests", n, latencies[0].n)
	}
	for i, c := range all {
		b.Run(c.name, func(b *testing.B) {
			b.ReportMetric(0, "ns/op")
			report(b, latencies[i:i+1])
		})
	}
}

// getting is the subject that does the least a round trip can do.
func getting(c *redis.Client) subject {
	return func() func(int) error {
		return func(client int) error {
			err := c.Get(context.Background(), users[client]).Err()
			if err == redis.Nil { //nolint:errorlint // never wrapped
				return c.Set(context.Background(), users[client], "1", 0).Err()
			}
			return err
		}
	}
}

// sending is the subject that sends each client's recorded command as it is.
func sending(c *redis.Client, recorded [][][]any) subject {
	return func() func(int) error {
		return func(client int) error { return c.Do(context.Background(), recorded[client][0]...).Err() }
	}
}

// calling is the subject that runs a script of three keys.
func calling(c *redis.Client, text string) subject {
	script := redis.NewScript(text)
	var keys [clients][]string
	for client := range keys {
		for _, check := range allChecks[client] {
			keys[client] = append(keys[client], "basic:{"+check.Key+"}:"+check.Rule)
		}
	}
	return func() func(int) error {
		return func(client int) error {
			return script.Run(context.Background(), c, keys[client], "1795000000000000 12345 0", "120000").Err()
		}
	}
}

package benchmarks

import (
	"context"
	"flag"
	"math"
	"net/http"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

var gated = flag.Bool("gate", false, "measure what a change must not make slower")

// The bounds of the gate: counts that are exact, and times as ratios to what
// the same machine does in the same second. They are about twice what is
// measured, so that what exceeds them three times in a row is a regression.
var (
	roundTrips     = bound{"round trips of an admitted request", 1.02}
	scripts        = bound{"scripts that Redis runs for an admitted request", 1.02}
	allocations    = bound{"allocations of an admitted request over Redis", 32}
	oneCaller      = bound{"1 caller: p50 / that of one EVALSHA of the baseline script", 2.5}
	manyCallers    = bound{"16 callers: time / that of a bare GET", 8}
	scriptCPU      = bound{"Redis CPU of a decision, pipelined / the baseline script's", 4}
	deniedScripts  = bound{"scripts that Redis runs for a denied request", 0.05}
	denied         = bound{"a denied request: CPU time / that of only writing the 429", 16}
	inMemoryTime   = bound{"in memory: CPU time / httprate's", 2}
	inMemoryAllocs = bound{"in memory: allocations", 4}
	noRuleAllocs   = bound{"allocations of a request that no rule matches", 0}
)

type bound struct {
	name string
	most float64
}

// A candidate makes the limiter that the gate is for.
type candidate func(tb testing.TB, c *redis.Client) algorithms.Limiter

func guarded(tb testing.TB, c *redis.Client) algorithms.Limiter {
	g := &failmode.Guard{
		Limiter:   &algorithms.Redis{Client: c, Namespace: "gate", Budget: patience},
		Instances: 1,
		Logger:    new(log).logger(),
	}
	tb.Cleanup(func() { _ = g.Close() })
	return g
}

// TestGate fails if a change has made requests slower.
func TestGate(t *testing.T) {
	if !*gated {
		t.Skip("make bench-gate runs it")
	}
	g := newGate(t, guarded)
	for _, b := range g.bounds {
		if value, ok := g.holds(b); !ok {
			t.Errorf("%s: %.3g three times, at most %.3g", b.name, value, b.most)
		} else {
			t.Logf("%-70s %.3g, at most %.3g", b.name, value, b.most)
		}
	}
}

// TestGateFails wants limiters that are wrong on purpose found out.
func TestGateFails(t *testing.T) {
	if !*gated {
		t.Skip("make bench-gate runs it")
	}
	for _, wrong := range []struct {
		name string
		candidate
		exceeds []bound
	}{
		{"a second round trip", func(tb testing.TB, c *redis.Client) algorithms.Limiter {
			return twice{guarded(tb, c)}
		}, []bound{roundTrips, scripts}},
		{"no deny cache", func(_ testing.TB, c *redis.Client) algorithms.Limiter {
			redis := &algorithms.Redis{Client: c, Namespace: "gate", Budget: patience}
			return uncached{func() algorithms.Limiter { return redis }}
		}, []bound{denied, deniedScripts}},
		{"a slow script", func(tb testing.TB, c *redis.Client) algorithms.Limiter {
			return fivefold{guarded(tb, c)}
		}, []bound{scriptCPU}},
	} {
		t.Run(wrong.name, func(t *testing.T) {
			g := newGate(t, wrong.candidate)
			for _, b := range g.bounds {
				if !slices.Contains(wrong.exceeds, b.bound) {
					continue
				}
				if value, ok := g.holds(b); ok {
					t.Errorf("%s: %.3g, which passes the gate of %.3g", b.name, value, b.most)
				} else {
					t.Logf("%-70s %.3g, at most %.3g", b.name, value, b.most)
				}
			}
		})
	}
}

// twice looks before it takes: a second round trip.
type twice struct{ algorithms.Limiter }

func (l twice) Unwrap() algorithms.Limiter { return l.Limiter }

func (l twice) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	if d, err := l.Peek(ctx, checks...); err != nil || !d.Allowed {
		return d, err
	}
	return l.Limiter.Take(ctx, checks...)
}

// uncached asks Redis without a Guard. It hides that from New, which refuses it.
type uncached struct{ redis func() algorithms.Limiter }

func (l uncached) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	return l.redis().Take(ctx, checks...)
}

func (l uncached) Peek(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	return l.redis().Peek(ctx, checks...)
}

func (l uncached) Settle(ctx context.Context, charges ...algorithms.Charge) ([]algorithms.Result, error) {
	return l.redis().Settle(ctx, charges...)
}

func (l uncached) Reset(ctx context.Context, checks ...algorithms.Check) error {
	return l.redis().Reset(ctx, checks...)
}

// fivefold has the script do the work of five: five times the checks.
type fivefold struct{ algorithms.Limiter }

func (l fivefold) Unwrap() algorithms.Limiter { return l.Limiter }

func (l fivefold) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	all := slices.Clone(checks)
	for _, more := range []string{"-1", "-2", "-3", "-4"} {
		for _, c := range checks {
			c.Rule += more
			all = append(all, c)
		}
	}
	d, err := l.Limiter.Take(ctx, all...)
	d.Results = d.Results[:min(len(checks), len(d.Results))]
	return d, err
}

// gateClients is how many clients send requests, so that all are soon warm.
const gateClients = 3000

// A gate measures a candidate.
type gate struct {
	tb     testing.TB
	server *redis.Client
	bounds []gateBound
}

type gateBound struct {
	bound
	measure func() float64
}

// holds tries a bound three times: a noisy machine exceeds it once.
func (g gate) holds(b gateBound) (least float64, ok bool) {
	least = math.Inf(1)
	for range 3 {
		if least = min(least, b.measure()); least <= b.most {
			return least, true
		}
	}
	return least, false
}

func newGate(tb testing.TB, candidate candidate) gate {
	tb.Helper()
	s := start(tb)
	g := gate{tb: tb, server: s.theirs}
	limiter := candidate(tb, s.ours)
	over := func(ip algorithms.Limit, l algorithms.Limiter) http.Handler {
		rules := standard()
		rules[0].Limit = ip
		return handler(tb, ratelimit.Config{Limiter: l, Rules: rules, Logger: new(log).logger()})
	}
	handler := over(perIP, limiter)
	ours := serving(handler, http.StatusNoContent)
	flooded := over(usedUp, limiter)
	flood := serving(flooded, http.StatusTooManyRequests)
	g.send(16, gateClients, ignoring(flood)) // uses the limits up
	g.send(16, gateClients, flood)
	floor := serving(writing(refusal(flooded)), http.StatusTooManyRequests)
	base, get := calling(s.ours, baseline), getting(s.ours)
	for _, s := range []subject{ours, base, get} {
		g.send(16, gateClients, s)
	}
	memory := serving(over(perIP, new(algorithms.Memory)), http.StatusNoContent)
	httprate := serving(httprateHandler(layered(perIP)).handler, http.StatusNoContent)
	for _, s := range []subject{memory, httprate} {
		g.send(16, gateClients, s)
	}
	login := ratelimit.Rule{Name: "login", Match: []string{"POST /auth/login"}, Key: keyfunc.IP, Limit: perIP}
	noRule := serving(handlerOf(tb, login), http.StatusNoContent)
	requests := record(tb, s.theirs, gateClients, func(c *redis.Client) subject { return taking(candidate(tb, c)) })
	baseRequests := withScript(tb, s.theirs, requests, baseline, "basic")

	g.bounds = []gateBound{
		{roundTrips, func() float64 { return g.used(ours, 1000).reads }},
		{scripts, func() float64 { return g.used(ours, 1000).scripts }},
		{allocations, func() float64 { return allocated(ours) }},
		{oneCaller, func() float64 {
			latencies := alone(tb, time.Second, ours, base)
			return latencies[0].median() / latencies[1].median()
		}},
		{manyCallers, func() float64 { return g.ratio(wallTime, 16, gateClients, ours, get) }},
		{scriptCPU, func() float64 {
			return inTurn(func() float64 { return g.cpu(requests) }, func() float64 { return g.cpu(baseRequests) })
		}},
		{deniedScripts, func() float64 { return g.used(flood, gateClients).scripts }},
		{denied, func() float64 { return g.ratio(cpuTime, 1, gateClients, flood, floor) }},
		{inMemoryTime, func() float64 { return g.ratio(cpuTime, 1, gateClients, memory, httprate) }},
		{inMemoryAllocs, func() float64 { return allocated(memory) }},
		{noRuleAllocs, func() float64 { return allocated(noRule) }},
	}
	return g
}

func handlerOf(tb testing.TB, rule ratelimit.Rule) http.Handler {
	tb.Helper()
	return handler(tb, ratelimit.Config{
		Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{rule}, Logger: new(log).logger(),
	})
}

func (g gate) send(callers, n int, s subject) {
	g.tb.Helper()
	if err := share(callers, n, s); err != nil {
		g.tb.Fatal(err)
	}
}

var begin = time.Now()

func wallTime() time.Duration { return time.Since(begin) }

// ratio is the median of several, measured in turn by one of the clocks.
func (g gate) ratio(clock func() time.Duration, callers, n int, of, over subject) float64 {
	g.tb.Helper()
	took := func(s subject) float64 {
		before := clock()
		g.send(callers, n, s)
		return float64(clock() - before)
	}
	return inTurn(func() float64 { return took(of) }, func() float64 { return took(over) })
}

func inTurn(of, over func() float64) float64 {
	var all []float64
	for range 7 {
		floor := over()
		all = append(all, of()/floor)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// used is what a request of one caller costs the server.
func (g gate) used(s subject, n int) usage {
	g.tb.Helper()
	before := usageOf(g.tb, g.server)
	g.send(1, n, s)
	all := usageOf(g.tb, g.server).since(before)
	return usage{reads: all.reads / float64(n), scripts: all.scripts / float64(n)}
}

// cpu is what recorded requests cost the server.
func (g gate) cpu(requests [][][]any) float64 {
	g.tb.Helper()
	before := usageOf(g.tb, g.server)
	replay(g.tb, g.server, requests, gateClients)
	return usageOf(g.tb, g.server).since(before).cpu
}

// allocated is how many allocations a request takes.
func allocated(s subject) float64 {
	do, client := s(), 0
	runtime.GC()
	return testing.AllocsPerRun(1000, func() {
		_ = do(client) // whose answer was looked at before
		client = (client + stride) % clients
	})
}

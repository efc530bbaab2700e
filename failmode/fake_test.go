package failmode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

var errAway = errors.New("away")

// answer is what a Redis says after "-".
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

// A fake is what stores under test have in common.
type fake struct{ plainStore }

func (fake) Names(shards ...int) []string {
	var names []string
	for _, s := range shards {
		names = append(names, fmt.Sprintf("node %d", s))
	}
	return names
}

// A distant store is a Memory that says it is Redis. A question takes a while to reach it,
// and an answer to come back. It can be away, all of it or for some rules, as a cluster is
// whose one node is dead.
type distant struct {
	algorithms.Memory
	fake
	there, back time.Duration
	settles     time.Duration // how long Settle takes
	resets      time.Duration // how long Reset takes
	asked       atomic.Int64
	away        atomic.Pointer[error]
	lost        map[string]error // by rule
	patience    time.Duration
}

// awayStore is a distant store that is away.
func awayStore() *distant {
	s := new(distant)
	s.away.Store(&errAway)
	return s
}

func (s *distant) Budget() time.Duration {
	if s.patience > 0 {
		return s.patience
	}
	return time.Hour
}

func (s *distant) Probe(context.Context, int) error {
	if err := s.away.Load(); err != nil {
		return *err
	}
	return nil
}

func (s *distant) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	s.asked.Add(1)
	time.Sleep(s.there)
	defer time.Sleep(s.back)
	return s.decide(ctx, s.Memory.Take, checks)
}

func (s *distant) Peek(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	return s.decide(ctx, s.Memory.Peek, checks)
}

type take = func(context.Context, ...algorithms.Check) (algorithms.Decision, error)

func (s *distant) decide(ctx context.Context, ask take, checks []algorithms.Check) (d algorithms.Decision, err error) {
	if err := s.away.Load(); err != nil {
		return d, *err
	}
	if s.lost == nil {
		d, err = ask(ctx, checks...)
		for i := range d.Results {
			d.Results[i].Source = algorithms.SourceRedis
		}
		return d, err
	}
	d.Allowed = true
	for _, c := range checks { // what denies refunds nothing: the node that was charged may be lost
		r := algorithms.Result{Check: c, Source: algorithms.SourceRedis, Err: s.lost[c.Rule]}
		if r.Err == nil {
			one, err := ask(ctx, c)
			if err != nil {
				return one, err
			}
			r = one.Results[0]
			r.Source = algorithms.SourceRedis
		}
		d.Allowed = d.Allowed && !r.Denies()
		d.Results = append(d.Results, r)
	}
	return d, nil
}

func (s *distant) Settle(ctx context.Context, charges ...algorithms.Charge) ([]algorithms.Result, error) {
	time.Sleep(s.settles)
	return settleRedis(ctx, &s.Memory, charges)
}

func (s *distant) Reset(ctx context.Context, checks ...algorithms.Check) error {
	time.Sleep(s.resets)
	return s.Memory.Reset(ctx, checks...)
}

// settleRedis settles in a Memory what says that it is Redis'.
func settleRedis(ctx context.Context, m *algorithms.Memory, charges []algorithms.Charge) ([]algorithms.Result, error) {
	mine := make([]algorithms.Charge, len(charges))
	for i, c := range charges {
		if c.Result.Source != algorithms.SourceRedis && c.Result.Source != algorithms.SourceSync {
			return nil, errors.New("settle: a result of another store")
		}
		c.Result.Source = algorithms.SourceMemory
		mine[i] = c
	}
	results, err := m.Settle(ctx, mine...)
	for i := range results {
		results[i].Source = algorithms.SourceRedis
	}
	return results, err
}

func (s *distant) used(t *testing.T, c algorithms.Check) int64 {
	t.Helper()
	d, err := s.Memory.Peek(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return c.Limit.Quota() - d.Results[0].Remaining
}

// A testStore is a limiter, and what a Guard needs of it beside.
type testStore interface {
	algorithms.Limiter
	store
}

// join makes a process of a store, one of so many.
func join(s testStore, instances int) *Guard {
	return &Guard{Limiter: s, Instances: instances, Logger: slog.New(slog.DiscardHandler), store: s}
}

// guarding returns a Guard whose circuits do not open, since every failure comes
// from another shard.
func guarding(t *testing.T, s testStore) *Guard {
	t.Helper()
	g := join(s, 1)
	g.store = neverOpen{store: s, next: new(atomic.Int64)}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

// neverOpen is a store each of whose failures comes from another shard.
type neverOpen struct {
	store
	next *atomic.Int64
}

func (s neverOpen) Shard(string) int { return int(s.next.Add(1)) }

func check(rule string, rate int64, fail Mode) algorithms.Check {
	return algorithms.Check{Rule: rule, Key: "k", Limit: algorithms.PerHour(rate), Cost: 1, Fail: fail}
}

func taken(t *testing.T, l algorithms.Limiter, checks ...algorithms.Check) algorithms.Decision {
	t.Helper()
	d, err := l.Take(t.Context(), checks...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func remaining(t *testing.T, l algorithms.Limiter, c algorithms.Check) int64 {
	t.Helper()
	d, err := l.Peek(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return d.Results[0].Remaining
}

func settleAll(ctx context.Context, l algorithms.Limiter, cost int64, charged ...algorithms.Result) error {
	_, err := l.Settle(ctx, chargesOf(cost, charged...)...)
	return err
}

// chargesOf makes each of the results cost this much.
func chargesOf(cost int64, charged ...algorithms.Result) []algorithms.Charge {
	charges := make([]algorithms.Charge, len(charged))
	for i := range charged {
		charges[i] = algorithms.Charge{Result: charged[i], Cost: cost}
	}
	return charges
}

// nodes is a store of several shards that fail as they are told. The key of a
// check is the number of its shard.
type nodes struct {
	algorithms.Memory
	fake
	moved  atomic.Int64 // where what was counted by shard 0 is counted
	probed [4]atomic.Int64
	asked  [4]atomic.Int64
	beats  atomic.Int64
	key    error // of every decision, but of no probe

	probeErr error         // of every probe
	probing  time.Duration // that a probe takes

	mu   sync.Mutex // over err and late
	err  [4]error
	late [4]time.Duration
}

func (n *nodes) Shard(key string) int {
	var shard int
	_, _ = fmt.Sscan(key, &shard)
	if shard == 0 {
		return int(n.moved.Load())
	}
	return shard
}

func (n *nodes) Probe(_ context.Context, shard int) error {
	n.probed[shard].Add(1)
	time.Sleep(n.probing)
	return cmp.Or(n.probeErr, n.behave(shard))
}

func (n *nodes) Beat(context.Context, string, time.Duration) (int, error) {
	n.beats.Add(1)
	return 7, nil
}

func (n *nodes) set(shard int, err error, late time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.err[shard], n.late[shard] = err, late
}

func (n *nodes) behave(shard int) error {
	n.mu.Lock()
	err, late := n.err[shard], n.late[shard]
	n.mu.Unlock()
	time.Sleep(late)
	return err
}

func (n *nodes) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	d := algorithms.Decision{Allowed: true}
	for _, c := range checks {
		shard := n.Shard(c.Key)
		n.asked[shard].Add(1)
		r := algorithms.Result{Check: c, Source: algorithms.SourceRedis, Err: cmp.Or(n.behave(shard), n.key)}
		if r.Err == nil {
			one, err := n.Memory.Take(ctx, c)
			if err != nil {
				return one, err
			}
			r = one.Results[0]
			r.Source = algorithms.SourceRedis
		}
		d.Allowed = d.Allowed && !r.Denies()
		d.Results = append(d.Results, r)
	}
	if len(checks) == 1 && d.Results[0].Err != nil {
		return algorithms.Decision{}, d.Results[0].Err
	}
	for i := range d.Results {
		if !d.Allowed && d.Results[i].Err == nil && !d.Results[i].HasRoom { // all or nothing
			return d, algorithms.Refund(ctx, n, d)
		}
	}
	return d, nil
}

func (n *nodes) Settle(ctx context.Context, charges ...algorithms.Charge) ([]algorithms.Result, error) {
	return settleRedis(ctx, &n.Memory, charges)
}

// on is a check that a shard counts. It fails open, so that its result says why
// it was not decided.
func on(shard int) algorithms.Check {
	return algorithms.Check{Rule: "r", Key: fmt.Sprint(shard), Limit: algorithms.PerSecond(1_000_000), Fail: Open}
}

// A logbook is what was logged.
type logbook struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// circuits runs a test in a bubble, with a Guard that is closed in the end.
func circuits(t *testing.T, f func(t *testing.T, g *Guard, n *nodes, log *logbook)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log, n := new(logbook), new(nodes)
		g := &Guard{Limiter: n, Instances: 1, Logger: slog.New(slog.NewTextHandler(log, nil)), store: n}
		defer func() {
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		}()
		f(t, g, n, log)
	})
}

// askFor sends so many requests, 1 ms apart, and returns how many were refused.
func askFor(g *Guard, requests int, checks ...algorithms.Check) (refused int) {
	for range requests {
		if d, _ := g.Take(context.Background(), checks...); errors.Is(d.Results[0].Err, ErrOpen) {
			refused++
		}
		time.Sleep(time.Millisecond)
	}
	return refused
}

package failmode_test

import (
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
	"github.com/seed75154129/ratelimit/failmode"
)

// nodes is a store of several shards that fail as they are told. The key of a
// check is the number of its shard.
type nodes struct {
	algorithms.Memory
	moved  atomic.Int64 // where what was counted by shard 0 is counted
	probed [4]atomic.Int64
	asked  [4]atomic.Int64

	mu   sync.Mutex
	err  [4]error
	late [4]time.Duration
}

func (n *nodes) Shard(c algorithms.Check) int {
	var shard int
	_, _ = fmt.Sscan(c.Key, &shard)
	if shard == 0 {
		return int(n.moved.Load())
	}
	return shard
}

func (n *nodes) Names(shards ...int) []string {
	var names []string
	for _, s := range shards {
		names = append(names, fmt.Sprintf("node %d", s))
	}
	return names
}

func (n *nodes) Probe(_ context.Context, shard int) error {
	n.probed[shard].Add(1)
	return n.behave(shard)
}

func (n *nodes) Beat(context.Context, string, time.Duration) (int, error) { return 7, nil }

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
		shard := n.Shard(c)
		n.asked[shard].Add(1)
		r := algorithms.Result{Check: c, Source: algorithms.SourceRedis, Err: n.behave(shard)}
		if r.Err == nil {
			one, err := n.Memory.Take(ctx, c)
			if err != nil {
				return one, err
			}
			r = one.Results[0]
			r.Source = algorithms.SourceRedis
		}
		d.Allowed = d.Allowed && r.Allowed
		d.Results = append(d.Results, r)
	}
	if len(checks) == 1 && d.Results[0].Err != nil {
		return algorithms.Decision{}, d.Results[0].Err
	}
	if !d.Allowed {
		for i := range d.Results { // all or nothing
			if r := &d.Results[i]; r.Err == nil && r.Charged > 0 {
				_ = n.Settle(ctx, 0, *r)
				r.Remaining, r.Charged = r.Remaining+r.Charged, 0
			}
		}
	}
	return d, nil
}

func (n *nodes) Settle(ctx context.Context, cost int64, charged ...algorithms.Result) error {
	for i := range charged {
		charged[i].Source = algorithms.SourceMemory
	}
	return n.Memory.Settle(ctx, cost, charged...)
}

func on(shard int) algorithms.Check {
	return algorithms.Check{Rule: "r", Key: fmt.Sprint(shard), Limit: algorithms.PerSecond(1_000_000)}
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

// breaker runs a test in a bubble, with a breaker that is closed in the end.
func breaker(t *testing.T, f func(t *testing.T, b *failmode.Breaker, n *nodes, log *logbook)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log, n := new(logbook), new(nodes)
		b := &failmode.Breaker{Next: n, Logger: slog.New(slog.NewTextHandler(log, nil))}
		if err := b.Validate(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}()
		f(t, b, n, log)
	})
}

// ask sends so many requests, 1 ms apart, and returns how many were refused.
func askFor(b *failmode.Breaker, requests int, checks ...algorithms.Check) (refused int) {
	for range requests {
		if _, err := b.Take(context.Background(), checks...); errors.Is(err, failmode.ErrOpen) {
			refused++
		}
		time.Sleep(time.Millisecond)
	}
	return refused
}

func TestBreakerOpensAfterFailuresInARow(t *testing.T) {
	breaker(t, func(t *testing.T, b *failmode.Breaker, n *nodes, _ *logbook) {
		for range 100 { // a failure now and then is none in a row
			n.set(0, errAway, 0)
			askFor(b, 4, on(0))
			n.set(0, nil, 0)
			askFor(b, 6, on(0))
		}
		if b.States()[0].Opened > 0 {
			t.Fatalf("opened at 4 failures in a row: %+v", b.States()[0])
		}
		time.Sleep(2 * time.Second)
		n.set(0, errAway, 0)
		asked := n.asked[0].Load()
		if refused := askFor(b, 100, on(0)); refused != 95 || n.asked[0].Load()-asked != 5 {
			t.Errorf("refused %d of 100, asked %d times", refused, n.asked[0].Load()-asked)
		}
		if s := b.States()[0]; !s.Open || s.Opened != 1 || !errors.Is(s.Err, errAway) || b.Down()[0] != "node 0" {
			t.Errorf("%+v, down: %q", s, b.Down())
		}
	})
}

func TestBreakerOpensAtAShareOfFailures(t *testing.T) {
	breaker(t, func(t *testing.T, b *failmode.Breaker, n *nodes, _ *logbook) {
		for i := range 30 { // two of three fail, never more in a row
			n.set(0, nil, 0)
			if i%3 > 0 {
				n.set(0, errAway, 0)
			}
			askFor(b, 1, on(0))
		}
		if s := b.States()[0]; !s.Open || n.asked[0].Load() > 21 {
			t.Errorf("%+v after %d", s, n.asked[0].Load())
		}
	})
}

func TestBreakerClosesOnOneFastProbe(t *testing.T) {
	breaker(t, func(t *testing.T, b *failmode.Breaker, n *nodes, log *logbook) {
		n.set(0, errAway, 50*time.Millisecond)
		for range 5 {
			askFor(b, 1, on(0))
		}
		time.Sleep(10 * time.Second)
		if probes := n.probed[0].Load(); probes < 30 || probes > 60 {
			t.Errorf("%d probes in 10 s", probes)
		}
		n.set(0, nil, 0)
		time.Sleep(240*time.Millisecond + 50*time.Millisecond)
		if s := b.States()[0]; s.Open || askFor(b, 10, on(0)) > 0 {
			t.Errorf("after a probe's time: %+v", s)
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[0], `down="node 0" class=unknown error=away`) ||
			!strings.Contains(lines[1], "level=INFO") || !strings.Contains(lines[1], "after=10.") {
			t.Errorf("logged:\n%s", log)
		}
	})
}

// At a latency around the budget now and then a decision fails. The circuit
// must not open and close all the time.
func TestBreakerDoesNotFlap(t *testing.T) {
	breaker(t, func(t *testing.T, b *failmode.Breaker, n *nodes, _ *logbook) {
		for range 300 { // a minute
			n.set(0, errAway, 50*time.Millisecond)
			askFor(b, 5, on(0))
			time.Sleep(100 * time.Millisecond)
			n.set(0, nil, 40*time.Millisecond) // slow, and sometimes it fails
			askFor(b, 1, on(0))
			time.Sleep(100 * time.Millisecond)
		}
		if s := b.States()[0]; !s.Open || s.Opened > 4 {
			t.Errorf("%+v", s)
		}
	})
	breaker(t, func(t *testing.T, b *failmode.Breaker, n *nodes, _ *logbook) {
		n.set(0, errAway, 0)
		askFor(b, 5, on(0))
		n.set(0, nil, 40*time.Millisecond) // slow for good, but within the budget
		time.Sleep(2 * time.Second)
		if s := b.States()[0]; s.Open {
			t.Errorf("does not close although all is slow but well: %+v", s)
		}
	})
}

// Each time it opens again soon, the circuit wants more good probes.
func TestBreakerIsMoreCarefulEachTime(t *testing.T) {
	breaker(t, func(t *testing.T, b *failmode.Breaker, n *nodes, _ *logbook) {
		for _, probes := range []int64{1, 2, 4, 8, 8} {
			n.set(0, errAway, 0)
			askFor(b, 5, on(0))
			n.set(0, nil, 0)
			n.probed[0].Store(0)
			for b.States()[0].Open {
				time.Sleep(10 * time.Millisecond)
			}
			if got := n.probed[0].Load(); got != probes {
				t.Errorf("closed after %d good probes, want %d", got, probes)
			}
		}
		time.Sleep(11 * time.Second) // calm
		n.set(0, errAway, 0)
		askFor(b, 5, on(0))
		n.set(0, nil, 0)
		n.probed[0].Store(0)
		time.Sleep(time.Second)
		if s := b.States()[0]; s.Open || n.probed[0].Load() != 1 {
			t.Errorf("after a calm: %+v, %d probes", s, n.probed[0].Load())
		}
	})
}

func TestBreakerKeepsShardsApart(t *testing.T) {
	breaker(t, func(t *testing.T, b *failmode.Breaker, n *nodes, log *logbook) {
		n.set(1, errAway, 0)
		n.set(2, errAway, 0)
		for range 5 {
			d, err := b.Take(t.Context(), on(0), on(1), on(2), on(3))
			if err != nil || d.Allowed || d.Results[0].Err != nil || d.Results[1].Err == nil {
				t.Fatalf("%+v, %v", d, err)
			}
		}
		time.Sleep(100 * time.Millisecond)
		if got := strings.Join(b.Down(), " "); got != "node 1 node 2" {
			t.Errorf("down: %q", got)
		}
		if askFor(b, 100, on(0)) != 0 || askFor(b, 100, on(1)) != 100 {
			t.Error("the circuit of a shard is not its own")
		}
		before := n.asked[1].Load()
		d, err := b.Take(t.Context(), on(0), on(1))
		if err != nil || d.Allowed || d.Results[0].Charged != 1 || !errors.Is(d.Results[1].Err, failmode.ErrOpen) || n.asked[1].Load() != before {
			t.Errorf("%+v, %v", d, err)
		}
		if n := strings.Count(log.String(), "\n"); n != 2 || !strings.Contains(log.String(), `down="node 1"`) || !strings.Contains(log.String(), `down="node 2"`) {
			t.Errorf("logged:\n%s", log)
		}
	})
}

// What was sent before a circuit opened and fails after it has closed says
// nothing of now.
func TestBreakerForgetsStragglers(t *testing.T) {
	breaker(t, func(t *testing.T, b *failmode.Breaker, n *nodes, _ *logbook) {
		n.set(0, errAway, 3*time.Second)
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() { _, _ = b.Take(t.Context(), on(0)) })
		}
		synctest.Wait()
		n.set(0, errAway, 0)
		askFor(b, 5, on(0))
		n.set(0, nil, 0)
		time.Sleep(time.Second)
		if b.States()[0].Open {
			t.Fatal("not closed yet")
		}
		wg.Wait()
		if s := b.States()[0]; s.Open || s.Opened != 1 {
			t.Errorf("%+v", s)
		}
	})
}

func TestBreakerCountsOnlyFailuresOfTheStore(t *testing.T) {
	breaker(t, func(t *testing.T, b *failmode.Breaker, n *nodes, log *logbook) {
		n.set(0, answer("WRONGTYPE Operation against a key holding the wrong kind of value"), 0)
		if askFor(b, 1000, on(0)) > 0 || strings.Count(log.String(), "level=ERROR") != 1 {
			t.Errorf("a key that holds something else is no outage, but worth a line:\n%s", log)
		}
		n.set(0, nil, 0)
		bad := on(0)
		bad.Cost = -1
		invalid := func() {
			t.Helper()
			if _, err := b.Take(t.Context(), bad); !errors.Is(err, algorithms.ErrInvalidCheck) {
				t.Fatal(err)
			}
		}
		for range 100 {
			invalid()
		}
		if s := b.States()[0]; s.Opened > 0 {
			t.Errorf("%+v", s)
		}
		for range 5 { // what is not sent is no success either
			invalid()
			n.set(0, errAway, 0)
			askFor(b, 1, on(0))
			n.set(0, nil, 0)
		}
		if s := b.States()[0]; !s.Open {
			t.Errorf("%+v", s)
		}
		time.Sleep(time.Second)
		n.set(0, answer("WRONGPASS invalid username-password pair or user is disabled."), 0)
		if askFor(b, 100, on(0)) != 95 {
			t.Error("every refused decision dials anew: the circuit has to open")
		}
	})
}

// answer is what a Redis says after "-".
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

func TestBreakerSettlesAndResetsWhatItCan(t *testing.T) {
	breaker(t, func(t *testing.T, b *failmode.Breaker, n *nodes, _ *logbook) {
		d, err := b.Take(t.Context(), on(0), on(1))
		if err != nil {
			t.Fatal(err)
		}
		n.set(1, errAway, 0)
		askFor(b, 5, on(1))
		if err := b.Settle(t.Context(), 11, d.Results...); !errors.Is(err, failmode.ErrOpen) {
			t.Errorf("settle: %v", err)
		}
		peek, err := n.Peek(t.Context(), on(0), on(1))
		if err != nil || peek.Results[0].Remaining != 1_000_000-11 || peek.Results[1].Remaining != 1_000_000-1 {
			t.Errorf("%+v, %v", peek, err)
		}
		if err := b.Reset(t.Context(), on(0), on(1)); !errors.Is(err, failmode.ErrOpen) {
			t.Errorf("reset: %v", err)
		}
		peek, err = n.Peek(t.Context(), on(0), on(1))
		if err != nil || peek.Results[0].Remaining != 1_000_000 || peek.Results[1].Remaining != 1_000_000-1 {
			t.Errorf("%+v, %v", peek, err)
		}
	})
}

// What is counted elsewhere since, as after a failover, is sent there at once.
func TestBreakerFollowsChecksThatMove(t *testing.T) {
	breaker(t, func(t *testing.T, b *failmode.Breaker, n *nodes, _ *logbook) {
		c := on(0)
		n.set(0, errAway, 0)
		if askFor(b, 10, c) != 5 {
			t.Fatal("not open")
		}
		n.moved.Store(2)
		if askFor(b, 10, c) != 0 || n.asked[2].Load() != 10 {
			t.Errorf("asked %d times where it is now", n.asked[2].Load())
		}
		if down := b.Down(); len(down) != 1 || down[0] != "node 0" {
			t.Errorf("down: %q", down)
		}
	})
}

// Where nothing is counted any more there is nothing to wait for.
func TestBreakerForgetsAShardThatIsGone(t *testing.T) {
	breaker(t, func(t *testing.T, b *failmode.Breaker, n *nodes, log *logbook) {
		n.set(0, errAway, 0)
		askFor(b, 5, on(0))
		n.set(0, algorithms.ErrGone, 0)
		time.Sleep(time.Second)
		if s := b.States()[0]; s.Open || n.probed[0].Load() != 1 || !strings.Contains(log.String(), `counted elsewhere now" gone="node 0"`) {
			t.Errorf("%+v after %d probes, logged:\n%s", s, n.probed[0].Load(), log)
		}
	})
}

// A Redis that comes back with another password is another trouble: it does not
// mend itself.
func TestBreakerSaysWhenTheReasonChanges(t *testing.T) {
	breaker(t, func(t *testing.T, b *failmode.Breaker, n *nodes, log *logbook) {
		var seen atomic.Int64
		b.Observe(func(_ time.Duration, _ algorithms.Decision, err error) {
			if algorithms.ClassOf(err) == algorithms.ClassRefused {
				seen.Add(1)
			}
		})
		n.set(0, errAway, 0)
		askFor(b, 5, on(0))
		time.Sleep(time.Minute)
		n.set(0, answer("WRONGPASS invalid username-password pair or user is disabled."), 0)
		time.Sleep(time.Minute)
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[1], "level=ERROR") || !strings.Contains(lines[1], "class=refused") {
			t.Errorf("logged:\n%s", log)
		}
		if seen.Load() < 200 {
			t.Errorf("observers saw %d refusals in a minute", seen.Load())
		}
	})
}

// What a check's shard was when it was sent is what failed.
func TestBreakerBlamesTheShardThatWasAsked(t *testing.T) {
	breaker(t, func(t *testing.T, b *failmode.Breaker, n *nodes, _ *logbook) {
		n.set(0, errAway, 10*time.Millisecond)
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { _, _ = b.Take(t.Context(), on(0)) })
		}
		synctest.Wait()
		n.moved.Store(2)
		wg.Wait()
		if down := b.Down(); len(down) != 1 || down[0] != "node 0" {
			t.Errorf("down: %q", down)
		}
	})
}

func TestBreakerAfterClose(t *testing.T) {
	breaker(t, func(t *testing.T, b *failmode.Breaker, n *nodes, _ *logbook) {
		n.set(0, errAway, 0)
		askFor(b, 10, on(0))
		if err := b.Close(); err != nil || len(b.Down()) > 0 {
			t.Errorf("%v, down: %q", err, b.Down())
		}
		if askFor(b, 100, on(0)) > 0 || len(b.Down()) > 0 {
			t.Error("a breaker that is closed still refuses")
		}
	})
}

func TestBreakerIsSafeForConcurrentUse(t *testing.T) {
	n := new(nodes)
	b := &failmode.Breaker{Next: n, ProbeEvery: time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 2000 {
				switch j % 100 {
				case 0:
					n.set(i%4, errAway, 0)
				case 50:
					n.set(i%4, nil, 0)
				}
				_, _ = b.Take(t.Context(), on(j%4), on((j+i)%4))
				_ = b.Down()
				_ = b.States()
			}
		})
	}
	wg.Wait()
	if err := b.Close(); err != nil || len(b.Down()) > 0 {
		t.Errorf("%v, down: %q", err, b.Down())
	}
}

func TestBreakerValidate(t *testing.T) {
	err := (&failmode.Breaker{Failures: -1, ProbeEvery: -1, Fast: -1}).Validate()
	for _, want := range []string{"next: required", "failures: must not", "probe every: must not", "fast: must not"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

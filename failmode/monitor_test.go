package failmode

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// down returns the servers whose circuit is open.
func down(g *Guard) []string {
	if g.ready(); g.invalid != nil {
		return nil
	}
	var shards []int
	for _, s := range g.monitor.States() {
		if s.Open {
			shards = append(shards, s.Shard)
		}
	}
	return g.store.Names(shards...)
}

func TestCircuitsOpensIfTheProbeFails(t *testing.T) {
	circuits(t, func(t *testing.T, g *Guard, n *nodes, _ *logbook) {
		n.key = errAway // and the probes are good
		for range 100 {
			askFor(g, 1, on(0))
			n.key = nil
			askFor(g, 6, on(0))
			n.key = errAway
		}
		if s := g.monitor.States()[0]; s.Opened > 0 {
			t.Fatalf("opened although all probes were good: %+v", s)
		}
		n.key = nil
		time.Sleep(2 * time.Second)
		n.set(0, errAway, 0)
		asked := n.asked[0].Load()
		if refused := askFor(g, 100, on(0)); refused != 99 || n.asked[0].Load()-asked != 1 {
			t.Errorf("refused %d of 100, asked %d times", refused, n.asked[0].Load()-asked)
		}
		if s := g.monitor.States()[0]; !s.Open || s.Opened != 1 || !errors.Is(s.Err, errAway) || down(g)[0] != "node 0" {
			t.Errorf("%+v, down: %q", s, down(g))
		}
	})
}

func TestCircuitsClosesOnOneFastProbe(t *testing.T) {
	circuits(t, func(t *testing.T, g *Guard, n *nodes, log *logbook) {
		n.set(0, errAway, 50*time.Millisecond)
		for range 5 {
			askFor(g, 1, on(0))
		}
		time.Sleep(10 * time.Second)
		if probes := n.probed[0].Load(); probes < 30 || probes > 60 {
			t.Errorf("%d probes in 10 s", probes)
		}
		n.set(0, nil, 0)
		time.Sleep(240*time.Millisecond + 50*time.Millisecond)
		if s := g.monitor.States()[0]; s.Open || askFor(g, 10, on(0)) > 0 {
			t.Errorf("after a probe's time: %+v", s)
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[0], `server="node 0" class=answer error="failmode: probe: away; before it, a decision: away"`) ||
			!strings.Contains(lines[1], "level=INFO") || !strings.Contains(lines[1], "after=10.") {
			t.Errorf("logged:\n%s", log)
		}
	})
}

// At a latency around the budget now and then a decision fails. The circuit
// must not open and close all the time.
func TestCircuitsDoesNotFlap(t *testing.T) {
	circuits(t, func(t *testing.T, g *Guard, n *nodes, _ *logbook) {
		for range 300 { // a minute
			n.set(0, errAway, 50*time.Millisecond)
			askFor(g, 5, on(0))
			time.Sleep(100 * time.Millisecond)
			n.set(0, nil, 40*time.Millisecond) // slow, and sometimes it fails
			askFor(g, 1, on(0))
			time.Sleep(100 * time.Millisecond)
		}
		if s := g.monitor.States()[0]; !s.Open || s.Opened > 4 {
			t.Errorf("%+v", s)
		}
	})
	circuits(t, func(t *testing.T, g *Guard, n *nodes, _ *logbook) {
		n.set(0, errAway, 0)
		askFor(g, 5, on(0))
		n.set(0, nil, 40*time.Millisecond) // slow for good, but within the budget
		time.Sleep(2 * time.Second)
		if s := g.monitor.States()[0]; s.Open {
			t.Errorf("does not close although all is slow but well: %+v", s)
		}
	})
}

// Each time it opens again soon, the circuit wants more good probes.
func TestCircuitsIsMoreCarefulEachTime(t *testing.T) {
	circuits(t, func(t *testing.T, g *Guard, n *nodes, _ *logbook) {
		for _, probes := range []int64{1, 2, 4, 8, 8} {
			n.set(0, errAway, 0)
			askFor(g, 5, on(0))
			n.set(0, nil, 0)
			n.probed[0].Store(0)
			for g.monitor.States()[0].Open {
				time.Sleep(10 * time.Millisecond)
			}
			if got := n.probed[0].Load(); got != probes {
				t.Errorf("closed after %d good probes, want %d", got, probes)
			}
		}
		time.Sleep(11 * time.Second) // calm
		n.set(0, errAway, 0)
		askFor(g, 5, on(0))
		n.set(0, nil, 0)
		n.probed[0].Store(0)
		time.Sleep(time.Second)
		if s := g.monitor.States()[0]; s.Open || n.probed[0].Load() != 1 {
			t.Errorf("after a calm: %+v, %d probes", s, n.probed[0].Load())
		}
	})
}

func TestCircuitsKeepsShardsApart(t *testing.T) {
	circuits(t, func(t *testing.T, g *Guard, n *nodes, log *logbook) {
		n.set(1, errAway, 0)
		n.set(2, errAway, 0)
		for range 5 {
			d, err := g.Take(t.Context(), on(0), on(1), on(2), on(3))
			if err != nil || !d.Allowed || d.Results[0].Err != nil || d.Results[1].Err == nil {
				t.Fatalf("%+v, %v", d, err)
			}
		}
		time.Sleep(100 * time.Millisecond)
		if got := strings.Join(down(g), " "); got != "node 1 node 2" {
			t.Errorf("down: %q", got)
		}
		if askFor(g, 100, on(0)) != 0 || askFor(g, 100, on(1)) != 100 {
			t.Error("the circuit of a shard is not its own")
		}
		before := n.asked[1].Load()
		d, err := g.Take(t.Context(), on(0), on(1))
		if err != nil || !d.Allowed || d.Results[0].Charged != 1 || !errors.Is(d.Results[1].Err, ErrOpen) || n.asked[1].Load() != before {
			t.Errorf("%+v, %v", d, err)
		}
		if n := strings.Count(log.String(), "\n"); n != 2 || !strings.Contains(log.String(), `server="node 1"`) || !strings.Contains(log.String(), `server="node 2"`) {
			t.Errorf("logged:\n%s", log)
		}
	})
}

// What was sent before a circuit opened and fails after it has closed says
// nothing of now.
func TestCircuitsForgetsStragglers(t *testing.T) {
	circuits(t, func(t *testing.T, g *Guard, n *nodes, _ *logbook) {
		n.set(0, errAway, 3*time.Second)
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() { _, _ = g.Take(t.Context(), on(0)) })
		}
		synctest.Wait()
		n.set(0, errAway, 0)
		askFor(g, 5, on(0))
		n.set(0, nil, 0)
		time.Sleep(time.Second)
		if g.monitor.States()[0].Open {
			t.Fatal("not closed yet")
		}
		wg.Wait()
		if s := g.monitor.States()[0]; s.Open || s.Opened != 1 {
			t.Errorf("%+v", s)
		}
	})
}

func TestCircuitsCountsOnlyFailuresOfTheStore(t *testing.T) {
	circuits(t, func(t *testing.T, g *Guard, n *nodes, log *logbook) {
		n.key = answer("WRONGTYPE Operation against a key holding the wrong kind of value")
		if askFor(g, 1000, on(0)) > 0 || strings.Count(log.String(), "level=ERROR") != 1 {
			t.Errorf("a key that holds something else is no outage, but worth a line:\n%s", log)
		}
		if probes := n.probed[0].Load(); probes < 4 || probes > 6 {
			t.Errorf("%d probes in a second, to find out whether it is the key or the server", probes)
		}
		n.key = nil
		bad := on(0)
		bad.Cost = -1
		for range 100 {
			if _, err := g.Take(t.Context(), bad); !errors.Is(err, algorithms.ErrInvalidCheck) {
				t.Fatal(err)
			}
		}
		if s := g.monitor.States()[0]; s.Opened > 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestCircuitsSettlesAndResetsWhatItCan(t *testing.T) {
	circuits(t, func(t *testing.T, g *Guard, n *nodes, _ *logbook) {
		d, err := g.Take(t.Context(), on(0), on(1))
		if err != nil {
			t.Fatal(err)
		}
		n.set(1, errAway, 0)
		askFor(g, 5, on(1))
		if err := settleAll(t.Context(), g, 11, d.Results...); !errors.Is(err, ErrOpen) {
			t.Errorf("settle: %v", err)
		}
		peek, err := n.Peek(t.Context(), on(0), on(1))
		if err != nil || peek.Results[0].Remaining != 1_000_000-11 || peek.Results[1].Remaining != 1_000_000-1 {
			t.Errorf("%+v, %v", peek, err)
		}
		if left := remaining(t, &g.local, on(1)); left != 1_000_000-1 {
			t.Errorf("%d left here before the reset", left)
		}
		if err := g.Reset(t.Context(), on(0), on(1)); !errors.Is(err, ErrOpen) || remaining(t, &g.local, on(1)) != 1_000_000 {
			t.Errorf("reset: %v", err)
		}
		peek, err = n.Peek(t.Context(), on(0), on(1))
		if err != nil || peek.Results[0].Remaining != 1_000_000 || peek.Results[1].Remaining != 1_000_000-1 {
			t.Errorf("%+v, %v", peek, err)
		}
	})
}

// What is counted elsewhere since, as after a failover, is sent there at once.
func TestCircuitsFollowsChecksThatMove(t *testing.T) {
	circuits(t, func(t *testing.T, g *Guard, n *nodes, _ *logbook) {
		c := on(0)
		n.set(0, errAway, 0)
		if askFor(g, 10, c) != 9 {
			t.Fatal("not open")
		}
		n.moved.Store(2)
		if askFor(g, 10, c) != 0 || n.asked[2].Load() != 10 {
			t.Errorf("asked %d times where it is now", n.asked[2].Load())
		}
		if down := down(g); len(down) != 1 || down[0] != "node 0" {
			t.Errorf("down: %q", down)
		}
	})
}

// Where nothing is counted any more there is nothing to wait for.
func TestCircuitsForgetsAShardThatIsGone(t *testing.T) {
	circuits(t, func(t *testing.T, g *Guard, n *nodes, log *logbook) {
		n.set(0, errAway, 0)
		askFor(g, 5, on(0))
		n.set(0, transport.ErrGone, 0)
		time.Sleep(time.Second)
		if s := g.monitor.States()[0]; s.Open || n.probed[0].Load() != 2 || !strings.Contains(log.String(), `no longer in use; circuit closed" server="node 0"`) {
			t.Errorf("%+v after %d probes, logged:\n%s", s, n.probed[0].Load(), log)
		}
	})
}

// A Redis that comes back with another password is another trouble: it does not
// mend itself.
func TestCircuitsSaysWhenTheReasonChanges(t *testing.T) {
	circuits(t, func(t *testing.T, g *Guard, n *nodes, log *logbook) {
		taken(t, g, on(0))
		n.set(0, errAway, 0)
		askFor(g, 5, on(0))
		time.Sleep(time.Minute)
		n.set(0, answer("WRONGPASS invalid username-password pair or user is disabled."), 0)
		time.Sleep(time.Minute)
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[1], "level=ERROR") || !strings.Contains(lines[1], "class=refused") {
			t.Errorf("logged:\n%s", log)
		}
		refused := 0.0
		for m := range g.Metrics() {
			if slices.Contains(m.Labels, string(transport.ClassRefused)) {
				refused = m.Value
			}
		}
		if refused < 200 {
			t.Errorf("%v refusals are counted in a minute", refused)
		}
	})
}

// What a check's shard was when it was sent is what failed.
func TestCircuitsBlamesTheShardThatWasAsked(t *testing.T) {
	circuits(t, func(t *testing.T, g *Guard, n *nodes, _ *logbook) {
		n.set(0, errAway, 10*time.Millisecond)
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { _, _ = g.Take(t.Context(), on(0)) })
		}
		synctest.Wait()
		n.moved.Store(2)
		wg.Wait()
		time.Sleep(10 * time.Millisecond) // that the probe takes
		synctest.Wait()
		if down := down(g); len(down) != 1 || down[0] != "node 0" {
			t.Errorf("down: %q", down)
		}
	})
}

func TestCircuitsAfterClose(t *testing.T) {
	circuits(t, func(t *testing.T, g *Guard, n *nodes, _ *logbook) {
		n.set(0, errAway, 0)
		askFor(g, 10, on(0))
		if err := g.Close(); err != nil || len(down(g)) > 0 {
			t.Errorf("%v, down: %q", err, down(g))
		}
		if askFor(g, 100, on(0)) > 0 || len(down(g)) > 0 {
			t.Error("a monitor that is closed still refuses")
		}
	})
}

func TestCircuitsIsSafeForConcurrentUse(t *testing.T) {
	n := new(nodes)
	g := join(n, 1)
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
				_, _ = g.Take(t.Context(), on(j%4), on((j+i)%4))
				_ = down(g)
				for range g.Metrics() {
				}
			}
		})
	}
	wg.Wait()
	if err := g.Close(); err != nil || len(down(g)) > 0 {
		t.Errorf("%v, down: %q", err, down(g))
	}
}

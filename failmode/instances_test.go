package failmode

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
)

// beating is a store that counts instances.
type beating struct {
	distant

	mu        sync.Mutex
	instances int
	leases    []time.Duration
	err       error
}

func (b *beating) Beat(_ context.Context, id string, lease time.Duration) (int, error) {
	if id == "" {
		return 0, errors.New("no id")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leases = append(b.leases, lease)
	return b.instances, b.err
}

// counting returns a Guard that counts its instances through a store.
func counting(t *testing.T, s *beating, log slog.Handler) *Guard {
	t.Helper()
	g := guarding(t, s)
	g.Instances, g.Logger = 0, slog.New(log)
	return g
}

func (b *beating) beats() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.leases)
}

func TestHeartbeatCountsInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &beating{instances: 4}
		f := counting(t, s, slog.DiscardHandler)
		for range 200 { // 20 s
			taken(t, f, check("r", 1_000_000, Local))
			time.Sleep(100 * time.Millisecond)
		}
		if n := s.beats(); n < 4 || n > 5 || f.instances() != 4 {
			t.Errorf("%d beats in 20 s, %d instances", n, f.instances())
		}
		s.mu.Lock()
		s.err = errAway
		s.mu.Unlock()
		s.away.Store(&errAway)
		d := taken(t, f, check("s", 20, Local))
		if got := d.Results[0].Check.Limit.Rate; got != 5 {
			t.Errorf("the share in an outage is %d, want 5: the last count stays", got)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if last := s.leases[len(s.leases)-1]; last != 0 {
			t.Errorf("did not leave: last lease %s", last)
		}
		beats := s.beats()
		time.Sleep(time.Minute)
		taken(t, f, check("r", 1_000_000, Local))
		synctest.Wait()
		if s.beats() != beats {
			t.Error("beats after Close")
		}
	})
}

// The heartbeat goes on while one circuit is open, but not while all are.
func TestHeartbeatWhileCircuitsAreOpen(t *testing.T) {
	circuits(t, func(t *testing.T, g *Guard, n *nodes, _ *logbook) {
		g.Instances = 0
		taken(t, g, on(0))
		synctest.Wait()
		if g.instances() != 7 {
			t.Errorf("%d instances", g.instances())
		}
		beats := func() int64 {
			before := n.beats.Load()
			time.Sleep(heartbeatInterval)
			taken(t, g, on(0))
			synctest.Wait()
			return n.beats.Load() - before
		}
		taken(t, g, on(1))
		n.set(1, errAway, 0)
		askFor(g, 5, on(1))
		if beats() != 1 {
			t.Error("no beat while one of two circuits is open")
		}
		n.set(0, errAway, 0)
		askFor(g, 5, on(0))
		if beats() != 0 {
			t.Error("a beat while all circuits are open")
		}
	})
}

// After an outage the first beats find nobody else. That is believed only when
// the next one says so too.
func TestHeartbeatBelievesInFewerTheSecondTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(beating)
		f := counting(t, s, slog.DiscardHandler)
		for _, c := range []struct{ counted, want int }{{1, 1}, {5, 5}, {1, 5}, {4, 4}, {6, 6}, {2, 6}, {6, 6}, {2, 6}, {1, 1}} {
			s.mu.Lock()
			s.instances = c.counted
			s.mu.Unlock()
			taken(t, f, check("r", 1_000_000, Local))
			synctest.Wait()
			if f.instances() != c.want {
				t.Errorf("counted %d: %d instances, want %d", c.counted, f.instances(), c.want)
			}
			time.Sleep(6 * time.Second)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestInstancesThatAreSetAreNotCounted(t *testing.T) {
	s := &beating{instances: 4}
	f := guarding(t, s)
	f.Instances = 2
	taken(t, f, check("r", 10, Local))
	if err := f.Close(); err != nil || s.beats() != 0 || f.instances() != 2 {
		t.Errorf("%d beats, %d instances, %v", s.beats(), f.instances(), err)
	}
}

func TestAHeartbeatThatIsForbiddenIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(logbook)
		s := &beating{err: io.EOF} // which the monitor says
		f := counting(t, s, slog.NewTextHandler(log, nil))
		for i := range 200 {
			if i == 100 {
				if log.String() != "" {
					t.Errorf("logged:\n%s", log)
				}
				s.mu.Lock()
				s.err = answer("NOPERM this user has no permissions")
				s.mu.Unlock()
			}
			taken(t, f, check("r", 1_000_000, Local))
			time.Sleep(100 * time.Millisecond)
		}
		if got := strings.Count(log.String(), "set Instances"); got != 1 || f.instances() != 1 {
			t.Errorf("%d instances, logged:\n%s", f.instances(), log.String())
		}
	})
}

// Each Guard counts as an instance, also beside others of one process and namespace.
// Together they admit no more than the limit in an outage, and those that are closed
// leave their share to the others.
func TestSeveralGuardsInOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := limitertest.RedisServer(t)
		counted := func() int64 { return inFlightIn(t, client, "shop:instances") }
		var guards []*Guard
		for range 3 {
			g := &Guard{
				Limiter: &algorithms.Redis{Client: client, Namespace: "shop", Budget: time.Second},
				Logger:  slog.New(slog.DiscardHandler),
			}
			t.Cleanup(func() { _ = g.Close() })
			guards = append(guards, g)
		}
		ask := func(g *Guard, c algorithms.Check) (admitted int) {
			for range 30 {
				if taken(t, g, c).Allowed {
					admitted++
				}
			}
			return admitted
		}
		beat := func(guards ...*Guard) {
			for range 3 { // fewer are believed the second time
				for _, g := range guards {
					taken(t, g, check("r", 1_000_000, Local))
					synctest.Wait()
				}
				time.Sleep(heartbeatInterval)
			}
		}

		beat(guards...)
		if n := counted(); n != 3 || guards[0].instances() != 3 {
			t.Errorf("%d are counted, and the first Guard knows %d; want 3", n, guards[0].instances())
		}
		if err := guards[0].Close(); err != nil {
			t.Error(err)
		}
		if n := counted(); n != 2 {
			t.Errorf("%d are counted after one of three was closed", n)
		}
		guards = guards[1:]
		beat(guards...)

		server.SetError("LOADING Redis is loading the dataset in memory")
		if a, b := ask(guards[0], check("s", 20, Local)), ask(guards[1], check("s", 20, Local)); a != 10 || b != 10 {
			t.Errorf("in an outage, %d and %d of 20 are admitted; want a half each", a, b)
		}
		server.SetError("")
		for _, g := range guards {
			if err := errors.Join(g.Close(), g.Close()); err != nil {
				t.Error(err)
			}
		}
		if n := counted(); n != 0 {
			t.Errorf("%d are counted after all were closed", n)
		}
	})
}

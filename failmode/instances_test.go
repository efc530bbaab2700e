package failmode

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/redistest"
)

// beating is a store that counts instances.
type beating struct {
	fakeRedis

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
		s.away = awayForAll
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
		s := &beating{err: answer("WRONGPASS invalid username-password pair")} // which the breaker says
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

// Two Guards in one process are one instance, and a mistake worth a line.
func TestSeveralGuardsInOneProcess(t *testing.T) {
	srv := redistest.Start(t)
	client, log := srv.Client(t), new(logbook)
	counted := func() int64 { return client.ZCard(t.Context(), "shop:instances").Val() }
	var guards []*Guard
	for range 3 {
		g := &Guard{
			Limiter: &algorithms.Redis{Client: client, Namespace: "shop", Budget: 5 * time.Second},
			Logger:  slog.New(slog.NewTextHandler(log, nil)),
		}
		taken(t, g, check("r", 10, Local))
		guards = append(guards, g)
		for deadline := time.Now().Add(10 * time.Second); counted() == 0 || g.instances() != 1; {
			if time.Now().After(deadline) {
				t.Fatalf("%d counted", counted())
			}
		}
	}
	if n, warned := counted(), strings.Count(log.String(), "several Guards"); n != 1 || warned != 2 {
		t.Errorf("%d instances, %d warnings:\n%s", n, warned, log)
	}
	for i, g := range guards {
		if err := errors.Join(g.Close(), g.Close()); err != nil {
			t.Error(err)
		}
		if n, last := counted(), i == len(guards)-1; n != map[bool]int64{false: 1, true: 0}[last] {
			t.Errorf("after closing %d of %d: %d instances", i+1, len(guards), n)
		}
	}
}

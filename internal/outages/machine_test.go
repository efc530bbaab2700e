package outages

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/internal/redistest"
)

// A machine keeps how late it was at which time: how late timers fire, and how
// long a Redis that nobody else uses takes to answer.
type machine struct {
	idle *redis.Client

	mu      sync.Mutex
	samples []sample
}

// A sample is one look at the machine: when, since the load began, and how late
// it was.
type sample struct{ begin, end, late time.Duration }

func newMachine(t *testing.T) *machine {
	idle := redistest.Start(t).Client(t)
	must(t, idle.Ping(t.Context())) // so that there is a connection
	return &machine{idle: idle}
}

// watch looks again and again, so that at any time some looks are under way.
func (m *machine) watch(ctx context.Context, start time.Time) {
	var looks sync.WaitGroup
	defer looks.Wait()
	for at := start; sleepUntil(ctx, at); at = at.Add(budget / 10) {
		late := time.Since(at)
		looks.Go(func() {
			begin := time.Now()
			if sleepUntil(ctx, begin.Add(budget)) {
				m.note(start, begin, max(late, time.Since(begin)-budget))
			}
		})
		looks.Go(func() {
			begin := time.Now()
			if m.idle.Ping(ctx).Err() == nil {
				m.note(start, begin, time.Since(begin))
			}
		})
	}
}

func (m *machine) note(start, begin time.Time, late time.Duration) {
	end := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.samples = append(m.samples, sample{begin.Sub(start), end.Sub(start), late})
}

// late is how late the machine was, at worst, between two times.
func (m *machine) late(from, to time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	var worst time.Duration
	for _, s := range m.samples {
		if s.begin <= to && from <= s.end {
			worst = max(worst, s.late)
		}
	}
	return worst
}

func TestMachine(t *testing.T) {
	m := &machine{samples: []sample{{10, 60, 3}, {20, 70, 9}, {80, 130, 1}}}
	for _, tt := range []struct{ from, to, want time.Duration }{{0, 9, 0}, {0, 10, 3}, {15, 25, 9}, {71, 79, 0}, {65, 90, 9}, {75, 200, 1}} {
		if got := m.late(tt.from, tt.to); got != tt.want {
			t.Errorf("late(%d, %d) = %d, want %d", tt.from, tt.to, got, tt.want)
		}
	}
}

package outages

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/internal/redistest"
)

// grace is how much longer than it should a request may take.
const grace = 10 * time.Millisecond

// quiet is how long Redis must have decided everything to be back.
const quiet = 500 * time.Millisecond

// checkTimes is about how long requests took, and when Redis did not decide.
func (r *run) checkTimes(v *verdict, p promise) {
	waits, spared, alone, tooLong := 0, 0, 0, 0
	for i := range r.records {
		rec := &r.records[i]
		if rec.begin < 0 {
			continue
		}
		v.summary.requests++
		if rec.status != 0 {
			v.summary.answered++
		}
		end := rec.begin + rec.took
		late := r.machine.late(rec.begin-budget, end) // what was held up before may hold this up
		v.summary.slowest = max(v.summary.slowest, rec.took-late)
		took, isSpared := rec.took-2*late, p.spared != nil && p.spared(rec.client)
		switch {
		case took > grace && isSpared:
			spared++
		case took > grace:
			waits++
		}
		if took > budget+grace {
			tooLong++
			v.late("took longer than the budget", rec)
		}
		if !rec.undecided() {
			continue
		}
		v.summary.alone++
		if since := rec.begin - r.over; r.over > 0 && since > v.summary.recovered && since < v.summary.recovered+quiet {
			v.summary.recovered = since
		}
		during := r.away.Load() && end >= r.began && (r.over == 0 || rec.begin <= r.over+p.back)
		if (!during || isSpared) && !r.excused(p, rec.begin, end) {
			if alone++; alone > p.alone {
				v.late("not decided by Redis although it was there", rec)
			}
		}
	}
	if spared > r.strays() {
		v.late(fmt.Sprintf("so many requests took longer than %v that it does not concern", grace), spared)
	}
	if waits > p.waits {
		v.late(fmt.Sprintf("so many requests took longer than %v, want at most %d", grace, p.waits), waits)
	}
	if n := v.summary.requests; waits > 5*p.waits || tooLong > n/20 {
		v.late("no machine is so busy: took longer than they should", fmt.Sprintf("%d, and %d longer than the budget", waits, tooLong))
	}
}

// excused reports whether the machine was so late that Redis was, too, and the
// limiter may still be noticing.
func (r *run) excused(p promise, from, to time.Duration) bool {
	return p.latency+2*r.machine.late(from-time.Second, to) > budget
}

// busy reports whether the machine was so late at any time that it may be to blame
// for what took too long: between a request and its answer several processes have
// to run, and each may be late.
func (r *run) busy() bool { return 4*r.machine.late(0, r.length) > budget }

// checkOpened is about how often something was down.
func (r *run) checkOpened(v *verdict, p promise) {
	opened := 0
	for _, at := range r.opened {
		if !r.excused(p, at, at) {
			opened++
		}
	}
	if opened > p.opens {
		v.late(fmt.Sprintf("something was down more than %d times", p.opens), r.opened)
	}
}

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

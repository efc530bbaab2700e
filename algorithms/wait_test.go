package algorithms

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var queueOf5 = Check{Rule: "out", Limit: Limit{Rate: 5, Period: time.Second, Burst: 100, Algorithm: LeakyBucket}}

func TestWaitKeepsAConstantRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(Memory)
		begin := time.Now()
		times := make(chan time.Duration, 30)
		for range 30 {
			go func() {
				if _, err := Wait(t.Context(), m, queueOf5); err != nil {
					t.Error(err)
				}
				times <- time.Since(begin)
			}()
		}
		for i := range 30 {
			if got, want := <-times, time.Duration(i)*200*time.Millisecond; got != want {
				t.Errorf("call %d after %s, want %s", i, got, want)
			}
		}
	})
}

func TestWaitRetriesWhatHasNoDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(Memory)
		begin := time.Now()
		for i := range 7 {
			if _, err := Wait(t.Context(), m, Check{Rule: "r", Limit: Limit{Rate: 2, Period: time.Minute, Algorithm: FixedWindow}}); err != nil {
				t.Fatal(err)
			}
			if got, want := time.Since(begin), time.Duration(i/2)*time.Minute; got != want {
				t.Errorf("call %d after %s, want %s", i, got, want)
			}
		}
	})
}

// Callers that cannot wait long must not take slots that nobody uses: slots that
// are given back are free again only while they are the last. They did once,
// and 6 of 100 were served.
func TestWaitStarvesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := distant{new(Memory)}
		check := Check{Rule: "q", Limit: Limit{Rate: 20, Period: time.Second, Burst: 100, Algorithm: LeakyBucket}}
		var passed, denied atomic.Int64
		stop := time.Now().Add(5 * time.Second)
		var callers sync.WaitGroup
		for range 32 {
			callers.Go(func() {
				for time.Now().Before(stop) {
					ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
					begin := time.Now()
					switch _, err := Wait(ctx, l, check); {
					case err == nil:
						passed.Add(1)
					case errors.Is(err, ErrDenied) && time.Since(begin) < 5*time.Millisecond:
						denied.Add(1)
						time.Sleep(20 * time.Millisecond)
					default:
						t.Errorf("after %s: %v", time.Since(begin), err)
					}
					cancel()
				}
			})
		}
		callers.Wait()
		if passed.Load() < 100 || denied.Load() == 0 {
			t.Errorf("passed %d in 5 s of 20 a second, denied %d", passed.Load(), denied.Load())
		}
	})
}

// distant is a limiter with a round trip of 2 ms.
type distant struct{ *Memory }

func (l distant) Take(ctx context.Context, checks ...Check) (Decision, error) {
	time.Sleep(time.Millisecond)
	d, err := l.Memory.Take(ctx, checks...)
	time.Sleep(time.Millisecond)
	return d, err
}

// One who cannot wait that long is denied uncharged, whatever denies, and at
// once if trying again would not help.
func TestWaitChargesNothingThatItCannotWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(Memory)
		beside := Check{Rule: "beside", Limit: PerHour(100)}
		for range 10 { // 2 s
			_, _ = m.Take(t.Context(), queueOf5)
		}
		begin := time.Now()
		for _, left := range []time.Duration{1, time.Microsecond, time.Second, 2*time.Second + 50*time.Millisecond - time.Microsecond} {
			ctx, cancel := context.WithTimeout(t.Context(), left)
			if _, err := Wait(ctx, m, beside, queueOf5); !errors.Is(err, ErrDenied) || time.Since(begin) != 0 {
				t.Errorf("with %s left: %v after %s", left, err, time.Since(begin))
			}
			cancel()
		}
		if d, _ := m.Peek(t.Context(), beside, queueOf5); d.Results[0].Remaining != 100 || d.Results[1].Delay != 2*time.Second {
			t.Errorf("charged: %+v", d)
		}
		hour := Check{Rule: "hour", Limit: PerHour(1)}
		_, _ = m.Take(t.Context(), hour)
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := Wait(brief, m, hour); !errors.Is(err, ErrDenied) || time.Since(begin) != 0 {
			t.Errorf("a retry after an hour with 1s left: %v after %s", err, time.Since(begin))
		}
		hour.Cost = 2
		if _, err := Wait(t.Context(), m, hour); !errors.Is(err, ErrDenied) {
			t.Errorf("never: %v", err)
		}
		// The check's own MaxDelay says how long in the queue, not how long in all.
		own := queueOf5
		own.MaxDelay = 500 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second+50*time.Millisecond)
		defer cancel()
		if d, err := Wait(ctx, m, own); err != nil || d.Delay() != 500*time.Millisecond || time.Since(begin) != 2*time.Second {
			t.Errorf("%+v, %v after %s", d, err, time.Since(begin))
		}
		// In a full queue there is room before the slot can begin.
		full := Check{Rule: "full", Limit: Limit{Rate: 1, Period: time.Second, Burst: 10, Algorithm: LeakyBucket}, Cost: 10}
		_, _ = m.Take(t.Context(), full)
		full.Cost, begin = 1, time.Now()
		ctx, cancel = context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := Wait(ctx, m, full); !errors.Is(err, ErrDenied) || time.Since(begin) != 0 {
			t.Errorf("in a full queue: %v after %s", err, time.Since(begin))
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(Memory)
		for range 10 {
			_, _ = m.Take(t.Context(), queueOf5)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := Wait(ctx, m, queueOf5)
			done <- err
		}()
		time.Sleep(500 * time.Millisecond)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if d, _ := m.Peek(t.Context(), queueOf5); d.Results[0].Delay != 1500*time.Millisecond {
			t.Errorf("its slot was not given back: %+v", d)
		}
		if _, err := Wait(ctx, m, queueOf5); !errors.Is(err, context.Canceled) {
			t.Errorf("with a context that has ended: %v", err)
		}
	})
}

func TestWaitReportsWhatNobodyCouldDecide(t *testing.T) {
	away := errors.New("away")
	for name, d := range map[string]Decision{
		"an error":     {},
		"in a result":  {Results: []Result{{Err: away}}},
		"beside a yes": {Results: []Result{{HasRoom: true}, {Err: away}}},
	} {
		l := answering{take: func() (Decision, error) {
			if d.Results == nil {
				return d, away
			}
			return d, nil
		}}
		if _, err := Wait(t.Context(), l, queueOf5); !errors.Is(err, away) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type answering struct {
	Limiter
	take func() (Decision, error)
}

func (a answering) Take(context.Context, ...Check) (Decision, error) { return a.take() }

func TestWaitGivesBackWhatAPartOfAClusterCharged(t *testing.T) {
	m := new(Memory)
	check := Check{Rule: "r", Limit: PerHour(5)}
	l := partly{m}
	if _, err := Wait(t.Context(), l, check, Check{Rule: "lost", Limit: PerHour(5)}); err == nil {
		t.Error("no error")
	}
	if d, _ := m.Peek(t.Context(), check); d.Results[0].Remaining != 5 {
		t.Errorf("%+v", d)
	}
}

// partly decides only the first check.
type partly struct{ *Memory }

func (p partly) Take(ctx context.Context, checks ...Check) (Decision, error) {
	d, err := p.Memory.Take(ctx, checks[:1]...)
	d.Allowed = false
	d.Results = append(d.Results, Result{Check: checks[1], Err: errors.New("away")})
	return d, err
}

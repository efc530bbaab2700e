package algorithms

import (
	"context"
	"errors"
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

func TestWaitDeniesAtOnceWhatWouldBeTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(Memory)
		begin := time.Now()
		for range 10 {
			if _, err := m.Take(t.Context(), queueOf5); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := Wait(ctx, m, queueOf5); !errors.Is(err, ErrDenied) || time.Since(begin) != 0 {
			t.Errorf("a delay of 2s with 1s left: %v after %s", err, time.Since(begin))
		}
		if d, _ := m.Peek(t.Context(), queueOf5); d.Results[0].Delay != 2*time.Second {
			t.Errorf("its slot was not given back: %+v", d)
		}
		full := Check{Rule: "r", Limit: PerHour(1)}
		_, _ = m.Take(t.Context(), full)
		if _, err := Wait(ctx, m, full); !errors.Is(err, ErrDenied) || time.Since(begin) != 0 {
			t.Errorf("a retry after an hour with 1s left: %v after %s", err, time.Since(begin))
		}
		if _, err := Wait(t.Context(), m, Check{Rule: "r", Limit: PerHour(1), Cost: 2}); !errors.Is(err, ErrDenied) {
			t.Errorf("never: %v", err)
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
		"beside a yes": {Results: []Result{{Allowed: true}, {Err: away}}},
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

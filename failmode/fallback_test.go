package failmode_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
)

var errAway = errors.New("away")

// store is a Memory that says it is Redis, and can be away, all of it or for
// some rules, as a cluster is whose one node is dead.
type store struct {
	algorithms.Memory
	away map[string]bool // by rule; "" is all
}

func (s *store) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	return s.decide(ctx, s.Memory.Take, checks)
}

func (s *store) Peek(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	return s.decide(ctx, s.Memory.Peek, checks)
}

func (s *store) decide(ctx context.Context, ask func(context.Context, ...algorithms.Check) (algorithms.Decision, error), checks []algorithms.Check) (algorithms.Decision, error) {
	if s.away[""] {
		return algorithms.Decision{}, errAway
	}
	d := algorithms.Decision{Allowed: true}
	for _, c := range checks {
		r := algorithms.Result{Check: c, Source: algorithms.SourceRedis, Err: errAway}
		if !s.away[c.Rule] {
			one, err := ask(ctx, c)
			if err != nil {
				return one, err
			}
			r = one.Results[0]
			r.Source = algorithms.SourceRedis
		}
		d.Allowed = d.Allowed && r.Allowed
		d.Results = append(d.Results, r)
	}
	if !d.Allowed && len(s.away) == 0 { // all or nothing
		_ = s.Settle(ctx, 0, d.Results...)
		for i := range d.Results {
			d.Results[i].Charged = 0
		}
	}
	return d, nil
}

func (s *store) Settle(ctx context.Context, cost int64, charged ...algorithms.Result) error {
	for _, r := range charged {
		if r.Source != algorithms.SourceRedis {
			return errors.New("settle: a result of another store")
		}
		r.Source = algorithms.SourceMemory
		if err := s.Memory.Settle(ctx, cost, r); err != nil {
			return err
		}
	}
	return nil
}

func (s *store) used(t *testing.T, c algorithms.Check) int64 {
	t.Helper()
	d, err := s.Memory.Peek(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return c.Limit.Quota() - d.Results[0].Remaining
}

// untilUsed waits until what is given back in the background is.
func (s *store) untilUsed(t *testing.T, c algorithms.Check, want int64) {
	t.Helper()
	for s.used(t, c) != want {
		if t.Context().Err() != nil {
			t.Fatalf("%d used, want %d", s.used(t, c), want)
		}
		runtime.Gosched()
	}
}

func check(rule string, rate int64, fail failmode.Mode) algorithms.Check {
	return algorithms.Check{Rule: rule, Key: "k", Limit: algorithms.PerHour(rate), Cost: 1, Fail: fail}
}

func take(t *testing.T, l algorithms.Limiter, checks ...algorithms.Check) algorithms.Decision {
	t.Helper()
	d, err := l.Take(t.Context(), checks...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestModes(t *testing.T) {
	for name, c := range map[string]struct {
		mode    failmode.Mode
		allowed int // of 10, at 4 an hour
		source  algorithms.Source
	}{
		"local counts here":      {failmode.Local, 4, algorithms.SourceFallback},
		"open passes uncounted":  {failmode.Open, 10, algorithms.SourceFailOpen},
		"closed denies":          {failmode.Closed, 0, algorithms.SourceFailClosed},
		"the zero mode is local": {0, 4, algorithms.SourceFallback},
	} {
		t.Run(name, func(t *testing.T) {
			f := &failmode.Fallback{Next: &store{away: map[string]bool{"": true}}, Logger: slog.New(slog.DiscardHandler)}
			allowed := 0
			for range 10 {
				d := take(t, f, check("r", 4, c.mode))
				r := d.Results[0]
				if d.Allowed {
					allowed++
				} else if r.RetryAfter <= 0 {
					t.Errorf("denied without RetryAfter: %+v", r)
				}
				if r.Source != c.source {
					t.Errorf("source %q, want %q", r.Source, c.source)
				}
				if counted := c.mode == failmode.Local; (r.Err == nil) != counted || !counted && !errors.Is(r.Err, errAway) {
					t.Errorf("Err is %v", r.Err)
				}
			}
			if allowed != c.allowed {
				t.Errorf("allowed %d, want %d", allowed, c.allowed)
			}
		})
	}
}

func TestPartialFailureFollowsTheModesOfTheChecksConcerned(t *testing.T) {
	s := &store{away: map[string]bool{"lost": true}}
	f := &failmode.Fallback{Next: s, Logger: slog.New(slog.DiscardHandler)}
	well := check("well", 100, failmode.Closed)

	t.Run("open", func(t *testing.T) {
		if d := take(t, f, well, check("lost", 1, failmode.Open)); !d.Allowed || d.Results[0].Charged != 1 {
			t.Errorf("%+v", d)
		}
	})
	t.Run("closed gives back what others were charged", func(t *testing.T) {
		before := s.used(t, well)
		d := take(t, f, well, check("lost", 1, failmode.Closed))
		if d.Allowed || d.Results[0].Charged != 0 || d.Results[0].Remaining != 100-before {
			t.Errorf("%+v, used %d before", d, before)
		}
		s.untilUsed(t, well, before)
	})
	t.Run("a local denial gives back what others were charged", func(t *testing.T) {
		lost := check("lost", 2, failmode.Local)
		for range 2 {
			take(t, f, well, lost)
		}
		before := s.used(t, well)
		if d := take(t, f, well, lost); d.Allowed {
			t.Errorf("%+v", d)
		}
		s.untilUsed(t, well, before)
	})
	t.Run("a denial elsewhere charges nothing locally", func(t *testing.T) {
		full, lost := check("full", 1, failmode.Closed), check("lost", 3, failmode.Local)
		lost.Key = "other"
		take(t, f, full)
		for range 5 {
			take(t, f, full, lost)
		}
		if d := take(t, f, lost); d.Results[0].Remaining != 2 {
			t.Errorf("the local count is not untouched: %+v", d)
		}
	})
}

func TestShareOfTheLimit(t *testing.T) {
	bucket := algorithms.Limit{Rate: 100, Period: time.Hour, Burst: 40, Algorithm: algorithms.TokenBucket}
	for name, c := range map[string]struct {
		limit     algorithms.Limit
		cost      int64
		instances int
		want      algorithms.Limit
	}{
		"alone":                  {algorithms.PerHour(100), 1, 0, algorithms.PerHour(100)},
		"divided":                {algorithms.PerHour(100), 1, 4, algorithms.PerHour(25)},
		"rounded down":           {algorithms.PerHour(100), 1, 3, algorithms.PerHour(33)},
		"at least 1":             {algorithms.PerHour(5), 1, 10, algorithms.PerHour(1)},
		"at least the cost":      {algorithms.PerHour(100), 30, 10, algorithms.PerHour(30)},
		"never above the limit":  {algorithms.PerHour(5), 30, 10, algorithms.PerHour(5)},
		"a bucket's both":        {bucket, 1, 4, algorithms.Limit{Rate: 25, Period: time.Hour, Burst: 10, Algorithm: algorithms.TokenBucket}},
		"a bucket's burst":       {bucket, 15, 10, algorithms.Limit{Rate: 10, Period: time.Hour, Burst: 15, Algorithm: algorithms.TokenBucket}},
		"a bucket without burst": {algorithms.Limit{Rate: 100, Period: time.Hour, Algorithm: algorithms.TokenBucket}, 1, 4, algorithms.Limit{Rate: 25, Period: time.Hour, Algorithm: algorithms.TokenBucket}},
	} {
		t.Run(name, func(t *testing.T) {
			f := &failmode.Fallback{Next: &store{away: map[string]bool{"": true}}, Instances: c.instances, Logger: slog.New(slog.DiscardHandler)}
			d := take(t, f, algorithms.Check{Rule: "r", Limit: c.limit, Cost: c.cost})
			if got := d.Results[0].Check.Limit; got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestSettleAndResetReachTheStoreThatCharged(t *testing.T) {
	s := &store{away: map[string]bool{"lost": true}}
	f := &failmode.Fallback{Next: s, Logger: slog.New(slog.DiscardHandler)}
	well, lost := check("well", 10, failmode.Local), check("lost", 10, failmode.Local)
	d := take(t, f, well, lost)
	if err := f.Settle(t.Context(), 4, d.Results...); err != nil {
		t.Fatal(err)
	}
	d, err := f.Peek(t.Context(), well, lost)
	if err != nil || d.Results[0].Remaining != 6 || d.Results[1].Remaining != 6 {
		t.Errorf("after settling at 4: %+v, %v", d, err)
	}
	if err := f.Reset(t.Context(), well, lost); err != nil {
		t.Fatal(err)
	}
	d, err = f.Peek(t.Context(), well, lost)
	if err != nil || d.Results[0].Remaining != 10 || d.Results[1].Remaining != 10 {
		t.Errorf("after a reset: %+v, %v", d, err)
	}
}

func TestTheCallersMistakeIsNoOutage(t *testing.T) {
	f := &failmode.Fallback{Next: new(store)}
	bad := check("r", 0, failmode.Open)
	if _, err := f.Take(t.Context(), bad); !errors.Is(err, algorithms.ErrInvalidCheck) {
		t.Errorf("got %v", err)
	}
}

// limiter hides what a Counter has beyond a Limiter.
type limiter struct{ algorithms.Limiter }

func TestAroundALimiterThatIsNoCounter(t *testing.T) {
	f := &failmode.Fallback{Next: limiter{new(store)}}
	d := take(t, f, check("r", 10, failmode.Local))
	if _, err := f.Peek(t.Context(), check("r", 10, failmode.Local)); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Peek: %v", err)
	}
	if err := f.Settle(t.Context(), 0, d.Results...); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Settle: %v", err)
	}
	if err := f.Reset(t.Context(), check("r", 10, failmode.Local)); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Reset: %v", err)
	}
	if f.Unwrap() != f.Next {
		t.Error("Unwrap is not Next")
	}
}

func TestAnOutageIsLoggedOnceEachWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := &store{away: map[string]bool{"": true}}
		f := &failmode.Fallback{Next: s, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		for range 50 {
			take(t, f, check("r", 1, failmode.Open))
			time.Sleep(100 * time.Millisecond)
		}
		s.away = nil
		for range 60 {
			take(t, f, check("r", 100, failmode.Open))
			time.Sleep(100 * time.Millisecond)
		}
		if got := log.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "level=WARN") || !strings.Contains(got, "error=away") || !strings.Contains(got, "level=INFO") {
			t.Errorf("logged:\n%s", got)
		}
		log.Reset()
		for range 1000 { // one part is away, the other answers
			s.away = map[string]bool{"lost": true}
			take(t, f, check("lost", 1, failmode.Open))
			take(t, f, check("r", 10_000, failmode.Open))
			time.Sleep(10 * time.Millisecond)
		}
		if n := strings.Count(log.String(), "\n"); n != 1 {
			t.Errorf("%d lines:\n%s", n, log.String())
		}
	})
}

func TestFallbackValidate(t *testing.T) {
	for want, f := range map[string]*failmode.Fallback{
		"next: required":                       {},
		"instances: must not be negative":      {Next: new(store), Instances: -1},
		"client: required, got nil\nnamespace": {Next: new(algorithms.Redis)},
	} {
		if err := f.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if err := (&failmode.Fallback{Next: new(store)}).Validate(); err != nil {
		t.Error(err)
	}
}

// settling counts what is settled.
type settling struct {
	algorithms.Counter
	answer  algorithms.Decision
	late    time.Duration
	settled int
}

func (s *settling) Take(context.Context, ...algorithms.Check) (algorithms.Decision, error) {
	return s.answer, nil
}

func (s *settling) Settle(context.Context, int64, ...algorithms.Result) error {
	time.Sleep(s.late)
	s.settled++
	return nil
}

// Next gives back what it denies itself. If the answer to that was lost, giving
// back again could free more than was charged.
func TestWhatNextDeniesIsNotGivenBackAgain(t *testing.T) {
	a, b, lost := check("a", 5, failmode.Closed), check("b", 5, failmode.Closed), check("lost", 5, failmode.Closed)
	charged := algorithms.Result{Check: a, Source: algorithms.SourceRedis, Allowed: true, Charged: 1}
	next := &settling{answer: algorithms.Decision{Results: []algorithms.Result{
		charged, {Check: b, Source: algorithms.SourceRedis}, {Check: lost, Err: errAway},
	}}}
	f := &failmode.Fallback{Next: next, Logger: slog.New(slog.DiscardHandler)}
	if d := take(t, f, a, b, lost); d.Allowed || next.settled != 0 {
		t.Errorf("%+v, settled %d times", d, next.settled)
	}
	next.answer.Results = []algorithms.Result{charged, {Check: lost, Err: errAway}}
	d := take(t, f, a, lost)
	if err := f.Close(); err != nil || d.Allowed || next.settled != 1 {
		t.Errorf("%+v, settled %d times, %v", d, next.settled, err)
	}
}

type closer struct {
	algorithms.Limiter
	closed bool
}

func (c *closer) Close() error {
	c.closed = true
	return errAway
}

func TestCloseClosesWhatCanBeClosed(t *testing.T) {
	c := new(closer)
	if err := (&failmode.Fallback{Next: c}).Close(); !errors.Is(err, errAway) || !c.closed {
		t.Errorf("got %v", err)
	}
	if err := (&failmode.Fallback{Next: new(algorithms.Memory)}).Close(); err != nil {
		t.Error(err)
	}
}

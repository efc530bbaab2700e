package failmode

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

func TestModes(t *testing.T) {
	for name, c := range map[string]struct {
		mode    Mode
		allowed int // of 10, at 4 an hour
		source  algorithms.Source
	}{
		"local counts here":      {Local, 4, algorithms.SourceFallback},
		"open passes uncounted":  {Open, 10, algorithms.SourceFailOpen},
		"closed denies":          {Closed, 0, algorithms.SourceFailClosed},
		"the zero mode is local": {0, 4, algorithms.SourceFallback},
	} {
		t.Run(name, func(t *testing.T) {
			f := guarding(t, awayStore())
			allowed := 0
			asked := check("r", 4, c.mode)
			for range 10 {
				d := taken(t, f, asked)
				r := d.Results[0]
				if d.Allowed {
					allowed++
				} else if r.RetryAfter <= 0 {
					t.Errorf("denied without RetryAfter: %+v", r)
				}
				if r.Source != c.source {
					t.Errorf("source %q, want %q", r.Source, c.source)
				}
				if counted := c.source == algorithms.SourceFallback; (r.Err == nil) != counted || !counted && !errors.Is(r.Err, errAway) {
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
	s := &distant{lost: map[string]error{"lost": errAway}}
	f := guarding(t, s)
	well := check("well", 100, Closed)

	t.Run("open", func(t *testing.T) {
		if d := taken(t, f, well, check("lost", 1, Open)); !d.Allowed || d.Results[0].Charged != 1 {
			t.Errorf("%+v", d)
		}
	})
	t.Run("a denial elsewhere charges nothing locally", func(t *testing.T) {
		full, lost := check("full", 1, Closed), check("lost", 3, Local)
		lost.Key = "other"
		taken(t, f, full)
		for range 5 {
			taken(t, f, full, lost)
		}
		if d := taken(t, f, lost); d.Results[0].Remaining != 2 {
			t.Errorf("the local count is not untouched: %+v", d)
		}
	})
}

func TestShareOfTheLimit(t *testing.T) {
	bucket := algorithms.Limit{Rate: 100, Period: time.Hour, Burst: 40, Algorithm: algorithms.TokenBucket}
	slow := algorithms.Limit{Rate: 100, Period: 365 * 24 * time.Hour, Burst: 3000, Algorithm: algorithms.GCRA}
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
		"whole if invalid":       {slow, 3000, 100, slow},
		"at least the cost":      {algorithms.PerHour(100), 30, 10, algorithms.PerHour(30)},
		"never above the limit":  {algorithms.PerHour(5), 30, 10, algorithms.PerHour(5)},
		"a bucket's both":        {bucket, 1, 4, algorithms.Limit{Rate: 25, Period: time.Hour, Burst: 10, Algorithm: algorithms.TokenBucket}},
		"a bucket's burst":       {bucket, 15, 10, algorithms.Limit{Rate: 10, Period: time.Hour, Burst: 15, Algorithm: algorithms.TokenBucket}},
		"a bucket without burst": {algorithms.Limit{Rate: 100, Period: time.Hour, Algorithm: algorithms.TokenBucket}, 1, 4, algorithms.Limit{Rate: 25, Period: time.Hour, Algorithm: algorithms.TokenBucket}},
	} {
		t.Run(name, func(t *testing.T) {
			f := guarding(t, awayStore())
			f.Instances = c.instances
			d := taken(t, f, algorithms.Check{Rule: "r", Limit: c.limit, Cost: c.cost})
			if got := d.Results[0].Check.Limit; got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestSettleAndResetReachTheStoreThatCharged(t *testing.T) {
	s := &distant{lost: map[string]error{"lost": errAway}}
	f := guarding(t, s)
	well, lost := check("well", 10, Local), check("lost", 10, Local)
	d := taken(t, f, well, lost)
	taken(t, f, well, lost) // of others
	for _, cost := range []int64{4, 4, 2, 2, 0, 0, 5} {
		var err error
		if d.Results, err = f.Settle(t.Context(), chargesOf(cost, d.Results...)...); err != nil {
			t.Fatal(err)
		}
		if cost == 5 {
			cost = 0 // it has ended
		}
		for _, where := range []algorithms.Limiter{f, &f.local} { // which follows the store
			d, err := where.Peek(t.Context(), well, lost)
			if err != nil || d.Results[0].Remaining != 9-cost || d.Results[1].Remaining != 9-cost {
				t.Errorf("%T after settling at %d: %+v, %v", where, cost, d, err)
			}
		}
	}
	if err := f.Reset(t.Context(), well, lost); err != nil {
		t.Fatal(err)
	}
	d, err := f.Peek(t.Context(), well, lost)
	if err != nil || d.Results[0].Remaining != 10 || d.Results[1].Remaining != 10 {
		t.Errorf("after a reset: %+v, %v", d, err)
	}
}

func TestGuardValidate(t *testing.T) {
	for want, g := range map[string]*Guard{
		"limiter: required":                    {},
		"instances: must not be negative":      {Limiter: new(algorithms.Memory), Instances: -1},
		"client: required, got nil\nnamespace": {Limiter: new(algorithms.Redis)},
		"client: required, got nil":            {Limiter: &lossy{Limiter: new(algorithms.Redis)}},
	} {
		for _, err := range []error{g.Validate(), g.Warm(t.Context())} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		}
		if _, err := g.Take(t.Context(), check("r", 1, Open)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Take: got %v, want %q", err, want)
		}
		if err := g.Close(); err != nil || down(g) != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if err := (&Guard{Limiter: new(algorithms.Memory)}).Validate(); err != nil {
		t.Error(err)
	}
}

// settling says what it is told, and counts what is settled.
type settling struct {
	algorithms.Memory
	fake
	answer  algorithms.Decision
	late    time.Duration
	settled atomic.Int64
}

func (s *settling) Take(context.Context, ...algorithms.Check) (algorithms.Decision, error) {
	return s.answer, nil
}

func (s *settling) Settle(ctx context.Context, charges ...algorithms.Charge) ([]algorithms.Result, error) {
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(s.late):
	}
	s.settled.Add(int64(len(charges)))
	return make([]algorithms.Result, len(charges)), nil
}

// What a store has charged to a request that is denied is refunded once, unless the
// store has refunded it. The request does not wait for that: the decision may have used
// up its budget. Close waits, but not for a store that hangs.
func TestOnlyWhatIsStillChargedIsRefunded(t *testing.T) {
	for name, c := range map[string]struct {
		charged [2]int64 // to a check, and to the other, which denies unless it fails open
		err     error    // of the other
		fail    Mode     // of the other
		late    time.Duration
		want    int64
	}{
		"the store has refunded it":             {[2]int64{0, 0}, errAway, Closed, time.Second / 2, 0},
		"the other check is not decided":        {[2]int64{1, 0}, errAway, Closed, time.Second / 2, 1},
		"the store had no time to refund it":    {[2]int64{1, 0}, nil, Closed, time.Second / 2, 1},
		"the store does not answer to a refund": {[2]int64{1, 0}, errAway, Closed, time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := check("a", 5, Closed), check("b", 5, c.fail)
				s := &settling{late: c.late, answer: algorithms.Decision{Results: []algorithms.Result{
					{Check: a, Source: algorithms.SourceRedis, HasRoom: true, Charged: c.charged[0], Remaining: 3},
					{Check: b, Source: algorithms.SourceRedis, Err: c.err, Charged: c.charged[1]},
				}}}
				f := guarding(t, s)
				begun := time.Now()
				d := taken(t, f, a, b)
				if r := d.Results[0]; d.Allowed != (c.fail == Open) || !d.Allowed && r.Charged != 0 || r.Remaining != 3 || time.Since(begun) > 0 {
					t.Errorf("%+v after %s", d, time.Since(begun))
				}
				if err := f.Close(); err != nil || s.settled.Load() != c.want || time.Since(begun) > time.Second {
					t.Errorf("settled %d times after %s, want %d: %v", s.settled.Load(), time.Since(begun), c.want, err)
				}
			})
		})
	}
}

// mute settles nothing, and says nothing about it.
type mute struct{ algorithms.Memory }

func (*mute) Settle(context.Context, ...algorithms.Charge) ([]algorithms.Result, error) {
	return nil, nil
}

// A charge that the limiter leaves out of its answer is not settled, which is said.
func TestALimiterThatAnswersNoSettlement(t *testing.T) {
	g := &Guard{Limiter: new(mute), Instances: 1}
	defer func() { _ = g.Close() }()
	charged := taken(t, g, check("r", 5, Closed)).Results
	if results, err := g.Settle(t.Context(), chargesOf(0, charged...)...); err == nil || len(results) != 1 || results[0].Err == nil || results[0].Charged != 1 {
		t.Errorf("%+v, %v", results, err)
	}
}

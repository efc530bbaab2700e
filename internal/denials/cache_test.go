package denials

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/naming"
)

// A scene is a Cache in front of a Memory, in fake time.
type scene struct {
	*testing.T
	cache   Cache
	store   algorithms.Memory
	refuses bool
}

func play(t *testing.T, f func(s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{T: t}
		s.cache.Start(func(algorithms.Check) bool { return s.refuses })
		f(s)
	})
}

// take decides a request, by the Cache or by the store, which answers after a while.
func (s *scene) take(c algorithms.Check, after time.Duration) (d algorithms.Decision, here bool) {
	s.Helper()
	d, here, again := s.cache.Decide([]algorithms.Check{c})
	if here {
		return d, true
	}
	asked := time.Now()
	d, err := s.store.Take(s.Context(), c)
	if err != nil {
		s.Fatal(err)
	}
	time.Sleep(after)
	s.cache.Learn(asked, &d.Results[0], again)
	return d, false
}

// is reports an outcome that is not the expected one.
func (s *scene) is(what string, c algorithms.Check, allowed, here bool) {
	s.Helper()
	if d, cached := s.take(c, 0); d.Allowed != allowed || cached != here {
		s.Errorf("%s: allowed %v, known %v; want %v, %v: %+v", what, d.Allowed, cached, allowed, here, d)
	}
}

func check(l algorithms.Limit, cost int64) algorithms.Check {
	return algorithms.Check{Rule: "r", Key: "everyone", Limit: l, Cost: cost}
}

// One request denies only those that are like it.
func TestADenialIsOfACountALimitAndACost(t *testing.T) {
	play(t, func(s *scene) {
		l := algorithms.PerMinute(1000)
		s.is("the first", check(l, 600), true, false)
		for _, cost := range []int64{500, 2000} {
			s.is("expensive", check(l, cost), false, false)
			s.is("expensive", check(l, cost), false, true)
		}
		s.is("cheap, beside expensive ones", check(l, 1), true, false)
	})
	play(t, func(s *scene) {
		free, paid := algorithms.PerMinute(60), algorithms.PerMinute(1000)
		s.is("all of the free limit", check(free, 60), true, false)
		s.is("free", check(free, 1), false, false)
		s.is("free", check(free, 1), false, true)
		s.is("paid, behind the same address", check(paid, 1), true, false)
	})
	play(t, func(s *scene) {
		patient := check(algorithms.Limit{Rate: 1, Period: time.Second, Burst: 5, Algorithm: algorithms.LeakyBucket}, 1)
		impatient := patient
		impatient.MaxDelay = 5 * time.Millisecond
		s.is("the first", patient, true, false)
		s.is("impatient", impatient, false, false)
		s.is("impatient: not remembered", impatient, false, false)
		s.is("patient", patient, true, false)
	})
	play(t, func(s *scene) { // more limits and costs than are remembered
		l := algorithms.PerMinute(10)
		s.is("all", check(l, 10), true, false)
		for cost := range int64(10 * perCount) {
			s.take(check(l, cost+1), 0)
		}
		s.is("denied by the store or here", check(l, 10*perCount), false, true)
	})
}

// When it is time, one request asks again; without an answer, the true end holds.
func TestTheTwoTimesOfADenial(t *testing.T) {
	l := algorithms.Limit{Rate: 1, Period: 40 * time.Second, Burst: 1, Algorithm: algorithms.TokenBucket}
	play(t, func(s *scene) {
		c := check(l, 1)
		s.is("the first", c, true, false)
		s.is("denied", c, false, false)
		time.Sleep(askInterval - time.Nanosecond)
		s.is("less than a second later", c, false, true)
		time.Sleep(time.Nanosecond)
		if _, here, again := s.cache.Decide([]algorithms.Check{c}); here || !again {
			t.Error("after a second, nobody asks")
		}
		s.is("while one asks", c, false, true)
		s.refuses = true
		time.Sleep(20 * time.Second)
		s.is("in an outage", c, false, true)
		if r, known := s.cache.Find(&c); !known || r.RetryAfter != 19*time.Second || r.Remaining != 0 {
			t.Errorf("in an outage: %+v", r)
		}
		time.Sleep(19 * time.Second)
		if r, known := s.cache.Find(&c); known {
			t.Errorf("after its true end: %+v", r)
		}
		s.is("after its true end", c, true, false)
	})
	play(t, func(s *scene) { // freed elsewhere
		c := check(l, 1)
		s.is("the first", c, true, false)
		s.is("denied", c, false, false)
		if err := s.store.Reset(s.Context(), c); err != nil {
			t.Fatal(err)
		}
		time.Sleep(askInterval)
		s.is("a second later", c, true, false)
		s.is("then", c, false, false)
	})
	play(t, func(s *scene) { // units that are given back all the time
		c := check(l, 1)
		c.Provisional = true
		s.is("the first", c, true, false)
		s.is("denied", c, false, false)
		time.Sleep(askSoon - time.Nanosecond)
		s.is("at once", c, false, true)
		time.Sleep(time.Nanosecond)
		s.is("after 20 ms", c, false, false)
		s.refuses = true
		time.Sleep(time.Second)
		s.is("in an outage", c, false, true)
	})
	play(t, func(s *scene) {
		c := check(algorithms.MaxInFlight(1), 1)
		s.is("the first", c, true, false)
		s.is("denied", c, false, false)
		s.is("at once", c, false, true)
		s.refuses = true
		time.Sleep(askSoon)
		if r, known := s.cache.Find(&c); known {
			t.Errorf("a request may have ended: %+v", r)
		}
		s.is("after 20 ms", c, false, false)
	})
	play(t, func(s *scene) { // what can never fit
		c := check(l, 2)
		s.is("too much", c, false, false)
		s.is("too much", c, false, true)
	})
}

// While requests come all the time, one asks when a denial has ended, and the others are denied
// until the answer, for 20 ms at most.
func TestOneAsksWhenADenialHasEnded(t *testing.T) {
	l := algorithms.Limit{Rate: 1, Period: time.Second, Burst: 1, Algorithm: algorithms.TokenBucket}
	ended := func(f func(s *scene, c algorithms.Check)) {
		t.Helper()
		play(t, func(s *scene) {
			c := check(l, 1)
			s.is("the first", c, true, false)
			time.Sleep(time.Second / 2)
			s.is("denied", c, false, false)
			time.Sleep(time.Second/2 - time.Nanosecond)
			s.is("before its end", c, false, true)
			time.Sleep(time.Nanosecond)
			f(s, c)
		})
	}
	asks := func(s *scene, what string, c algorithms.Check) {
		s.Helper()
		if _, here, again := s.cache.Decide([]algorithms.Check{c}); here || !again {
			s.Errorf("%s: nobody asks", what)
		}
	}
	ended(func(s *scene, c algorithms.Check) { // no answer
		asks(s, "at its end", c)
		if d, here := s.take(c, 0); !here || d.Results[0].RetryAfter != askSoon || d.Results[0].ResetAfter != l.Period {
			s.Errorf("while one asks: %+v", d)
		}
		if r, known := s.cache.Find(&c); known {
			s.Errorf("without the store: %+v", r)
		}
		time.Sleep(askSoon - time.Nanosecond)
		s.is("while one asks", c, false, true)
		time.Sleep(time.Nanosecond)
		asks(s, "without an answer", c)
		time.Sleep(askInterval)
		for range 2 {
			if _, here, again := s.cache.Decide([]algorithms.Check{c}); here || again {
				s.Error("known a second after its end")
			}
		}
	})
	ended(func(s *scene, c algorithms.Check) { // an answer that admits, and leaves nothing
		s.is("at its end", c, true, false)
		asks(s, "the next", c)
		s.is("while that asks", c, false, true)
	})
	ended(func(s *scene, c algorithms.Check) { // an answer that leaves some
		asks(s, "at its end", c)
		s.cache.Learn(time.Now(), &algorithms.Result{Check: c, HasRoom: true, Charged: 1, Remaining: 1}, true)
		for range 2 {
			if _, here, again := s.cache.Decide([]algorithms.Check{c}); here || again {
				s.Error("there is room")
			}
		}
	})
	ended(func(s *scene, c algorithms.Check) {
		s.refuses = true
		for range 2 {
			if _, here, again := s.cache.Decide([]algorithms.Check{c}); here || again {
				s.Error("in an outage: known after its end")
			}
		}
	})
	ended(func(s *scene, c algorithms.Check) { // who waits is not held up
		time.Sleep(askSoon)
		for range 2 {
			if _, here, again := s.cache.Decide([]algorithms.Check{c}); here || again {
				s.Error("denied after its RetryAfter")
			}
		}
	})
	play(t, func(s *scene) { // units come faster than answers
		c := check(algorithms.Limit{Rate: 1000, Period: time.Second, Burst: 1, Algorithm: algorithms.TokenBucket}, 1)
		s.is("the first", c, true, false)
		s.take(c, time.Millisecond)
		if _, here, again := s.cache.Decide([]algorithms.Check{c}); here || again {
			s.Error("remembered, although it had ended")
		}
	})
}

// A known denial is what the store has answered this process at most a second ago, about the
// same count, limit and cost, and since units were last given back here. Before that second is
// over it has not ended.
func TestCacheChangesNoDecision(t *testing.T) {
	type asked struct {
		check algorithms.Check
		at    time.Time
		again time.Duration // until it ends
	}
	limits := []algorithms.Limit{algorithms.PerMinute(4), algorithms.PerMinute(6), {Rate: 5, Period: 10 * time.Second, Burst: 5, Algorithm: algorithms.LeakyBucket}, {Rate: 6, Period: 10 * time.Second, Algorithm: algorithms.SlidingLog}}
	known := 0
	for seed := range uint64(100) {
		play(t, func(s *scene) {
			random, last := rand.New(rand.NewPCG(seed, 7)), map[algorithms.Check]asked{}
			plain := func(c algorithms.Check) algorithms.Check {
				c.Shadow, c.MaxDelay, c.Cost = false, 0, max(c.Cost, 1)
				return c
			}
			for range 500 {
				var checks []algorithms.Check
				for rule := range 3 {
					if random.IntN(2) == 0 {
						checks = append(checks, algorithms.Check{
							Rule: fmt.Sprint(rule), Key: fmt.Sprint(random.IntN(2)), Limit: limits[random.IntN(len(limits))],
							Cost: random.Int64N(8), Shadow: random.IntN(8) == 0, MaxDelay: time.Duration(random.IntN(2)) * time.Second,
						})
					}
				}
				time.Sleep(time.Duration(random.Int64N(int64(300 * time.Millisecond))))
				if len(checks) > 0 && random.IntN(20) == 0 { // another process, or this one
					_ = s.store.Reset(s.Context(), checks[0])
					if random.IntN(2) == 0 {
						s.cache.Forget(&checks[0])
						for c := range last {
							if naming.Of(&c) == naming.Of(&checks[0]) {
								delete(last, c)
							}
						}
					}
					continue
				}
				d, here, again := s.cache.Decide(checks)
				begun := time.Now()
				if !here {
					d, _ = s.store.Take(s.Context(), checks...)
				}
				youngest := time.Hour
				for i := range d.Results {
					r := &d.Results[i]
					switch before, ok := last[plain(r.Check)]; {
					case !here:
						s.cache.Learn(begun, r, again)
						if r.Denies() && (r.Check.MaxDelay == 0 || r.Remaining < max(r.Check.Cost, 1)) {
							last[plain(r.Check)] = asked{r.Check, time.Now(), r.RetryAfter}
						}
					case r.Source == algorithms.SourceNone:
					case !ok || r.Check.Shadow || time.Since(before.at) >= before.again || r.RetryAfter != ceil(before.again-time.Since(before.at)) && r.RetryAfter != algorithms.Never:
						t.Fatalf("seed %d: %+v, the store has said %+v", seed, r, before)
					default:
						known++
						youngest = min(youngest, time.Since(before.at))
					}
				}
				if here && youngest > askInterval {
					t.Fatalf("seed %d: denied by what is %s old: %+v", seed, youngest, d)
				}
			}
		})
	}
	if known < 1000 {
		t.Errorf("%d known denials", known)
	}
}

// What clients are told ends when the store's answer would have ended for them: not before.
func TestWhatIsToldBeginsWithTheAnswer(t *testing.T) {
	play(t, func(s *scene) {
		c := check(algorithms.PerMinute(3), 2)
		c.Limit.Algorithm = algorithms.FixedWindow
		s.is("the first", c, true, false)
		there, _ := s.take(c, 30*time.Millisecond)
		here, known := s.take(c, 0)
		if r, want := here.Results[0], there.Results[0]; !known || r.RetryAfter != want.RetryAfter || r.ResetAfter != want.ResetAfter || !r.At.Equal(want.At) || r.Remaining != 1 {
			t.Errorf("told %+v, by the store %+v", r, want)
		}
		time.Sleep(there.Results[0].RetryAfter - 30*time.Millisecond)
		s.is("when the store has room", c, true, false)
	})
}

// What this process gives back is free at once, and an earlier answer does not deny it.
func TestWhatIsGivenBackIsForgotten(t *testing.T) {
	play(t, func(s *scene) {
		l := algorithms.PerMinute(10)
		s.is("all", check(l, 10), true, false)
		for cost := range int64(3) {
			s.is("denied", check(l, cost+1), false, false)
		}
		c := check(l, 1)
		asked := time.Now()
		late, _ := s.store.Take(s.Context(), c)
		time.Sleep(time.Nanosecond)
		_ = s.store.Reset(s.Context(), c)
		s.cache.Forget(&c)
		s.cache.Learn(asked, &late.Results[0], false)
		for cost := range int64(3) {
			s.is("given back", check(l, cost+1), true, false)
		}
	})
}

// A request that one check denies does not ask about it while another denies it for longer,
// and all keys together ask so often.
func TestAskingAgainIsBounded(t *testing.T) {
	play(t, func(s *scene) {
		old, young := check(algorithms.PerHour(1), 1), check(algorithms.PerHour(1), 1)
		young.Key = "young"
		for _, c := range []algorithms.Check{old, old, young} {
			s.take(c, 0)
		}
		time.Sleep(askInterval)
		s.is("young", young, false, false)
		if d, here, _ := s.cache.Decide([]algorithms.Check{old, young}); !here || len(d.Results) != 2 || !d.Results[0].Denies() || !d.Results[1].Denies() {
			t.Errorf("%+v", d)
		}
	})
	play(t, func(s *scene) {
		const keys = 1000
		c := check(algorithms.PerHour(1), 1)
		flood := func() (asked int) {
			for i := range keys {
				c.Key = fmt.Sprint(i)
				if _, here := s.take(c, 0); !here {
					asked++
				}
			}
			return asked
		}
		flood()
		flood()
		asked := 0
		for range 40 {
			time.Sleep(50 * time.Millisecond)
			asked += flood()
		}
		if asked == 0 || asked > 3*maxAsked {
			t.Errorf("asked %d times in two seconds", asked)
		}
	})
}

// Nothing is remembered of checks in shadow, nor denied by it.
func TestShadowIsAlwaysAsked(t *testing.T) {
	play(t, func(s *scene) {
		c := check(algorithms.PerHour(1), 1)
		s.is("the first", c, true, false)
		s.is("denied", c, false, false)
		shadow := c
		shadow.Shadow = true
		s.is("in shadow", shadow, true, false)
		s.is("enforced", c, false, true)
	})
}

// However many keys are denied, and at however many costs, the table stays as large as it is.
func TestCacheIsBounded(t *testing.T) {
	play(t, func(s *scene) {
		c := check(algorithms.PerMinute(1), 1)
		s.take(c, 0)
		d, _ := s.take(c, 0)
		for i := range 100_000 {
			d.Results[0].Check.Key = fmt.Sprint(i / 2)
			d.Results[0].Check.Cost = int64(i)
			s.cache.Learn(time.Now(), &d.Results[0], false)
		}
		n := 0
		for i := range s.cache.shards {
			n += s.cache.shards[i].counts.Len()
		}
		if n > shardCount*shardSize || n < shardCount*shardSize*9/10 {
			t.Errorf("%d counts", n)
		}
	})
}

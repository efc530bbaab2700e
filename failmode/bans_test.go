package failmode

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// ban is what a Middleware counts a ban by; a look at it, and a check that begins one of an
// hour.
func ban(mode Mode) (look, begins algorithms.Check) {
	look = algorithms.Check{Rule: "r~ban", Key: "k", Look: true, Fail: mode, Limit: algorithms.Limit{Rate: 1, Period: time.Second, Burst: 1, Algorithm: algorithms.TokenBucket}}
	begins = look
	begins.Look, begins.Limit.Burst, begins.Cost = false, 3600, 3600
	begins.StoreOnly = true
	return look, begins
}

// A look that the store has denied stays denied in an outage, in every mode, until the units
// are free: by what is remembered of the denial and, where that made way for others, by the
// local memory.
func TestALookSurvivesAnOutage(t *testing.T) {
	for _, mode := range []Mode{Local, Open, Closed} {
		for _, remembered := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				s := new(distant)
				f := guarding(t, s)
				f.Instances = 4
				look, begins := ban(mode)
				other := check("r", 5, mode)
				taken(t, f, begins)
				taken(t, f, other, look)
				if !remembered {
					f.denied.Forget(&look)
				}
				s.away.Store(&errAway)
				time.Sleep(50 * time.Minute)
				d := taken(t, f, other, look)
				if r := d.Results[1]; d.Allowed || r.HasRoom || r.RetryAfter != 10*time.Minute || r.Source == algorithms.SourceFailClosed {
					t.Errorf("%s, remembered %v: %+v", mode, remembered, d)
				}
				if !f.KnownOver(&look) {
					t.Error("not known to be over")
				}
				time.Sleep(10 * time.Minute)
				if d := taken(t, f, other, look); d.Allowed != (mode != Closed) {
					t.Errorf("%s, when it has ended: %+v", mode, d)
				}
			})
		}
	}
}

// What another process lifts is lifted here at the next look that the store answers, also for
// an outage afterwards.
func TestALookThatAnotherProcessLifts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(distant)
		f := guarding(t, s)
		look, begins := ban(Open)
		taken(t, f, begins)
		taken(t, f, look)
		asked := s.asked.Load()
		for range 100 {
			if d := taken(t, f, look); d.Allowed || d.Results[0].Source != algorithms.SourceDenyCache {
				t.Fatalf("%+v", d)
			}
		}
		if n := s.asked.Load(); n != asked {
			t.Errorf("asked %d times within a second", n-asked)
		}
		if err := s.Memory.Reset(t.Context(), look); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if d := taken(t, f, look); !d.Allowed {
			t.Errorf("%+v", d)
		}
		s.away.Store(&errAway)
		if d := taken(t, f, look); !d.Allowed {
			t.Errorf("in an outage afterwards: %+v", d)
		}
	})
}

// An answer to a look from before a ban forgets no ban that is known meanwhile.
func TestALookFromBeforeABan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(distant)
		f := guarding(t, s)
		look, begins := ban(Open)
		s.back = time.Second / 2
		go func() { _, _ = f.Take(t.Context(), look) }()
		synctest.Wait()
		s.back = 0
		taken(t, f, begins)
		taken(t, f, look)
		time.Sleep(time.Second)
		s.away.Store(&errAway)
		if d := taken(t, f, look); d.Allowed {
			t.Errorf("%+v", d)
		}
		f.denied.Forget(&look)
		if d := taken(t, f, look); d.Allowed {
			t.Errorf("by the local memory: %+v", d)
		}
	})
}

// What the store counts or nobody does has no other answer than the store's.
func TestWhatOnlyTheStoreCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, mode := range []Mode{Local, Open, Closed} {
			s := new(distant)
			f := guarding(t, s)
			c := check("r~strikes", 1, mode)
			c.StoreOnly = true
			taken(t, f, c)
			for range 3 { // a denial is not repeated from memory
				if d := taken(t, f, c); d.Allowed || d.Results[0].Source != algorithms.SourceRedis {
					t.Errorf("%s: %+v", mode, d)
				}
			}
			if n := s.asked.Load(); n != 4 {
				t.Errorf("%s: asked %d times", mode, n)
			}
			s.away.Store(&errAway)
			for range 20 {
				if d, err := f.Take(t.Context(), c); err == nil || d.Allowed {
					t.Fatalf("%s: Take in an outage: %+v, %v", mode, d, err)
				}
				if d, err := f.Peek(t.Context(), c); err == nil || d.Allowed {
					t.Fatalf("%s: Peek in an outage: %+v, %v", mode, d, err)
				}
			}
		}
	})
}

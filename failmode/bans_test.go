package failmode

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// login is banned at its second denial, for a quarter of an hour.
func login(mode Mode) algorithms.Check {
	return algorithms.Check{Rule: "login", Key: "k", Limit: algorithms.PerMinute(5), Cost: 1, Fail: mode,
		Ban: algorithms.Ban{After: 2, For: 15 * time.Minute}}
}

// begin has a key banned through a Guard.
func begin(t *testing.T, l algorithms.Limiter, c algorithms.Check) {
	t.Helper()
	for range c.Limit.Rate + c.Ban.After {
		taken(t, l, c)
	}
	if d := taken(t, l, c); d.Results[0].BannedFor == 0 {
		t.Fatalf("not banned: %+v", d)
	}
}

// A ban that a process knows of survives an outage there, in every mode, and ends
// when it would have ended.
func TestABanSurvivesAnOutage(t *testing.T) {
	for _, mode := range []Mode{Local, Open, Closed} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := new(distant)
				f := guarding(t, s)
				f.Instances = 4
				c := login(mode)
				begin(t, f, c)
				s.away.Store(&errAway)
				time.Sleep(10 * time.Minute)
				other := c
				other.Limit, other.Cost = algorithms.PerHour(1000), 2 // as after a SetRules
				for _, c := range []algorithms.Check{c, other} {
					d := taken(t, f, c)
					if r := d.Results[0]; d.Allowed || r.BannedFor == 0 || r.Source != algorithms.SourceFallback || r.RetryAfter != 5*time.Minute || r.Check.Ban != c.Ban {
						t.Errorf("in an outage: %+v", r)
					}
				}
				shadow := c
				shadow.Shadow = true
				if r := taken(t, f, shadow).Results[0]; r.BannedFor > 0 {
					t.Errorf("a shadow check: %+v", r)
				}
				if !(opened{}).KnownOver(f, &c) {
					t.Error("not known to be over")
				}
				time.Sleep(5 * time.Minute)
				if d := taken(t, f, c); d.Allowed != (mode != Closed) || d.Results[0].BannedFor > 0 {
					t.Errorf("when it has ended: %+v", d)
				}
			})
		})
	}
}

// The denial that begins a ban may leave another window of the rule with room. That one
// does not lift the ban here.
func TestABanOfOneWindowSurvivesAnOutage(t *testing.T) {
	minute, hour := login(Open), login(Open)
	minute.Limit, hour.Limit = algorithms.PerMinute(1), algorithms.PerHour(100)
	for _, checks := range [][]algorithms.Check{{minute, hour}, {hour, minute}} {
		synctest.Test(t, func(t *testing.T) {
			s, f := new(algorithms.Memory), guarding(t, new(distant))
			f.ready()
			for range 3 {
				d := taken(t, s, checks...)
				for i := range d.Results {
					d.Results[i].Source = algorithms.SourceRedis
				}
				f.follow(f.resets.Load(), d.Results)
			}
			for i := range checks {
				if r, known := f.knownDenial(&checks[i]); !known || r.BannedFor == 0 {
					t.Errorf("%s: not known to be banned: %+v", checks[i].Limit, r)
				}
			}
		})
	}
}

// What a process denies while nobody counts for all is no reason to ban.
func TestDenialsInAnOutageDoNotCount(t *testing.T) {
	for _, mode := range []Mode{Local, Closed} {
		synctest.Test(t, func(t *testing.T) {
			s := new(distant)
			f := guarding(t, s)
			c := login(mode)
			s.away.Store(&errAway)
			for range 20 {
				if d := taken(t, f, c); d.Results[0].BannedFor > 0 || d.Results[0].Check.Ban != c.Ban {
					t.Errorf("%s: %+v", mode, d)
				}
			}
			s.away.Store(nil)
			for range 6 {
				if d := taken(t, f, c); d.Results[0].BannedFor > 0 {
					t.Errorf("%s, afterwards: %+v", mode, d)
				}
			}
		})
	}
}

// Whoever lifts a ban lifts it in all processes that ask again, which they do once
// a second.
func TestABanThatAnotherProcessLifts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(distant)
		f := guarding(t, s)
		c := login(Open)
		begin(t, f, c)
		if err := s.Reset(t.Context(), c); err != nil { // another process
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if d := taken(t, f, c); !d.Allowed {
			t.Errorf("%+v", d)
		}
		s.away.Store(&errAway)
		if d := taken(t, f, c); !d.Allowed || d.Results[0].BannedFor > 0 {
			t.Errorf("in an outage afterwards: %+v", d)
		}
	})
}

// What a ban leaves of a limit is no count: nothing is used up here by following it.
func TestABanIsNoCharge(t *testing.T) {
	s := new(distant)
	f := guarding(t, s)
	c := login(Local)
	if err := f.Ban(t.Context(), time.Hour, c); err != nil {
		t.Fatal(err)
	}
	taken(t, f, c)
	if err := f.Ban(t.Context(), 0, c); err != nil {
		t.Fatal(err)
	}
	s.away.Store(&errAway)
	if d := taken(t, f, c); !d.Allowed || d.Results[0].Remaining != 4 {
		t.Errorf("%+v", d)
	}
}

// A ban that finds no room in this process holds in the store.
func TestABanWithoutRoomHere(t *testing.T) {
	s := new(distant)
	f := guarding(t, s)
	f.local.MaxKeys = 1
	for i := range 10_000 {
		c := login(Local)
		c.Key = fmt.Sprint(i)
		_ = f.local.Ban(t.Context(), time.Hour, c)
	}
	for i := range 100 {
		c := login(Local)
		c.Key = fmt.Sprint("another-", i)
		if err := f.Ban(t.Context(), time.Hour, c); err != nil {
			t.Fatal(err)
		}
		if d := taken(t, f, c); d.Results[0].BannedFor == 0 {
			t.Fatalf("%+v", d)
		}
	}
}

// Ban and Reset reach the store and this process; the store only while its circuit
// is closed.
func TestCircuitsBansWhatItCan(t *testing.T) {
	circuits(t, func(t *testing.T, g *Guard, n *nodes, _ *logbook) {
		banned := func(l algorithms.Limiter, shard int) bool {
			t.Helper()
			d, err := l.Peek(t.Context(), on(shard))
			if err != nil {
				t.Fatal(err)
			}
			return d.Results[0].BannedFor > 0
		}
		if err := g.Ban(t.Context(), time.Hour, on(0), on(1)); err != nil || !banned(n, 0) || !banned(n, 1) {
			t.Errorf("%v; banned in the store: %v, %v", err, banned(n, 0), banned(n, 1))
		}
		if err := g.Ban(t.Context(), 0, on(0), on(1)); err != nil || banned(n, 0) || banned(n, 1) {
			t.Errorf("%v; still banned in the store: %v, %v", err, banned(n, 0), banned(n, 1))
		}
		n.set(1, errAway, 0)
		askFor(g, 5, on(1))
		if err := g.Ban(t.Context(), time.Hour, on(0), on(1)); !errors.Is(err, ErrOpen) || !banned(n, 0) || banned(n, 1) {
			t.Errorf("%v; banned in the store: %v, %v", err, banned(n, 0), banned(n, 1))
		}
		if !banned(&g.local, 1) || !banned(g, 1) {
			t.Error("not banned in this process")
		}
		if d, err := g.Take(t.Context(), on(1)); err != nil || d.Allowed || d.Results[0].BannedFor == 0 {
			t.Errorf("%+v, %v", d, err)
		}
		if err := g.Reset(t.Context(), on(1)); !errors.Is(err, ErrOpen) || banned(g, 1) {
			t.Errorf("reset: %v; banned: %v", err, banned(g, 1))
		}
	})
}

// In an outage as without one, a rule's own ban binds the checks that have a Ban,
// and one by hand all of them, whichever of them the process was told of.
func TestWhomABanBindsInAnOutage(t *testing.T) {
	for _, by := range []string{"a rule", "hand"} {
		for _, told := range []string{"with a ban", "without", "both"} {
			t.Run(by+", told to one "+told, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := new(distant)
					f := guarding(t, s)
					with := login(Local)
					without := with
					without.Ban = algorithms.Ban{}
					if by == "a rule" {
						begin(t, s, with)
					} else if err := s.Memory.Ban(t.Context(), time.Hour, with); err != nil { // through another process
						t.Fatal(err)
					}
					time.Sleep(2 * time.Minute) // the limit has room again
					if told != "without" {
						taken(t, f, with)
					}
					if told != "with a ban" {
						taken(t, f, without)
					}
					s.away.Store(&errAway)
					for range 2 {
						if known := by == "hand" || told != "without"; taken(t, f, with).Results[0].BannedFor > 0 != known {
							t.Errorf("a check with a ban: banned is %v", !known)
						}
						if known := by == "hand" && told != "with a ban"; taken(t, f, without).Results[0].BannedFor > 0 != known {
							t.Errorf("a check without a ban: banned is %v", !known)
						}
						time.Sleep(2 * time.Second)
					}
				})
			})
		}
	}
}

package failmode

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/inflight"
	"github.com/seed75154129/ratelimit/internal/memory"
)

// sets is what a Redis is to requests under way: sets of members with the end of their
// leases. Its network may lose, delay and repeat what is sent.
type sets struct {
	mu      sync.Mutex
	members map[string]map[int64]time.Time
	ahead   time.Duration // of its clock
}

// do does something to a set.
func (s *sets) do(key string, f func(set map[int64]time.Time, now time.Time)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now().Add(s.ahead)
	if s.members == nil {
		s.members = map[string]map[int64]time.Time{}
	}
	set := s.members[key]
	if set == nil {
		set = map[int64]time.Time{}
		s.members[key] = set
	}
	f(set, now)
}

// size is ZCOUNT, and takes out those that have lapsed.
func (s *sets) size(key string) (n int) {
	s.do(key, func(set map[int64]time.Time, now time.Time) {
		maps.DeleteFunc(set, func(_ int64, ends time.Time) bool { return !ends.After(now) })
		n = len(set)
	})
	return n
}

// A line is the network between one process and the sets, and the limiter there.
type line struct {
	algorithms.Memory // for all that has nothing to do with what is under way
	fake
	sets *sets

	state sync.Mutex
	fault func() fault // of the next command; nil means none
	dead  bool         // the process has crashed

	renewals, mostRenewed int
	releases              int // commands
	mostReleased          int // by one of them
}

// renewed is how many places were renewed, in all and at most at once.
func (l *line) renewed() (all, most int) {
	l.state.Lock()
	defer l.state.Unlock()
	return l.renewals, l.mostRenewed
}

// A fault is what becomes of a command.
type fault struct {
	lost    bool          // it never arrives
	twice   bool          // it arrives twice, the second time after late
	late    time.Duration // it arrives so much later; above the budget the sender has left
	noReply bool          // it arrives, and its answer is lost
}

var errLate = fmt.Errorf("late: %w", context.DeadlineExceeded)

// next is what becomes of the next command.
func (l *line) next() (f fault, dead bool) {
	l.state.Lock()
	defer l.state.Unlock()
	if l.fault != nil {
		f = l.fault()
	}
	return f, l.dead
}

// becomes sets what becomes of commands from now on.
func (l *line) becomes(f func() fault) {
	l.state.Lock()
	defer l.state.Unlock()
	l.fault = f
}

// dies says whether the process is dead, or cut off.
func (l *line) dies(dead bool) {
	l.state.Lock()
	defer l.state.Unlock()
	l.dead = dead
}

// send runs a command on the other side, with its faults.
func (l *line) send(run func()) error {
	f, dead := l.next()
	if dead {
		return errAway
	}
	if f.twice {
		defer time.AfterFunc(f.late, run)
		f.late = 0
	}
	switch {
	case f.lost:
		time.Sleep(plainBudget)
		return errLate
	case f.late > plainBudget:
		time.AfterFunc(f.late, run)
		time.Sleep(plainBudget)
		return errLate
	}
	time.Sleep(f.late)
	if run(); f.noReply {
		time.Sleep(plainBudget)
		return errLate
	}
	return nil
}

func (l *line) Take(_ context.Context, checks ...algorithms.Check) (d algorithms.Decision, err error) {
	answers := make(chan algorithms.Decision, 2) // the first is heard
	err = l.send(func() {
		answer := algorithms.Decision{Allowed: true}
		for i := range checks {
			c := &checks[i]
			var n memory.Count
			c.Count(&n)
			r := algorithms.Result{Check: *c, Source: algorithms.SourceRedis, At: time.Now()}
			l.sets.size(keyOf(c))
			l.sets.do(keyOf(c), func(set map[int64]time.Time, now time.Time) {
				if r.HasRoom = int64(len(set)) < c.Limit.Rate; r.HasRoom {
					r.Charged = 1
					set[n.ID] = now.Add(c.Limit.Period)
				}
				r.Remaining = c.Limit.Rate - int64(len(set))
			})
			r.Trace.Charge.At = n.ID
			answer.Allowed = answer.Allowed && !r.Denies()
			answer.Results = append(answer.Results, r)
		}
		for i := range answer.Results {
			if r := &answer.Results[i]; !answer.Allowed && r.Charged > 0 {
				r.Charged = 0
				l.sets.do(keyOf(&r.Check), func(set map[int64]time.Time, _ time.Time) { delete(set, r.Trace.Charge.At) })
			}
		}
		answers <- answer
	})
	if err != nil {
		return d, err
	}
	return <-answers, nil
}

func keyOf(c *algorithms.Check) string { return c.Rule + ":" + c.Key }

func (l *line) Probe(context.Context, int) error { return l.send(func() {}) }

func (l *line) PlaceOf(c *algorithms.Check) inflight.Place {
	var n memory.Count
	c.Count(&n)
	return inflight.Place{Key: keyOf(c), ID: n.ID, Lease: c.Limit.Period}
}

func (l *line) ShardOf(string) int { return 0 }

func (l *line) Release(_ context.Context, ids map[string][]int64) (released []string, err error) {
	n := 0
	for _, all := range ids {
		n += len(all)
	}
	l.state.Lock()
	l.releases, l.mostReleased = l.releases+1, max(l.mostReleased, n)
	l.state.Unlock()
	sent := maps.Clone(ids) // a late command reads it
	err = l.send(func() {
		for key, all := range sent {
			l.sets.do(key, func(set map[int64]time.Time, _ time.Time) {
				for _, id := range all {
					delete(set, id)
				}
			})
		}
	})
	if err == nil {
		for key := range ids {
			released = append(released, key)
		}
	}
	return released, err
}

func (l *line) Renew(_ context.Context, places []inflight.Place) ([]inflight.Place, error) {
	l.state.Lock()
	l.renewals, l.mostRenewed = l.renewals+len(places), max(l.mostRenewed, len(places))
	l.state.Unlock()
	err := l.send(func() {
		for _, p := range places {
			l.sets.do(p.Key, func(set map[int64]time.Time, now time.Time) { set[p.ID] = now.Add(p.Lease) })
		}
	})
	if err != nil {
		return places, err
	}
	return nil, nil
}

// process is a Guard on the sets.
func (s *sets) process(t *testing.T) (*Guard, *line) {
	t.Helper()
	l := &line{sets: s}
	g := &Guard{Limiter: l, Instances: 1, store: l, Logger: slog.New(slog.DiscardHandler)}
	t.Cleanup(func() { _ = g.Close() })
	return g, l
}

const aLease = 15 * time.Second

func atOnce(n int64, key string) algorithms.Check {
	return algorithms.Check{Rule: "r", Key: key, Limit: algorithms.MaxInFlight(n)}
}

func end(t *testing.T, l algorithms.Limiter, d algorithms.Decision) {
	t.Helper()
	if err := algorithms.Refund(t.Context(), l, d); err != nil {
		t.Fatal(err)
	}
}

// Whatever is lost, late or repeated, and whoever crashes: a lease after the last
// request has ended, nothing is held. While nothing is lost, no more than the limit run.
func TestInFlightSchedulesEndAtZero(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 1))
				var s sets
				faults := seed%2 == 1
				var wg sync.WaitGroup
				for range 3 {
					g, l := s.process(t)
					var mu sync.Mutex
					own := rand.New(rand.NewPCG(random.Uint64(), 2))
					n := func(n int) int {
						mu.Lock()
						defer mu.Unlock()
						return own.IntN(n)
					}
					if faults {
						l.becomes(func() fault {
							switch n(12) {
							case 0:
								return fault{lost: true}
							case 1:
								return fault{noReply: true}
							case 2:
								return fault{late: time.Duration(n(3000)) * time.Millisecond}
							case 3:
								return fault{twice: true, late: time.Duration(n(100)) * time.Millisecond}
							}
							return fault{late: time.Duration(n(5)) * time.Millisecond}
						})
					}
					for range 5 {
						wg.Go(func() {
							for range 20 {
								time.Sleep(time.Duration(n(2000)) * time.Millisecond)
								d, err := g.Take(context.Background(), atOnce(4, "k"), atOnce(3, fmt.Sprint("k", n(2))))
								if err != nil {
									t.Error(err)
									return
								}
								if size := s.size("r:k"); !faults && size > 4 {
									t.Errorf("%d in flight, want at most 4", size)
								}
								time.Sleep(time.Duration(n(20_000)) * time.Millisecond)
								for range 1 + n(2) { // a panic's defer, and the handler's own
									if err := algorithms.Refund(context.Background(), g, d); err != nil {
										t.Error(err)
									}
								}
							}
						})
					}
					if faults {
						wg.Go(func() {
							time.Sleep(time.Duration(n(400)) * time.Second)
							l.dies(true)
						})
					}
				}
				wg.Wait()
				time.Sleep(aLease + 6*time.Second)
				for _, key := range []string{"r:k", "r:k0", "r:k1"} {
					if size := s.size(key); size != 0 {
						t.Errorf("%d still held at %s", size, key)
					}
				}
			})
		})
	}
}

// Replies are lost, and what the store counts is what runs, but for what is younger than
// a flush.
func TestInFlightCountsWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sets
		g, l := s.process(t)
		sent := 0
		l.becomes(func() fault {
			sent++
			return fault{noReply: sent%5 == 0, late: time.Millisecond}
		})
		running := 0
		var ds []algorithms.Decision
		for i := range 200 {
			if i%3 == 2 {
				end(t, g, ds[0])
				ds = ds[1:]
				running--
			} else if d := taken(t, g, atOnce(1000, "k")); d.Allowed {
				ds = append(ds, d)
				running++
			}
			time.Sleep(time.Second)
			if size := s.size("r:k"); size != running {
				t.Fatalf("after %d s: %d in flight, and %d run", i+1, size, running)
			}
		}
	})
}

// A release that arrives twice, and late, frees nobody else's place.
func TestInFlightLateReleasesFreeNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sets
		g, l := s.process(t)
		first := taken(t, g, atOnce(2, "k"))
		l.becomes(func() fault { return fault{twice: true, late: 2 * time.Second} })
		end(t, g, first)
		time.Sleep(10 * time.Millisecond)
		l.becomes(nil)
		for range 2 { // who has the place now, and one more
			if d := taken(t, g, atOnce(2, "k")); !d.Allowed {
				t.Fatal("denied; want the place of the first")
			}
		}
		for range 8 {
			time.Sleep(time.Second)
			if size := s.size("r:k"); size != 2 {
				t.Fatalf("%d in flight, want 2", size)
			}
		}
	})
}

// Who gave up on the store before it answered leaves no member behind, whenever the
// command arrives.
func TestInFlightAbandonedRequestsLeaveNothing(t *testing.T) {
	for _, late := range []time.Duration{60 * time.Millisecond, 900 * time.Millisecond, 4900 * time.Millisecond} {
		for _, runs := range []bool{false, true} {
			t.Run(fmt.Sprint(late, runs), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var s sets
					g, l := s.process(t)
					want := 0
					if !runs { // this process has its share, so the next is denied here
						g.Instances, want = 2, 1
						taken(t, g, atOnce(2, "k"))
					}
					l.becomes(func() fault {
						l.fault = nil
						return fault{late: late}
					})
					d := taken(t, g, atOnce(2, "k"))
					if d.Allowed != runs {
						t.Fatalf("allowed %v, want %v", d.Allowed, runs)
					}
					end(t, g, d)
					time.Sleep(5500 * time.Millisecond)
					if size := s.size("r:k"); size != want {
						t.Errorf("%d in flight, want %d", size, want)
					}
				})
			})
		}
	}
}

// A client that sends its next request when it has an answer is never one too many.
func TestInFlightPlacesThatEndedHereAreFree(t *testing.T) {
	for _, limit := range []int64{1, 3} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, l := new(sets).process(t)
				n := 0
				l.becomes(func() fault {
					n++
					return fault{late: time.Duration(1+n%3) * 100 * time.Microsecond}
				})
				var all sync.WaitGroup
				for worker := range limit {
					all.Go(func() {
						for i := range 300 {
							end(t, g, takeN(t, g, 1, atOnce(limit, "k"))[0])
							time.Sleep(time.Duration(int64(i)*worker%7) * time.Millisecond)
						}
					})
				}
				all.Wait()
			})
		})
	}
}

// fullBeside is a process that has one of three places of "k", while another has the others.
func fullBeside(t *testing.T) (g *Guard, l *line, here algorithms.Decision) {
	t.Helper()
	var s sets
	g, l = s.process(t)
	g.Instances = 2
	other, _ := s.process(t)
	takeN(t, other, 2, atOnce(3, "k"))
	return g, l, takeN(t, g, 1, atOnce(3, "k"))[0]
}

// A place that became free lets one request ask again, however many are denied, and none
// asks again where all places are taken.
func TestInFlightDeniedRequestsAskAgainOnceForAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l, here := fullBeside(t)
		var commands atomic.Int64
		l.becomes(func() fault {
			commands.Add(1)
			return fault{late: time.Millisecond}
		})
		flood := func() (admitted int) {
			commands.Store(0)
			ds := make(chan algorithms.Decision, 50)
			var all sync.WaitGroup
			for range cap(ds) {
				all.Go(func() { ds <- taken(t, g, atOnce(3, "k")) })
			}
			all.Wait()
			close(ds)
			for d := range ds {
				if d.Allowed {
					admitted++
				}
			}
			return admitted
		}
		if got, n := flood(), commands.Load(); got != 0 || n > 50 {
			t.Errorf("all places are taken: %d admitted after %d commands; want none after at most 50", got, n)
		}
		end(t, g, here)
		if got, n := flood(), commands.Load(); got != 1 || n > 50+2 {
			t.Errorf("one place is free: %d admitted after %d commands; want 1 after at most 52", got, n)
		}
	})
}

// A request is denied as before if the store does not hear in time of the place that is
// free.
func TestInFlightDeniedRequestsStayDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := new(sets).process(t)
		d := takeN(t, g, 1, atOnce(1, "k"))
		n := 0
		l.becomes(func() fault { // the decision arrives, and the release does not
			n++
			return fault{lost: n == 1}
		})
		end(t, g, d[0])
		synctest.Wait()
		time.Sleep(time.Microsecond) // the release is sent
		synctest.Wait()
		if d := taken(t, g, atOnce(1, "k")); d.Allowed || d.Results[0].Source != algorithms.SourceRedis {
			t.Errorf("%+v", d)
		}
		l.becomes(nil)
		time.Sleep(time.Second)
		takeN(t, g, 1, atOnce(1, "k"))
	})
}

// Who hears too late of a place is denied: asking again would take longer than the budget.
func TestInFlightNobodyAsksAgainTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l, here := fullBeside(t)
		beside := takeN(t, g, 1, atOnce(3, "beside"))
		begun := time.Now()
		l.becomes(func() fault { return fault{late: plainBudget * 2 / 5} })
		time.AfterFunc(1, func() { end(t, g, beside[0]) })
		time.AfterFunc(plainBudget/5, func() { end(t, g, here) }) // it waits until the other release is answered
		d := taken(t, g, atOnce(3, "k"))
		if took := time.Since(begun); d.Allowed || took > plainBudget {
			t.Errorf("allowed: %v, after %s; want denied within %s", d.Allowed, took, plainBudget)
		}
		l.becomes(nil)
		takeN(t, g, 1, atOnce(3, "k"))
	})
}

// Releases gather for 5 ms, also those that come during a flush.
func TestInFlightReleasesGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sets
		g, l := s.process(t)
		n := 0
		l.becomes(func() fault {
			n++
			return fault{late: time.Millisecond + time.Duration(n%3)*400*time.Microsecond}
		})
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				for range 100 {
					end(t, g, taken(t, g, atOnce(10_000, "k")))
				}
			})
		}
		begun := time.Now()
		all.Wait()
		most := int(time.Since(begun)/(5*time.Millisecond)) + 2
		time.Sleep(time.Second)
		if size := s.size("r:k"); size > 0 || l.releases > most {
			t.Errorf("%d in flight after %d commands; want none, after at most one each 5 ms", size, l.releases)
		}
	})
}

// A shadow check of requests in flight denies none, also where this process holds all.
func TestShadowInFlightIsNotDeniedHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := new(sets).process(t)
		c := atOnce(1, "k")
		c.Shadow = true
		takeN(t, g, 1, c)
		if d := taken(t, g, c); !d.Allowed {
			t.Errorf("%+v", d)
		}
	})
}

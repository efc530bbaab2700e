package failmode

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/inflight"
)

// counts is what a Redis is to requests under way: of each key what each process has told.
// Its network may lose, delay and repeat what is sent.
type counts struct {
	mu    sync.Mutex
	keys  map[string]map[int64]totals
	ahead time.Duration // of its clock
}

// totals are of one process.
type totals struct {
	epoch, granted, ended int64
	ends                  time.Time
	by                    *line
}

// hear is told what a process says, and returns how many run in all; if that is below a
// limit, it grants one place more.
func (s *counts) hear(by *line, key, told string, lease time.Duration, limit int64) (n int64, granted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var process int64
	is := totals{by: by}
	if _, err := fmt.Sscan(told, &process, &is.epoch, &is.granted, &is.ended); err != nil {
		panic(err)
	}
	if s.keys == nil {
		s.keys = map[string]map[int64]totals{}
	}
	if s.keys[key] == nil {
		s.keys[key] = map[int64]totals{}
	}
	n = s.running(key)
	was := s.keys[key][process]
	if was.epoch > is.epoch { // which counts the place
		return n - 1, n <= limit && limit > 0
	}
	if was.epoch == is.epoch {
		is.granted, is.ended = max(is.granted, was.granted), max(is.ended, was.ended)
	}
	n += is.granted - is.ended - was.granted + was.ended
	if granted = n < limit; granted {
		is.granted++
	}
	if is.ends = time.Now().Add(s.ahead + lease); granted || limit == 0 {
		s.keys[key][process] = is
	}
	return n, granted
}

// running is how many run. It requires mu.
func (s *counts) running(key string) (n int64) {
	now := time.Now().Add(s.ahead)
	for process, t := range s.keys[key] {
		if !t.ends.After(now) {
			delete(s.keys[key], process)
		} else {
			n += t.granted - t.ended
		}
	}
	return n
}

func (s *counts) size(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(s.running(key))
}

// A line is the network between one process and the counts, and the limiter there.
type line struct {
	algorithms.Memory // for all that has nothing to do with what is under way
	fake
	counts *counts

	state sync.Mutex
	fault func() fault // of the next command; nil means none
	dead  bool         // the process has crashed

	told, mostTold int // keys, in all and by one command
	commands       int // that told
}

// heard is how many keys were told of, in all and at most at once.
func (l *line) heard() (all, most int) {
	l.state.Lock()
	defer l.state.Unlock()
	return l.told, l.mostTold
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
			r := algorithms.Result{Check: *c, Source: algorithms.SourceRedis, At: time.Now()}
			n, granted := l.counts.hear(l, keyOf(c), *c.InFlight, c.Limit.Period, c.Limit.Rate)
			if r.HasRoom = granted; granted {
				r.Charged = 1
				n++
			}
			r.Remaining = c.Limit.Rate - n
			answer.Allowed = answer.Allowed && !r.Denies()
			answer.Results = append(answer.Results, r)
		}
		for i := range answer.Results {
			if r := &answer.Results[i]; !answer.Allowed && r.Charged > 0 {
				r.Charged = 0
				l.counts.takeBack(keyOf(&r.Check), *r.Check.InFlight)
			}
		}
		answers <- answer
	})
	if err != nil {
		return d, err
	}
	return <-answers, nil
}

// takeBack takes back what was granted a moment ago: all or nothing.
func (s *counts) takeBack(key, told string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var process, epoch int64
	_, _ = fmt.Sscan(told, &process, &epoch)
	if t := s.keys[key][process]; t.epoch == epoch {
		t.granted--
		s.keys[key][process] = t
	}
}

func keyOf(c *algorithms.Check) string { return c.Rule + ":" + c.Key }

func (l *line) Probe(context.Context, int) error { return l.send(func() {}) }

func (l *line) KeyOf(c algorithms.Check) string { return keyOf(&c) }

func (l *line) ShardOf(string) int { return 0 }

func (l *line) Tell(_ context.Context, news []inflight.News) ([]inflight.News, error) {
	l.state.Lock()
	l.told, l.mostTold, l.commands = l.told+len(news), max(l.mostTold, len(news)), l.commands+1
	l.state.Unlock()
	err := l.send(func() {
		for _, n := range news {
			l.counts.hear(l, n.Key, n.Told, n.Lease, 0)
		}
	})
	if err != nil {
		return news, err
	}
	return nil, nil
}

// process is a Guard on the counts.
func (s *counts) process(t *testing.T) (*Guard, *line) {
	t.Helper()
	l := &line{counts: s}
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

// Whatever is lost, late or repeated, whoever crashes, and if the store forgets everything:
// the store counts at least what it has admitted and what still runs, but for a lease after
// it has forgotten it. So no more than the limit run, and those that were counted here. When
// the network is well and the last request has ended, the store hears so within a third of a
// lease, and a lease later nothing is held, there or here.
func TestInFlightHistories(t *testing.T) {
	for seed := range uint64(120) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 1))
				var s counts
				faults, forgets := seed%2 == 1, seed%4 == 3
				pace := 1 + 99*(int(seed)/4%2) // how much sooner requests come and end
				var lock sync.Mutex            // over all below
				forgot, admitted, local := time.Now().Add(-time.Hour), map[*Guard]int{}, 0
				runs := func(g *Guard, n, here int) {
					lock.Lock()
					defer lock.Unlock()
					if _, alive := admitted[g]; alive {
						admitted[g] += n
					}
					local += here
					all, size := 0, s.size("r:k")
					for _, n := range admitted {
						all += n
					}
					if time.Since(forgot) > aLease && (size < all || !faults && all > 4) {
						t.Errorf("%d in flight, and %d that the store has admitted run, of 4", size, all)
					}
				}
				var wg sync.WaitGroup
				var guards []*Guard
				for range 3 {
					g, l := s.process(t)
					guards = append(guards, g)
					admitted[g] = 0
					own := rand.New(rand.NewPCG(random.Uint64(), 2))
					n := func(n int) int {
						lock.Lock()
						defer lock.Unlock()
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
							for range 20 * pace / (1 + pace/5) {
								time.Sleep(time.Duration(n(2000)) * time.Millisecond / time.Duration(pace))
								d, err := g.Take(context.Background(), atOnce(4, "k"), atOnce(3, fmt.Sprint("k", n(2))))
								if err != nil {
									t.Error(err)
									return
								}
								there, here := 0, 0
								switch {
								case d.Allowed && d.Results[0].Source == algorithms.SourceRedis:
									there = 1
								case d.Allowed:
									here = 1
								}
								runs(g, there, here)
								time.Sleep(time.Duration(n(20_000)) * time.Millisecond / time.Duration(pace))
								runs(g, -there, -here)
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
							lock.Lock()
							defer lock.Unlock()
							delete(admitted, g)
							l.dies(true)
						})
					}
				}
				for i := 0; forgets && i < 3; i++ {
					time.Sleep(40 * time.Second)
					lock.Lock()
					s.mu.Lock()
					s.keys, forgot = nil, time.Now()
					s.mu.Unlock()
					lock.Unlock()
				}
				wg.Wait()
				for g := range admitted {
					g.store.(*line).becomes(nil)
				}
				time.Sleep(6 * time.Second)
				s.mu.Lock()
				for key, processes := range s.keys {
					for _, n := range processes {
						if _, dead := n.by.next(); !dead && n.granted != n.ended {
							t.Errorf("%d of %d have ended at %s, where nothing runs", n.ended, n.granted, key)
						}
					}
				}
				s.mu.Unlock()
				time.Sleep(aLease)
				for _, key := range []string{"r:k", "r:k0", "r:k1"} {
					if size := s.size(key); size != 0 {
						t.Errorf("%d still held at %s", size, key)
					}
				}
				for i, g := range guards {
					if n := g.inFlight.Keys(); n > 0 {
						t.Errorf("process %d still knows %d keys", i, n)
					}
				}
			})
		})
	}
}

// What was asked for counts only if it is granted: a flood that another check denies takes
// no place.
func TestInFlightFloodsThatAreDeniedTakeNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s counts
		var flood sync.WaitGroup
		g, l := s.process(t)
		other, m := s.process(t)
		late := func() fault { return fault{late: 5 * time.Millisecond} }
		l.becomes(late)
		m.becomes(late)
		full := algorithms.Check{Rule: "full", Key: "k", Limit: algorithms.MaxInFlight(1)}
		takeN(t, other, 1, full)
		for range 2000 {
			flood.Go(func() {
				if d := taken(t, g, atOnce(5, "k"), full); d.Allowed {
					t.Error("admitted")
				}
			})
			time.Sleep(50 * time.Microsecond)
		}
		flood.Go(func() {
			for range 20 {
				for _, d := range slices.Concat(takeN(t, g, 2, atOnce(5, "k")), takeN(t, other, 3, atOnce(5, "k"))) {
					end(t, g, d)
					end(t, other, d)
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
		flood.Wait()
	})
}

// Some of many that ask at once get no answer: what was asked for beside them counts only until
// it is answered.
func TestInFlightAnswersThatAreLostBesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s counts
		g, l := s.process(t)
		other, _ := s.process(t)
		takeN(t, other, 5, atOnce(5, "k"))
		g.Instances = 2
		var n atomic.Int64
		l.becomes(func() fault {
			i := n.Add(1)
			return fault{noReply: i == 1, late: time.Duration(i) * time.Millisecond}
		})
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 4 * time.Millisecond)
				end(t, g, taken(t, g, atOnce(5, "k")))
			})
		}
		all.Wait()
		time.Sleep(200 * time.Millisecond)
		if size := s.size("r:k"); size != 5 || g.inFlight.Keys() > 0 {
			t.Errorf("%d in flight, %d keys known; want the 5 of the other process", size, g.inFlight.Keys())
		}
	})
}

// While a lease is short, too, a renewal that is lost is sent again before it ends.
func TestInFlightRenewalsFitTheirLease(t *testing.T) {
	for _, lease := range []time.Duration{time.Second, 1400 * time.Millisecond, 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			var s counts
			g, l := s.process(t)
			check := atOnce(1, "k")
			check.Limit.Period = lease
			takeN(t, g, 1, check)
			cut := time.Time{}
			l.becomes(func() fault { // for 100 ms, from its first renewal on
				if cut.IsZero() {
					cut = time.Now()
				}
				return fault{lost: time.Since(cut) < 100*time.Millisecond}
			})
			for range 100 {
				time.Sleep(50 * time.Millisecond)
				if n := s.size("r:k"); n != 1 {
					t.Fatalf("a lease of %s: %d in flight, want 1", lease, n)
				}
			}
		})
	}
}

// Who gave up on the store before it answered leaves no member behind, whenever the
// command arrives.
func TestInFlightAbandonedRequestsLeaveNothing(t *testing.T) {
	for _, late := range []time.Duration{60 * time.Millisecond, 900 * time.Millisecond, 4900 * time.Millisecond} {
		for _, runs := range []bool{false, true} {
			t.Run(fmt.Sprint(late, runs), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var s counts
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
				g, l := new(counts).process(t)
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

// A question says what has ended: whether the store has heard of it before does not matter.
func TestInFlightAQuestionSaysWhatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s counts
		g, l := s.process(t)
		other, _ := s.process(t)
		g.Instances, other.Instances = 2, 2
		takeN(t, other, 2, atOnce(3, "k"))
		here := takeN(t, g, 1, atOnce(3, "k"))[0]
		n := 0
		l.becomes(func() fault { // the release does not arrive
			n++
			return fault{lost: n == 1}
		})
		end(t, g, here)
		time.Sleep(6 * time.Millisecond)
		synctest.Wait()
		if n := s.size("r:k"); n != 3 {
			t.Fatalf("%d in flight, want 3: the store has not heard", n)
		}
		takeN(t, g, 1, atOnce(3, "k"))
	})
}

// Releases gather for 5 ms, also those that come during a flush.
func TestInFlightReleasesGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s counts
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
		if size := s.size("r:k"); size > 0 || l.commands > most {
			t.Errorf("%d in flight after %d commands; want none, after at most one each 5 ms", size, l.commands)
		}
	})
}

// A shadow check of requests in flight denies none, also where this process holds all.
func TestShadowInFlightIsNotDeniedHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := new(counts).process(t)
		c := atOnce(1, "k")
		c.Shadow = true
		takeN(t, g, 1, c)
		if d := taken(t, g, c); !d.Allowed {
			t.Errorf("%+v", d)
		}
	})
}

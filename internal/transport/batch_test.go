package transport_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// A server is what answers a client's flushes in place of Redis: it runs on the
// goroutine that sends them, and may sleep.
type server func(ctx context.Context, cmds []redis.Cmder)

func (s server) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s server) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return s.serve(ctx, []redis.Cmder{cmd}) }
}

func (s server) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return s.serve
}

func (s server) serve(ctx context.Context, cmds []redis.Cmder) error {
	if cmds[0].Name() != "time" { // as a connection is made in the background
		s(ctx, cmds)
	}
	return cmds[0].Err()
}

// admit answers as internal/script/take.lua and joint.lua do for requests of one
// check.
func admit(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		replies := make([]string, len(keysOf(cmd)))
		for i := range replies {
			replies[i] = fmt.Sprintf("%d 0\n1", time.Now().Unix())
		}
		transport.SetReply(cmd, strings.Join(replies, "\n"))
	}
}

func keysOf(script redis.Cmder) []any { return script.Args()[3 : 3+script.Args()[2].(int)] }

// A flushLog notes flushes by the keys that they are about.
type flushLog struct {
	mu      sync.Mutex
	flushes [][]string
}

func (l *flushLog) note(cmds []redis.Cmder) {
	var names []string
	for _, cmd := range cmds {
		for _, key := range keysOf(cmd) {
			key, _, _ := strings.Cut(key.(string), "}")
			names = append(names, strings.TrimPrefix(key, "test:{"))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flushes = append(l.flushes, names)
}

func (l *flushLog) all() [][]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.flushes)
}

// served returns a Redis whose client is answered by a server.
func served(t *testing.T, direct bool, s server) *algorithms.Redis {
	o := &redis.Options{Addr: "127.0.0.1:1", MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}}
	if direct {
		o = algorithms.FailFast(o)
	}
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(s)
	return &algorithms.Redis{Client: client, Namespace: "test"}
}

// taken takes a unit for a key, and returns the error.
func taken(r *algorithms.Redis, rule, key string) error {
	_, err := r.Take(context.Background(), algorithms.Check{Rule: rule, Key: key, Limit: algorithms.Limit{Rate: 9, Period: time.Hour, Algorithm: algorithms.FixedWindow}})
	return err
}

func inBubbles(t *testing.T, f func(t *testing.T, direct bool)) {
	for name, direct := range map[string]bool{"client that heeds deadlines": true, "client that is left behind": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, direct) })
		})
	}
}

// Whoever comes while there is a place goes alone, at once. The others gather, and
// go together as soon as a batch is back.
func TestDecisionsGatherWhileOthersAreUnderWay(t *testing.T) {
	inBubbles(t, func(t *testing.T, direct bool) {
		var log flushLog
		r := served(t, direct, func(_ context.Context, cmds []redis.Cmder) {
			log.note(cmds)
			time.Sleep(time.Millisecond)
			admit(cmds...)
		})
		var all sync.WaitGroup
		for i := range transport.MaxPlaces + transport.MaxBatch + 2 {
			all.Go(func() {
				if err := taken(r, "r", fmt.Sprint(i)); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		if n := len(log.all()); n != transport.MaxPlaces {
			t.Errorf("%d flushes before the first answer, want %d", n, transport.MaxPlaces)
		}
		all.Wait()
		var sizes []int
		for _, flush := range log.all()[transport.MaxPlaces:] {
			sizes = append(sizes, len(flush))
		}
		if slices.Sort(sizes); !slices.Equal(sizes, []int{2, transport.MaxBatch}) {
			t.Errorf("then flushes of %v; want a full one, and one of the two that are left", sizes)
		}
		begin := time.Now()
		if err := taken(r, "r", "later"); err != nil || time.Since(begin) != time.Millisecond {
			t.Errorf("alone again: %s, %v", time.Since(begin), err)
		}
		synctest.Wait()
		if batches, taken := transportOf(r).UnderWay(); batches > 0 || taken > 0 {
			t.Error("something is still under way")
		}
	})
}

// A flood on one rule does not keep the callers of another waiting.
func TestRulesTakeTurns(t *testing.T) {
	inBubbles(t, func(t *testing.T, direct bool) {
		var log flushLog
		r := served(t, direct, func(_ context.Context, cmds []redis.Cmder) {
			log.note(cmds)
			time.Sleep(time.Millisecond)
			admit(cmds...)
		})
		var all sync.WaitGroup
		take := func(rule, key string) { all.Go(func() { _ = taken(r, rule, key) }); synctest.Wait() }
		for range 20 * transport.MaxBatch {
			take("flood", "f")
		}
		take("login", "b")
		take("search", "s")
		take("login", "c")
		all.Wait()
		first := slices.MaxFunc(log.all()[transport.MaxPlaces:2*transport.MaxPlaces], func(a, b []string) int {
			return strings.Count(strings.Join(a, ""), "b") - strings.Count(strings.Join(b, ""), "b")
		})
		if want := []string{"f", "b", "s", "f", "c", "f"}; !slices.Equal(first[:6], want) {
			t.Errorf("the first batch begins with %v, want %v", first[:6], want)
		}
	})
}

// A server that hangs, or a lost packet, does not keep those waiting who come
// later, as long as there are connections.
func TestASlowBatchFreesItsPlace(t *testing.T) {
	inBubbles(t, func(t *testing.T, direct bool) {
		var hang atomic.Bool
		var hanging, most atomic.Int64
		r := served(t, direct, func(ctx context.Context, cmds []redis.Cmder) {
			if hang.Load() {
				most.Store(max(most.Load(), hanging.Add(1)))
				defer hanging.Add(-1)
				<-ctx.Done()
				for _, cmd := range cmds {
					cmd.SetErr(ctx.Err())
				}
				return
			}
			admit(cmds...)
		})
		r.Budget = 500 * time.Millisecond
		hang.Store(true)
		var all sync.WaitGroup
		for i := range transport.MaxPlaces {
			all.Go(func() {
				if err := taken(r, "r", fmt.Sprint("hung ", i)); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		hang.Store(false)
		begin := time.Now()
		if err := taken(r, "r", "later"); err != nil || time.Since(begin) != transport.SlowBatch {
			t.Errorf("after %s: %v; want an answer after %s", time.Since(begin), err, transport.SlowBatch)
		}
		begin = time.Now()
		for i := range 100 { // the slow ones have no places any more
			if err := taken(r, "r", fmt.Sprint(i)); err != nil || time.Since(begin) != 0 {
				t.Fatalf("after %s: %v", time.Since(begin), err)
			}
		}

		hang.Store(true) // and now all of it
		for i := range 40 {
			all.Go(func() { _ = taken(r, "r", fmt.Sprint("hung ", i)) })
			time.Sleep(transport.SlowBatch)
		}
		if most.Load() != transport.MaxSlow {
			t.Errorf("up to %d batches under way, want %d", most.Load(), transport.MaxSlow)
		}
		all.Wait()
	})
}

// Whoever has no time left does not join: nothing was sent, for certain, and it is
// this process that is busy. Those whose batch hangs leave it when their own
// budget is over.
func TestNobodyWaitsLongerThanTheBudget(t *testing.T) {
	inBubbles(t, func(t *testing.T, direct bool) {
		var log flushLog
		r := served(t, direct, func(ctx context.Context, cmds []redis.Cmder) {
			log.note(cmds)
			select {
			case <-time.After(100 * time.Millisecond):
				admit(cmds...)
			case <-ctx.Done():
				for _, cmd := range cmds {
					cmd.SetErr(ctx.Err())
				}
			}
		})
		const budget = 200 * time.Millisecond
		r.Budget = budget
		var all sync.WaitGroup
		var busy, late, answered atomic.Int64
		for i := range 3000 {
			all.Go(func() {
				begin := time.Now()
				err := taken(r, "r", fmt.Sprint(i))
				took := time.Since(begin)
				switch {
				case err == nil && took <= budget:
					answered.Add(1)
				case transport.ClassOf(err) == transport.ClassBusy && transport.NotExecuted(err) && took < budget:
					busy.Add(1)
				case errors.Is(err, context.DeadlineExceeded) && took == budget:
					late.Add(1)
				default:
					t.Errorf("after %s: %v", took, err)
				}
			})
			time.Sleep(time.Millisecond / 10)
		}
		all.Wait()
		sent := 0
		for _, flush := range log.all() {

			sent += len(flush)
		}
		if busy.Load() == 0 || late.Load() == 0 || int(late.Load()+answered.Load()) != sent {
			t.Errorf("%d were busy, %d late, %d answered, and %d were sent", busy.Load(), late.Load(), answered.Load(), sent)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if transportOf(r).Wakes() {
			t.Error("a timer for nobody")
		}
	})
}

// Not more wait than there is room for, and none after a circuit has opened. When the queue is
// full, the longest line gives way: a flood on one rule does not keep the callers of another out.
func TestWhoWaitsIsBoundedAndDropped(t *testing.T) {
	inBubbles(t, func(t *testing.T, direct bool) {
		release := make(chan struct{})
		r := served(t, direct, func(_ context.Context, cmds []redis.Cmder) {
			<-release
			admit(cmds...)
		})
		r.Budget = time.Minute
		var all sync.WaitGroup
		take := func(rule string, n int) *atomic.Int64 {
			refused := new(atomic.Int64)
			for i := range n {
				all.Go(func() {
					if err := taken(r, rule, fmt.Sprint(i)); transport.ClassOf(err) == transport.ClassBusy {
						refused.Add(1)
					} else if err != nil {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
			return refused
		}
		flood := take("flood", transport.MaxPlaces+transport.MaxWaiting+5)
		if n := flood.Load(); n != 5 {
			t.Errorf("%d refused, want 5", n)
		}
		logins := take("login", 7)
		if flood.Load() != 5+7 || logins.Load() != 0 {
			t.Errorf("%d of the flood and %d logins refused, want those who came to a full queue and those who gave way", flood.Load(), logins.Load())
		}
		idle := storeOf(r).Idle()[0]
		storeOf(r).Drop(0)
		synctest.Wait()
		if n := flood.Load() + logins.Load(); n != 5+7+transport.MaxWaiting {
			t.Errorf("%d refused after the drop, want all %d", n, 5+7+transport.MaxWaiting)
		}
		select {
		case <-idle:
			t.Error("idle, with decisions under way")
		default:
		}
		close(release)
		all.Wait()
		<-idle
		<-storeOf(r).Idle()[0]
	})
}

// All members of a batch have failed together, and nobody takes that for many
// failures.
func TestABatchFailsOnce(t *testing.T) {
	inBubbles(t, func(t *testing.T, direct bool) {
		r := served(t, direct, func(_ context.Context, cmds []redis.Cmder) {
			time.Sleep(time.Millisecond)
			for _, cmd := range cmds {
				cmd.SetErr(errors.New("connection reset"))
			}
		})
		var all sync.WaitGroup
		var mu sync.Mutex
		failed := map[uint64]int{}
		for i := range transport.MaxPlaces + 20 {
			all.Go(func() {
				err := taken(r, "r", fmt.Sprint(i))
				mu.Lock()
				defer mu.Unlock()
				failed[transport.BatchOf(err)]++
			})
		}
		all.Wait()
		if alone := failed[0]; alone != transport.MaxPlaces || len(failed) != 2 {
			t.Errorf("failures by batch: %v; want %d alone, and one batch", failed, transport.MaxPlaces)
		}
	})
}

// A script that the server has forgotten is sent once, with the first of the
// decisions that need it, and none is sent for callers who have left.
func TestAForgottenScriptInABatch(t *testing.T) {
	inBubbles(t, func(t *testing.T, direct bool) {
		turn := make(chan bool, 1)
		known, forgotten := true, 0
		var sent []string
		r := served(t, direct, func(_ context.Context, cmds []redis.Cmder) {
			turn <- true
			defer func() { <-turn }()
			time.Sleep(5 * time.Millisecond)
			if len(cmds) > 1 && forgotten == 0 {
				known = false
				forgotten++
				time.Sleep(30 * time.Millisecond) // the first of them leaves
			}
			for _, cmd := range cmds {
				if cmd.Name() == "eval" {
					known = true
				}
				if known {
					admit(cmd)
				} else {
					cmd.SetErr(redis.ErrNoScript)
				}
				if forgotten > 0 {
					sent = append(sent, cmd.Name())
				}
			}
		})
		var all sync.WaitGroup
		take := func(key string, want error) {
			all.Go(func() {
				if err := taken(r, "r", key); !errors.Is(err, want) {
					t.Errorf("%s: %v", key, err)
				}
			})
			synctest.Wait()
		}
		for i := range transport.MaxPlaces {
			take(fmt.Sprint(i), nil)
		}
		transportOf(r).SetLimit(time.Second)
		// They wait for 15 ms, since this server serves one flush at a time.
		call := &transport.Call{Script: transport.NewScript("return 1", nil), Keys: []any{"test:{late}:r:fw:24h"}}
		var late error
		all.Go(func() {
			late = transportOf(r).SendLate(t.Context(), call, 20*time.Millisecond, direct)
		})
		synctest.Wait()
		for i := range 3 {
			take(fmt.Sprint("with ", i), nil)
		}
		all.Wait()
		want := []string{"evalsha", "evalsha", "eval"} // of one and of three as one, and of these three
		if !errors.Is(late, context.DeadlineExceeded) || len(sent) < len(want) || !slices.Equal(sent[len(sent)-len(want):], want) {
			t.Errorf("sent %v, %v; want %v, and nothing again for who has left", sent, late, want)
		}
	})
}

// Where as many batches are under way as may be, the first that is back makes room
// for one who waits, also if those that have the places are slow by now.
func TestASlowBatchThatIsBackMakesRoom(t *testing.T) {
	inBubbles(t, func(t *testing.T, direct bool) {
		var hang atomic.Bool
		release := make(chan struct{})
		r := served(t, direct, func(ctx context.Context, cmds []redis.Cmder) {
			if hang.Load() {
				select {
				case <-release:
				case <-ctx.Done():
				}
			}
			admit(cmds...)
		})
		r.Budget = 10 * time.Second
		hang.Store(true)
		var all sync.WaitGroup
		for i := range transport.MaxSlow {
			all.Go(func() { _ = taken(r, "r", fmt.Sprint("hung ", i)) })
			if synctest.Wait(); i != 1 && i != 2 { // so that in the end seven are slow, and three have the places
				time.Sleep(2 * transport.SlowBatch)
			}
		}
		if batches, places := transportOf(r).UnderWay(); batches != transport.MaxSlow || places != transport.MaxPlaces {
			t.Fatalf("%d under way, %d places taken", batches, places)
		}
		hang.Store(false)
		begin := time.Now()
		all.Go(func() {
			if err := taken(r, "r", "waits"); err != nil || time.Since(begin) != time.Second {
				t.Errorf("after %s: %v; want an answer as soon as there is room", time.Since(begin), err)
			}
		})
		time.Sleep(time.Second)
		release <- struct{}{}
		all.Wait()
	})
}

// Who has left a batch looks at its call, while the batch makes it anew.
func TestWhoLeavesMeetsNobodySendingAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := served(t, false, func(ctx context.Context, cmds []redis.Cmder) {
			if cmds[0].Name() == "eval" {
				<-ctx.Done()
				return
			}
			for _, cmd := range cmds {
				cmd.SetErr(redis.ErrNoScript)
			}
		})
		if err := taken(r, "r", "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// Whatever happens to connections, what Redis has executed is what was answered
// and, of what was not, each at most once: counted on the server.
func TestBatchesAreExecutedOnce(t *testing.T) {
	srv := redistest.Start(t)
	for name, direct := range map[string]bool{"client that heeds deadlines": true, "client that is left behind": false} {
		t.Run(name, func(t *testing.T) {
			proxy := redistest.StartProxy(t, srv.Addr)
			o := srv.Options()
			o.Addr, o.ContextTimeoutEnabled, o.MaxRetries = proxy.Addr, false, 3
			if direct {
				o = algorithms.FailFast(&redis.Options{Addr: proxy.Addr})
			}
			client := redis.NewClient(o)
			defer client.Close()
			var largest atomic.Int64
			client.AddHook(batchSizes{&largest})
			r := &algorithms.Redis{Client: client, Namespace: name[len(name)-6:], Budget: roomy}
			if err := storeOf(&algorithms.Redis{Client: srv.Client(t), Namespace: r.Namespace, Budget: roomy}).Warm(t.Context()); err != nil {
				t.Fatal(err) // the client's own timeouts are short
			}
			const callers, each = 64, 40
			var errs [callers][each]error
			checks := func(i, j int) []algorithms.Check {
				held := algorithms.Limit{Rate: 100, Period: 24 * time.Hour, Algorithm: algorithms.InFlight}
				return []algorithms.Check{{Rule: "r", Key: fmt.Sprint(i, "-", j), Limit: perDay(100)}, {Rule: "held", Key: fmt.Sprint(i, "-", j), Limit: held}}
			}
			var all sync.WaitGroup
			var begun atomic.Int64
			for i := range callers {
				all.Go(func() {
					for j := range each {
						switch begun.Add(1) % 500 {
						case 100:
							proxy.LoseReplies(2, "evalsha")
						case 300:
							proxy.Cut()
						case 400:
							srv.Client(t).ScriptFlush(t.Context())
						}
						_, errs[i][j] = r.Take(t.Context(), checks(i, j)...)
					}
				})
			}
			all.Wait()
			proxy.Resume(t)
			counted := &algorithms.Redis{Client: srv.Client(t), Namespace: r.Namespace, Budget: roomy}
			answered, unknown, executed := 0, 0, 0
			for i := range callers {
				for j := range each {
					d, err := counted.Peek(t.Context(), checks(i, j)...)
					if err != nil {
						t.Fatal(err)
					}
					used := 100 - d.Results[0].Remaining
					if held := 100 - d.Results[1].Remaining; held != used {
						t.Errorf("%d-%d used %d and holds %d", i, j, used, held)
					}
					switch err := errs[i][j]; {
					case err == nil:
						answered++
						if used != 1 {
							t.Errorf("%d-%d was answered, and used %d", i, j, used)
						}
					case transport.NotExecuted(err):
						if used != 0 {
							t.Errorf("%d-%d was certainly not executed, and used %d: %v", i, j, used, err)
						}
					default:
						unknown++
						executed += int(used)
						if used > 1 {
							t.Errorf("%d-%d was executed %d times: %v", i, j, used, err)
						}
					}
				}
			}
			t.Logf("of %d decisions %d were answered and %d had an unknown outcome, of which %d were executed; the largest batch had %d",
				callers*each, answered, unknown, executed, largest.Load())
			if unknown == 0 || executed == 0 || largest.Load() < 2 {
				t.Error("no reply was lost, or there were no batches: this shows nothing")
			}
		})
	}
}

// batchSizes notes the most keys in a pipeline.
type batchSizes struct{ largest *atomic.Int64 }

func (batchSizes) DialHook(next redis.DialHook) redis.DialHook { return next }

func (batchSizes) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (s batchSizes) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		keys := 0
		for _, cmd := range cmds {
			if cmd.Name() == "evalsha" {
				keys += len(keysOf(cmd))
			}
		}
		for n := s.largest.Load(); int64(keys) > n && !s.largest.CompareAndSwap(n, int64(keys)); n = s.largest.Load() {
		}
		return next(ctx, cmds)
	}
}

// On a cluster each server has batches of its own, and a limit admits exactly what
// it says.
func TestBatchesOnACluster(t *testing.T) {
	cluster := redistest.StartCluster(t)
	client := cluster.Client(t)
	var largest atomic.Int64
	client.AddHook(batchSizes{&largest})
	r := &algorithms.Redis{Client: client, Namespace: "batches", Budget: roomy}
	if err := storeOf(r).Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	const limit = 500
	tight := algorithms.Check{Rule: "tight", Limit: perDay(limit)}
	var all sync.WaitGroup
	var admitted atomic.Int64
	for i := range 64 {
		all.Go(func() {
			for j := range 16 {
				d, err := r.Take(t.Context(), tight, algorithms.Check{Rule: "ip", Key: fmt.Sprint(i, j), Limit: perDay(9)}, algorithms.Check{Rule: "user", Key: fmt.Sprint(j), Limit: perDay(10_000)})
				switch {
				case err != nil:
					t.Error(err)
				case d.Allowed:
					admitted.Add(1)
				}
			}
		})
	}
	all.Wait()
	if admitted.Load() != limit || largest.Load() < 6 {
		t.Errorf("admitted %d of %d; the largest batch had %d keys", admitted.Load(), limit, largest.Load())
	}
}

func TestRedisSendsNothingMoreIntoAStuckClient(t *testing.T) {
	stuck := stuckClient{released: make(chan struct{})}
	r := &algorithms.Redis{Client: stuck, Namespace: "test", Budget: time.Millisecond}
	check := algorithms.Check{Rule: "r", Limit: perDay(1)}
	for range transport.MaxUnderWay {
		if _, err := r.Take(t.Context(), check); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, want DeadlineExceeded", err)
		}
	}
	if _, err := r.Take(t.Context(), check); !errors.Is(err, transport.ErrBusy) {
		t.Errorf("got %v, want transport.ErrBusy", err)
	}
	close(stuck.released)
	for {
		if _, err := r.Take(t.Context(), check); !errors.Is(err, transport.ErrBusy) {
			break
		}
	}
}

type stuckClient struct{ released chan struct{} }

func (c stuckClient) Process(context.Context, redis.Cmder) error {
	<-c.released
	return errors.New("stuck no more")
}

// A Client may have Process only. What goes to it in one flush is sent one by one.
func TestAClientWithoutPipelines(t *testing.T) {
	client := redistest.Start(t).Client(t)
	r := &algorithms.Redis{Client: struct{ algorithms.Client }{client}, Namespace: "shop", Budget: roomy}
	checks := []algorithms.Check{{Rule: "r", Key: "a", Limit: algorithms.PerHour(1)}, {Rule: "r", Key: "b", Limit: algorithms.PerHour(1)}}
	if _, err := r.Take(t.Context(), checks...); err != nil {
		t.Fatal(err)
	}
	if err := r.Reset(t.Context(), checks...); err != nil {
		t.Fatal(err)
	}
	if left := client.DBSize(t.Context()).Val(); left != 0 {
		t.Errorf("%d keys are left, want none", left)
	}
}

package algorithms

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/internal/inside"
	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/internal/script"
)

// A flushHook is a go-redis hook around each flush of a pipeline.
type flushHook func(cmds []redis.Cmder, send func([]redis.Cmder) error) error

func (flushHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (flushHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h flushHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h(cmds, func(cmds []redis.Cmder) error { return next(ctx, cmds) })
	}
}

// beforeSettling runs a function before each flush of a pipeline that settles.
func beforeSettling(f func()) flushHook {
	return func(cmds []redis.Cmder, send func([]redis.Cmder) error) error {
		if settles(cmds) {
			f()
		}
		return send(cmds)
	}
}

func settles(cmds []redis.Cmder) bool {
	return slices.Contains(cmds[0].Args(), any(script.Settle.SHA()))
}

// failSettling fails all settlements.
func failSettling(err error) flushHook {
	return func(cmds []redis.Cmder, send func([]redis.Cmder) error) error {
		if !settles(cmds) {
			return send(cmds)
		}
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
		return err
	}
}

// A charge that certainly stands is the caller's to settle. One that may have
// been given back is nobody's: to give it back twice would admit more than the limit.
func TestChargesThatCouldNotBeGivenBack(t *testing.T) {
	srv := redistest.Start(t)
	for err, charged := range map[error]int64{
		&net.OpError{Op: "dial", Err: errors.New("connection refused")}: 1,
		io.EOF: 0,
	} {
		client := srv.Client(t)
		client.AddHook(failSettling(err))
		r := &Redis{Client: client, Namespace: fmt.Sprint("charged", charged), Sharded: true, Budget: roomy}
		checks := []Check{{Rule: "wide", Key: "w", Limit: perDay(10)}, {Rule: "full", Key: "f", Limit: perDay(1)}}
		if _, err := r.Take(t.Context(), checks[1]); err != nil {
			t.Fatal(err)
		}
		d, takeErr := r.Take(t.Context(), checks...)
		if takeErr != nil || d.Allowed || d.Results[0].Charged != charged {
			t.Errorf("%v: %+v, %v; want %d charged", err, d, takeErr, charged)
		}
		checks[0].Key = checks[1].Key // so that they are one call, which charges nothing
		if d, takeErr := r.Take(t.Context(), checks...); takeErr != nil || d.Allowed || d.Results[0].Charged != 0 || d.Results[0].Remaining != 10 {
			t.Errorf("of one key: %+v, %v", d, takeErr)
		}
	}
}

// A bucket does not get back what it refilled between a charge and its return.
// Whoever is over a limit of their own must not drain with that what they share
// with others, however many requests they send.
func TestRequestsOfKnownAbusersDoNotDrainWhatTheyShare(t *testing.T) {
	srv, clock := redistest.StartWithClock(t)
	const refill = 20 * time.Millisecond
	for _, algorithm := range []Algorithm{TokenBucket, GCRA} {
		t.Run(string(algorithm), func(t *testing.T) {
			client := srv.Client(t)
			r := &Redis{Client: client, Namespace: "drain", Sharded: true, Budget: roomy}
			client.AddHook(beforeSettling(func() { clock.Advance(time.Millisecond) })) // as long as a flush takes
			everyone := Check{Rule: "all", Limit: Limit{Rate: int64(time.Second / refill), Period: time.Second, Burst: 5, Algorithm: algorithm}}
			abuser := []Check{{Rule: "ip", Key: "abuser " + string(algorithm), Limit: perDay(1)}, everyone}
			if d, err := r.Take(t.Context(), abuser...); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			for i := range 100 {
				next := clock.Now().Add(refill)
				for range 20 {
					if d, err := r.Take(inside.PeekFirst(t.Context()), abuser...); err != nil || d.Allowed || d.Results[1].Charged != 0 || !d.Results[1].HasRoom {
						t.Fatalf("the abuser: %+v, %v", d, err)
					}
				}
				clock.Set(next)
				d, err := r.Take(t.Context(), Check{Rule: "ip", Key: fmt.Sprint(algorithm, i), Limit: perDay(1)}, everyone)
				if err != nil || !d.Allowed {
					t.Fatalf("honest request %d: %+v, %v", i, d, err)
				}
			}
		})
	}
}

// A slot of a leaky_bucket comes back only while it is the last.
func TestRequestsOfKnownAbusersLeaveNoSlots(t *testing.T) {
	srv, _ := redistest.StartWithClock(t)
	client := srv.Client(t)
	r := &Redis{Client: client, Namespace: "slots", Sharded: true, Budget: roomy}
	everyone := Check{Rule: "all", Limit: Limit{Rate: 50, Period: time.Second, Burst: 100, Algorithm: LeakyBucket}}
	honest := func() Decision {
		d, err := r.Take(t.Context(), everyone)
		if err != nil || !d.Allowed {
			t.Errorf("honest: %+v, %v", d, err)
		}
		return d
	}
	served := 0
	client.AddHook(beforeSettling(func() { served++; honest() })) // between a charge and its return
	abuser := []Check{{Rule: "ip", Key: "abuser", Limit: perDay(1)}, everyone}
	for n := range 20 {
		ctx := t.Context()
		if n > 1 { // the Guard has seen a denial
			ctx = inside.PeekFirst(ctx)
		}
		if _, err := r.Take(ctx, abuser...); err != nil {
			t.Fatal(err)
		}
	}
	// The abuser's one request, and the slot that its first denial left.
	if want := time.Duration(served+2) * 20 * time.Millisecond; honest().Delay() > want {
		t.Errorf("after %d honest requests and 19 denied ones: delay %s, want at most %s", served, honest().Delay(), want)
	}
}

// What is denied no longer is found out at once: other processes settle and
// reset too.
func TestKnownAbusersAreAdmittedAsSoonAsTheyMay(t *testing.T) {
	srv, clock := redistest.StartWithClock(t)
	r := &Redis{Client: srv.Client(t), Namespace: "test", Sharded: true, Budget: roomy}
	other := &Redis{Client: srv.Client(t), Namespace: "test", Sharded: true, Budget: roomy}
	checks := []Check{
		{Rule: "ip", Key: "a", Limit: Limit{Rate: 1, Period: time.Minute, Algorithm: FixedWindow}},
		{Rule: "all", Limit: Limit{Rate: 50, Period: time.Second, Algorithm: TokenBucket}},
	}
	take := func(want bool) {
		t.Helper()
		d, err := r.Take(inside.PeekFirst(t.Context()), checks...)
		if err != nil || d.Allowed != want {
			t.Errorf("%+v, %v; want allowed %v", d, err, want)
		}
		for _, res := range d.Results {
			if (res.Charged == 1) != want {
				t.Errorf("charged %+v", res)
			}
		}
	}
	clock.Set(clock.Now().Truncate(time.Hour).Add(time.Hour))
	take(true)
	take(false)
	take(false)
	if err := other.Reset(t.Context(), checks[0]); err != nil {
		t.Fatal(err)
	}
	take(true)
	take(false)
	clock.Advance(time.Minute - time.Microsecond)
	take(false)
	clock.Advance(time.Microsecond)
	take(true)
}

// A server that hangs does not take the answers of others with it, and what
// those charged to a request that is denied is never lost: it is given back, or
// it is in the results for the caller to settle.
func testAServerThatHangs(t *testing.T, cluster *redistest.Cluster) {
	check := func(client *redis.ClusterClient, rule string, master int, limit int64) Check {
		for i := 0; ; i++ {
			c := Check{Rule: rule, Key: fmt.Sprint(i), Limit: Limit{Rate: limit, Period: 1000 * time.Hour, Algorithm: FixedWindow}}
			node, err := client.MasterForKey(t.Context(), keyOf("hang", c))
			if err != nil {
				t.Fatal(err)
			}
			if node.Options().Addr == cluster.Masters[master].Addr {
				return c
			}
		}
	}
	for name, options := range map[string]redis.ClusterOptions{
		"a client that is called directly": {Addrs: cluster.Addrs, ReadTimeout: roomy},
		"a client that is left behind":     {Addrs: cluster.Addrs, ReadTimeout: roomy, Protocol: 3},
	} {
		t.Run(name, func(t *testing.T) {
			client := redis.NewClusterClient(FailFast(&options))
			defer client.Close()
			var settling func()
			client.AddHook(beforeSettling(func() {
				if settling != nil {
					settling()
				}
			}))
			r := &Redis{Client: client, Namespace: "hang", Budget: 300 * time.Millisecond}
			hung, well, full := check(client, name+"h", 0, 100), check(client, name+"w", 1, 100), check(client, name+"f", 2, 1)
			left := func() int64 {
				t.Helper()
				d, err := r.Peek(t.Context(), well)
				if err != nil {
					t.Fatal(err)
				}
				return d.Results[0].Remaining
			}
			for _, c := range []Check{hung, well, full} {
				for { // until there are connections everywhere, and the scripts
					d, err := r.Take(t.Context(), c)
					if err == nil && d.Results[0].Err == nil {
						break
					}
				}
			}
			used := 100 - left()

			cluster.Masters[0].Pause(t)
			d, err := r.Take(t.Context(), hung, well, full)
			if err != nil || d.Allowed || d.Results[0].Err == nil || d.Results[1].Charged != 1 || d.Results[2].Err != nil {
				t.Fatalf("%+v, %v; want one charge that stands", d, err)
			}
			if n := left(); n != 99-used {
				t.Errorf("%d left, want %d: nothing was given back yet", n, 99-used)
			}
			if _, err := r.Settle(t.Context(), Charge{Result: d.Results[1]}); err != nil {
				t.Error(err)
			}
			for range 3 {
				if d, err := r.Take(inside.PeekFirst(t.Context()), hung, well, full); err != nil || d.Allowed || d.Results[1].Charged != 0 {
					t.Errorf("known to be over: %+v, %v", d, err)
				}
			}
			if n := left(); n != 100-used {
				t.Errorf("%d left, want %d", n, 100-used)
			}
			cluster.Masters[0].Resume(t)

			// Nobody knows whether a return that got no answer was executed.
			fresh := check(client, name+"g", 2, 1)
			if _, err := r.Take(t.Context(), fresh); err != nil {
				t.Fatal(err)
			}
			settling = func() { cluster.Masters[1].Pause(t) }
			if d, err := r.Take(t.Context(), well, fresh); err != nil || d.Allowed || d.Results[0].Charged != 0 {
				t.Errorf("a return without an answer: %+v, %v; want nothing to settle", d, err)
			}
			cluster.Masters[1].Resume(t)
		})
	}
}

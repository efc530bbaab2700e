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

	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/internal/script"
)

// An onSettling is a go-redis hook around each flush that settles.
type onSettling func(cmds []redis.Cmder, send func() error) error

func (onSettling) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h onSettling) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h.around([]redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (h onSettling) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h.around(cmds, func() error { return next(ctx, cmds) })
	}
}

func (h onSettling) around(cmds []redis.Cmder, send func() error) error {
	if slices.Contains(cmds[0].Args(), any(script.Settle.SHA())) {
		return h(cmds, send)
	}
	return send()
}

// failed gives all commands an error.
func failed(cmds []redis.Cmder, err error) error {
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
	return err
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
		client.AddHook(onSettling(func(cmds []redis.Cmder, _ func() error) error { return failed(cmds, err) }))
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

// What is denied no longer is found out at once: other processes settle and
// reset too.
func TestWhoWasDeniedIsAdmittedAsSoonAsPossible(t *testing.T) {
	srv, clock := redistest.StartWithClock(t)
	r := &Redis{Client: srv.Client(t), Namespace: "test", Sharded: true, Budget: roomy}
	other := &Redis{Client: srv.Client(t), Namespace: "test", Sharded: true, Budget: roomy}
	checks := []Check{
		{Rule: "ip", Key: "a", Limit: Limit{Rate: 1, Period: time.Minute, Algorithm: FixedWindow}},
		{Rule: "all", Limit: Limit{Rate: 50, Period: time.Second, Algorithm: TokenBucket}},
	}
	take := func(want bool) {
		t.Helper()
		d, err := r.Take(t.Context(), checks...)
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
			client.AddHook(onSettling(func(_ []redis.Cmder, send func() error) error {
				if settling != nil {
					settling()
				}
				return send()
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

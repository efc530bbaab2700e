package algorithms

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// chargesOf makes each of the results cost this much.
func chargesOf(cost int64, charged ...Result) []Charge {
	charges := make([]Charge, len(charged))
	for i := range charged {
		charges[i] = Charge{Result: charged[i], Cost: cost}
	}
	return charges
}

func settleAll(ctx context.Context, l Limiter, cost int64, charged ...Result) error {
	_, err := l.Settle(ctx, chargesOf(cost, charged...)...)
	return err
}

func perDay(rate int64) Limit { return Limit{Rate: rate, Period: 24 * time.Hour} }

// One of several charges may be on a key that somebody else has written. The others are settled all the same, and each only once,
// however often it is tried.
func TestSettlingWhereOneKeyIsInTheWay(t *testing.T) {
	ctx := t.Context()
	b := RealBackend(t)
	b.SetTime(someTime)
	client := b.Client
	var checks []Check
	eachAlgorithm(t, func(_ *testing.T, l Limit) {
		l.Rate = 100
		if l.Burst > 0 {
			l.Burst = 100
		}
		checks = append(checks, Check{Rule: l.row().Name, Key: "k", Limit: l, Cost: 10})
	})
	twice := len(checks) // one key has two charges
	checks = append(checks, checks[0])
	for at := range twice {
		t.Run(checks[at].Rule, func(t *testing.T) {
			b.Flush()
			key := keyOf("test", checks[at])
			mustTake(t, b.Redis, checks[:twice]...) // of others
			d := Decision{Results: append(mustTake(t, b.Redis, checks[:twice]...), mustTake(t, b.Redis, checks[twice])...)}
			if err := errors.Join(client.Rename(ctx, key, "elsewhere").Err(), client.HSet(ctx, key, "f", "1").Err()); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if err := Refund(ctx, b.Redis, d); transport.ClassOf(err) != transport.ClassAnswer {
					t.Fatal(err)
				}
			}
			if err := client.Rename(ctx, "elsewhere", key).Err(); err != nil {
				t.Fatal(err)
			}
			for i, c := range checks {
				want, charged := int64(90), int64(0)
				switch {
				case c != checks[at]:
				case c == checks[twice]:
					want, charged = 70, 10
				default:
					want, charged = 80, 10
				}
				left, err := b.Peek(ctx, c)
				if err != nil || left.Results[0].Remaining != want || d.Results[i].Charged != charged {
					t.Errorf("%s: %d left and charged %d, want %d and %d: %v", c.Limit, left.Results[0].Remaining, d.Results[i].Charged, want, charged, err)
				}
			}
		})
	}
}

// A Settle whose outcome is unknown may be tried again. That may charge twice, but
// gives nothing back twice, not even what was charged since.
func TestSettlingAgainAfterAnError(t *testing.T) {
	srv := redistest.Start(t)
	unsent := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for name, c := range map[string]struct {
		err      error
		executed bool
		cost     int64 // of 10
		want     int64 // it costs after another try
		wantBack int64 // what it costs then at 0
	}{
		"given back in part, unknown": {io.EOF, true, 4, 4, 0},
		"perhaps given back in part":  {io.EOF, false, 4, 10, 6},
		"not given back in part":      {unsent, false, 4, 4, 0},
		"given back, unknown":         {io.EOF, true, 0, 0, 0},
		"perhaps given back":          {io.EOF, false, 0, 10, 10},
		"not given back":              {unsent, false, 0, 0, 0},
		"charged more, unknown":       {io.EOF, true, 14, 18, 4},
		"perhaps charged more":        {io.EOF, false, 14, 14, 0},
		"not charged more":            {unsent, false, 14, 14, 0},
	} {
		for _, sharded := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " sharded=", sharded), func(t *testing.T) {
				client := srv.Client(t)
				client.FlushAll(t.Context())
				var lose atomic.Bool // the answer to the next settlement
				client.AddHook(onSettling(func(cmds []redis.Cmder, send func() error) error {
					if !lose.CompareAndSwap(true, false) {
						return send()
					}
					if c.executed {
						_ = send()
					}
					return failed(cmds, c.err)
				}))
				r := &Redis{Client: client, Namespace: "test", Sharded: sharded, Budget: roomy}
				if err := storeOf(r).Warm(t.Context()); err != nil {
					t.Fatal(err)
				}
				check := Check{Rule: "r", Key: "k", Limit: perDay(100), Cost: 10}
				mustTake(t, r, check) // of another
				result := mustTake(t, r, check)[0]
				lose.Store(true)
				results, err := r.Settle(t.Context(), Charge{Result: result, Cost: c.cost})
				if err == nil || len(results) != 1 || results[0].Err == nil {
					t.Fatalf("%+v, %v", results, err)
				}
				for _, step := range []struct{ cost, want int64 }{{c.cost, c.want}, {c.cost, c.want}, {0, c.wantBack}, {0, c.wantBack}} {
					if results, err = r.Settle(t.Context(), Charge{Result: results[0], Cost: step.cost}); err != nil {
						t.Fatal(err)
					}
					d, err := r.Peek(t.Context(), check)
					if used := 90 - d.Results[0].Remaining; err != nil || used != step.want {
						t.Errorf("settled again at %d: it costs %d, want %d: %v", step.cost, used, step.want, err)
					}
				}
			})
		}
	}
}

// Where a shard is away, what the others have charged is given back, and what may
// have been given back there is not given back again.
func testSettlingWhereAShardIsAway(t *testing.T, cluster *redistest.Cluster) {
	client := redis.NewClusterClient(FailFast(&redis.ClusterOptions{Addrs: cluster.Addrs, ReadTimeout: roomy}))
	defer client.Close()
	r := &Redis{Client: client, Namespace: "test", Budget: 300 * time.Millisecond}
	if err := storeOf(r).Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	var checks []Check
	shards := make(map[int]bool)
	for i := 0; len(checks) < 3; i++ {
		c := Check{Rule: "r", Key: fmt.Sprint(i), Limit: Limit{Rate: 100, Period: 720 * time.Hour, Algorithm: FixedWindow}, Cost: 10}
		for { // of another; until there are connections
			if d, err := r.Take(t.Context(), c); err == nil && d.Results[0].Err == nil {
				break
			}
		}
		if shard := storeOf(r).Shard(c.Key); !shards[shard] {
			shards[shard] = true
			checks = append(checks, c)
		}
	}
	left := func() (left []int64) {
		t.Helper()
		d, err := r.Peek(t.Context(), checks...)
		if err != nil || slices.ContainsFunc(d.Results, func(r Result) bool { return r.Err != nil }) {
			t.Fatalf("%+v, %v", d, err)
		}
		for _, res := range d.Results {
			left = append(left, res.Remaining)
		}
		return left
	}
	want := left()
	d := Decision{Results: mustTake(t, r, checks...)}

	away := slices.Index(cluster.Addrs, storeOf(r).Names(storeOf(r).Shard(checks[1].Key))[0])
	cluster.Masters[away].Pause(t)
	if err := Refund(t.Context(), r, d); !errors.Is(err, context.DeadlineExceeded) || d.Results[0].Charged != 0 || d.Results[2].Charged != 0 {
		t.Errorf("%+v, %v", d, err)
	}
	cluster.Masters[away].Resume(t)
	if err := Refund(t.Context(), r, d); err != nil {
		t.Error(err)
	}
	// The shard may have got the command, and have executed it once it was back.
	if got := left(); got[0] != want[0] || got[1] > want[1] || got[2] != want[2] {
		t.Errorf("%d left, want %d", got, want)
	}
}

// A Take in memory allocates its results, and nothing else.
func TestResultsAreOneAllocation(t *testing.T) {
	var m Memory
	for n := 1; n <= 4; n++ {
		checks := make([]Check, n)
		for i := range checks {
			checks[i] = Check{Rule: "r", Key: fmt.Sprint(i), Limit: perDay(1_000_000)}
		}
		if got := testing.AllocsPerRun(1000, func() { _, _ = m.Take(t.Context(), checks...) }); got != 1 {
			t.Errorf("%d checks: %v allocations, want 1", n, got)
		}
	}
}

// A charge may be settled at more than the exact range holds. How much of it is counted then
// is unknown, so settling it again must not free what others have used.
func TestSettlingBeyondTheExactRangeFreesNobodyElse(t *testing.T) {
	ctx, m := t.Context(), new(Memory)
	for _, l := range []Limit{
		{Rate: 50_000_000, Period: time.Hour, Algorithm: SlidingWindow},
		{Rate: 1000, Period: time.Hour, Algorithm: FixedWindow},
		{Rate: 1000, Period: time.Hour, Algorithm: SlidingLog},
		{Rate: 1000, Calendar: "month@UTC"},
		{Rate: 1000, Period: 24 * time.Hour, Algorithm: TokenBucket},
		{Rate: 1000, Period: 24 * time.Hour, Burst: 1000, Algorithm: LeakyBucket},
	} {
		for _, cost := range []int64{200_000_000, math.MaxInt64} {
			check := Check{Rule: "r", Key: fmt.Sprint(cost), Limit: l}
			others := check
			others.Cost = l.Rate - 1
			mustTake(t, m, others)
			r := mustTake(t, m, check)
			for _, to := range []int64{cost, 5, 0} {
				var err error
				if r, err = m.Settle(ctx, chargesOf(to, r...)...); err != nil {
					t.Fatal(err)
				}
				if left := peekOne(t, m, check).Remaining; left > 1 {
					t.Errorf("%s settled at %d: %d units left, want at most 1", l, to, left)
				}
			}
		}
	}
}

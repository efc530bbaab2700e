package algorithms

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/internal/bridge"
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

// One of several charges may be on a key that is banned by hand, or that somebody
// else has written. The others are settled all the same, and each only once,
// however often it is tried.
func TestSettlingWhereOneKeyIsInTheWay(t *testing.T) {
	ctx := t.Context()
	b := realBackend(t)
	b.setTime(someTime)
	client := b.limiter.(*Redis).Client.(*redis.Client)
	var checks []Check
	eachAlgorithm(t, func(t *testing.T, l Limit) {
		l.Rate = 100
		if l.Burst > 0 {
			l.Burst = 100
		}
		checks = append(checks, Check{Rule: string(l.algorithm()), Key: "k", Limit: l, Cost: 10})
	})
	twice := len(checks) // one key has two charges
	checks = append(checks, checks[0])
	for at := range twice {
		for name, wrong := range map[string]struct {
			begin, end func() error
			failed     bool
		}{
			"a ban by hand": {
				begin: func() error { return b.limiter.Ban(ctx, time.Minute, checks[at]) },
				end:   func() error { return b.limiter.Ban(ctx, 0, checks[at]) },
			},
			"a foreign key": {
				begin: func() error {
					return client.Rename(ctx, keyOf("test", checks[at]), "elsewhere").Err()
				},
				end: func() error {
					return client.Rename(ctx, "elsewhere", keyOf("test", checks[at])).Err()
				},
				failed: true,
			},
		} {
			t.Run(fmt.Sprint(name, " at ", at), func(t *testing.T) {
				b.flush()
				mustTake(t, b.limiter, checks[:twice]...) // of others
				results := mustTake(t, b.limiter, checks[:twice]...)
				results = append(results, mustTake(t, b.limiter, checks[twice])...)
				if err := wrong.begin(); err != nil {
					t.Fatal(err)
				}
				if wrong.failed {
					if err := client.HSet(ctx, keyOf("test", checks[at]), "f", "1").Err(); err != nil {
						t.Fatal(err)
					}
				}
				failed := func(i int) bool { return wrong.failed && checks[i] == checks[at] }
				d := Decision{Results: results}
				for range 3 {
					if err := GiveBack(ctx, b.limiter, d); wrong.failed != (classOf(err) == bridge.ClassMisused) || !wrong.failed && err != nil {
						t.Fatal(err)
					}
				}
				if err := wrong.end(); err != nil {
					t.Fatal(err)
				}
				for i, c := range checks {
					want, charged := int64(90), int64(0)
					switch {
					case failed(i) && c == checks[twice]:
						want, charged = 70, 10
					case failed(i):
						want, charged = 80, 10
					}
					d2, err := b.limiter.Peek(ctx, c)
					if err != nil || d2.Results[0].Remaining != want || d.Results[i].Charged != charged {
						t.Errorf("%s: %d left and charged %d, want %d and %d: %v", c.Limit, d2.Results[0].Remaining, d.Results[i].Charged, want, charged, err)
					}
				}
			})
		}
	}
}

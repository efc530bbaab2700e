package failmode_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
)

// Redis is not there. Each check is decided by its mode: counted in this
// process, passed, or denied.
func ExampleGuard() {
	const nowhere = "localhost:1"
	client := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: nowhere}))
	defer client.Close()
	guard := &failmode.Guard{
		Limiter: &algorithms.Redis{Client: client, Namespace: "shop"},
		Logger:  slog.New(slog.DiscardHandler), // only for this example
	}
	defer guard.Close()

	limit := algorithms.Limit{Rate: 1, Period: time.Hour, Algorithm: algorithms.SlidingLog}
	for _, mode := range []failmode.Mode{failmode.Local, failmode.Open, failmode.Closed} {
		for range 2 {
			d, err := guard.Take(context.Background(), algorithms.Check{Rule: mode.String(), Key: "alice", Limit: limit, Fail: mode})
			if err != nil {
				panic(err) // only for a mistake in a check
			}
			fmt.Println(mode, d.Allowed, d.Results[0].Source)
		}
	}
	// Output:
	// local true fallback
	// local false fallback
	// open true fail_open
	// open true fail_open
	// closed false fail_closed
	// closed false fail_closed
}

package algorithms_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
)

// A request has to pass three limits, and they are one decision: the second
// login is denied, so it uses up nothing of what its address and its user have.
func Example() {
	limiter := new(algorithms.Memory)
	perDay := func(n int64) algorithms.Limit {
		return algorithms.Limit{Rate: n, Period: 24 * time.Hour, Algorithm: algorithms.TokenBucket}
	}
	for range 2 {
		d, err := limiter.Take(context.Background(),
			algorithms.Check{Rule: "per-ip", Key: "203.0.113.7", Limit: perDay(200)},
			algorithms.Check{Rule: "per-user", Key: "alice", Limit: perDay(100)},
			algorithms.Check{Rule: "login", Key: "203.0.113.7", Limit: perDay(1)},
		)
		if err != nil {
			panic(err) // a mistake in a check
		}
		fmt.Println("allowed:", d.Allowed)
		for _, r := range d.Results {
			fmt.Printf("  %-8s charged %d, %3d left\n", r.Check.Rule, r.Charged, r.Remaining)
		}
	}
	// Output:
	// allowed: true
	//   per-ip   charged 1, 199 left
	//   per-user charged 1,  99 left
	//   login    charged 1,   0 left
	// allowed: false
	//   per-ip   charged 0, 199 left
	//   per-user charged 0,  99 left
	//   login    charged 0,   0 left
}

// Two processes that share a Redis share the counts in it. In production, put
// each of them into a failmode.Guard.
func ExampleRedis() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()

	check := algorithms.Check{Rule: "per-user", Key: "alice",
		Limit: algorithms.Limit{Rate: 10, Period: 24 * time.Hour, Algorithm: algorithms.TokenBucket}}
	for process := range 2 {
		client := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: server.Addr()}))
		limiter := &algorithms.Redis{Client: client, Namespace: "shop", Budget: 10 * time.Second}
		d, err := limiter.Take(context.Background(), check)
		fmt.Println("process", process, "has", d.Results[0].Remaining, "left:", d.Results[0].Source, err)
		_ = client.Close()
	}
	// Output:
	// process 0 has 9 left: redis <nil>
	// process 1 has 8 left: redis <nil>
}

// FailFast fills what is zero and keeps what is set.
func ExampleFailFast() {
	options := algorithms.FailFast(&redis.Options{Addr: "localhost:6379", PoolSize: 50})
	fmt.Println(options.ContextTimeoutEnabled, options.MaxRetries, options.DialTimeout, options.PoolSize)
	// Output: true -1 1s 50
}

// A limit has a text form, for flags and files. What is no limit is an error
// that says how to write it.
func ExampleParseLimit() {
	for _, text := range []string{"100/1m", "10/s burst 20", "5/1m fixed_window", "5-S"} {
		limit, err := algorithms.ParseLimit(text)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(limit, "admits at once", limit.Quota())
	}
	// Output:
	// 100/1m admits at once 100
	// 10/1s burst 20 token_bucket admits at once 20
	// 5/1m fixed_window admits at once 5
	// limit "5-S": no period; write it as "100/1m", "10/s burst 20" or "5/1m fixed_window"
}

// Calls to somebody else's API leave one by one. A call whose turn would come
// after its deadline fails at once, and takes no turn.
func ExampleWait() {
	limiter := new(algorithms.Memory)
	partner := algorithms.Check{Rule: "partner-api",
		Limit: algorithms.Limit{Rate: 1, Period: time.Hour, Burst: 5, Algorithm: algorithms.LeakyBucket}}

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for call := range 2 {
		_, err := algorithms.Wait(ctx, limiter, partner)
		fmt.Println("call", call, "may go:", err == nil, errors.Is(err, algorithms.ErrDenied))
	}
	// Output:
	// call 0 may go: true false
	// call 1 may go: false true
}

// Work that was not done costs nothing.
func ExampleRefund() {
	limiter := new(algorithms.Memory)
	check := algorithms.Check{Rule: "mail", Key: "alice", Limit: algorithms.PerHour(10)}

	d, err := limiter.Take(context.Background(), check)
	if err != nil || !d.Allowed {
		panic("not allowed")
	}
	// … the mail could not be sent
	if err := algorithms.Refund(context.Background(), limiter, d); err != nil {
		panic(err)
	}
	d, _ = limiter.Peek(context.Background(), check)
	fmt.Println(d.Results[0].Remaining, "left")
	// Output: 10 left
}

// A cost that is known only afterwards is settled: 4000 units were reserved,
// and 1500 were used.
func ExampleMemory_Settle() {
	limiter := new(algorithms.Memory)
	check := algorithms.Check{Rule: "llm-tokens", Key: "alice", Cost: 4000, Limit: algorithms.PerHour(100_000)}

	d, err := limiter.Take(context.Background(), check)
	if err != nil {
		panic(err)
	}
	tokens, _ := d.Result("llm-tokens")
	results, err := limiter.Settle(context.Background(), algorithms.Charge{Result: tokens, Cost: 1500})
	if err != nil {
		panic(err)
	}
	fmt.Println(tokens.Remaining, "left, then", results[0].Remaining)
	// Output: 96000 left, then 98500
}

// Peek tells what Take would say, for a page that shows what is left.
func ExampleMemory_Peek() {
	limiter := new(algorithms.Memory)
	d, err := limiter.Peek(context.Background(), algorithms.Check{Rule: "per-user", Key: "alice", Limit: algorithms.PerHour(10)})
	if err != nil {
		panic(err)
	}
	fmt.Println(d.Allowed, d.Results[0].Remaining, d.Results[0].Charged)
	// Output: true 10 0
}

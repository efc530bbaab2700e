package recipes

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-redis/redis_rate/v10"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// What a rule replaces admits as many at once, tells clients apart in the same way,
// and so does the rule.
func TestMigrations(t *testing.T) {
	for name, recipe := range map[string]func() (func(http.Handler) http.Handler, ratelimit.Rule){
		"httprate": fromHTTPRate, "ulule": fromUlule, "tollbooth": fromTollbooth,
	} {
		theirs, ours := recipe()
		for who, h := range map[string]http.Handler{"theirs": theirs(responds(200)), "ours": limited(t, ours).Handler(responds(200))} {
			ok := false
			for try := range 5 { // a minute of the clock may end in between
				minute := time.Now().Unix() / 60
				one := statuses(h, 8, from(fmt.Sprintf("192.0.2.%d:1", 2*try), "GET", "/"))
				other := statuses(h, 3, from(fmt.Sprintf("192.0.2.%d:1", 2*try+1), "GET", "/"))
				if ok = one[200] == 5 && one[429] == 3 && other[200] == 3; ok || time.Now().Unix()/60 == minute {
					break
				}
			}
			if !ok {
				t.Errorf("%s, %s: not 5 of 8, and 3 of another client", name, who)
			}
		}
	}
}

// GCRA decides as redis_rate does, on any schedule.
func TestRedisRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := limitertest.Redis(t)
		theirs, ours := fromRedisRate()
		limiter, redis := redis_rate.NewLimiter(client), &algorithms.Redis{Client: client, Namespace: "app"}
		random := rand.New(rand.NewPCG(1, 1))
		denied := 0
		for i := range 500 {
			time.Sleep(time.Duration(random.Int64N(int64(12 * time.Second))).Truncate(time.Millisecond))
			cost := 1 + random.IntN(3)
			was, err := limiter.AllowN(t.Context(), "alice", theirs, cost)
			if err != nil {
				t.Fatal(err)
			}
			is, err := redis.Take(t.Context(), algorithms.Check{Rule: "r", Key: "alice", Cost: int64(cost), Limit: ours})
			// They say that nothing is left where a request was denied, and count in doubles.
			if err != nil || is.Allowed != (was.Allowed > 0) || is.Allowed && is.Results[0].Remaining != int64(was.Remaining) ||
				!is.Allowed && (is.RetryAfter()-was.RetryAfter).Abs() > time.Millisecond {
				t.Fatalf("request %d: %+v, %v; theirs %+v", i, is, err, was)
			}
			if !is.Allowed {
				denied++
			}
		}
		if denied < 50 || denied > 450 {
			t.Errorf("%d of 500 denied: that shows little", denied)
		}
	})
}

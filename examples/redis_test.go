package examples_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/redistest"
)

// keys are what counts a client in Redis: by per-ip and per-user.
func (c client) keys() []string {
	return []string{"example:{" + c.ip + "}:per-ip:sw1:1m", "example:{" + c.user + "}:per-user:tb1:1m"}
}

// stored reads keys, one after the other because a cluster has them on several
// nodes. A missing key is "".
func stored(t *testing.T, rdb redis.Cmdable, keys ...string) []string {
	t.Helper()
	values := make([]string, len(keys))
	for i, key := range keys {
		var err error
		if values[i], err = rdb.Get(t.Context(), key).Result(); err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
	}
	return values
}

// counted is what Redis has counted of a client: by per-ip and login.
func (c client) counted(t *testing.T, rdb algorithms.Client) (used [2]int64) {
	t.Helper()
	store := &algorithms.Redis{Client: rdb, Namespace: "example", Budget: 5 * time.Second}
	d, err := store.Peek(t.Context(),
		algorithms.Check{Rule: "per-ip", Key: c.ip, Limit: algorithms.PerMinute(200)},
		algorithms.Check{Rule: "login", Key: c.ip, Limit: algorithms.Limit{Rate: 5, Period: time.Minute, Algorithm: algorithms.SlidingLog}},
	)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range d.Results {
		used[i] = r.Check.Limit.Rate - r.Remaining
	}
	return used
}

// allLogins are the answers to the logins that a client has in a minute.
var allLogins = []string{"200 4/5", "200 3/5", "200 2/5", "200 1/5", "200 0/5"}

func TestCluster(t *testing.T) {
	cluster := redistest.StartCluster(t)
	rdb := cluster.Client(t)
	s := start(t, "stdlib", trusting, "-redis="+strings.Join(cluster.Addrs, ","))
	inOneMinute(t, func(c client) error {
		c.user = "user-of-" + c.ip
		if err := s.expect(c, login, allLogins...); err != nil {
			return err
		}
		before := stored(t, rdb, c.keys()...)
		if used := c.counted(t, rdb); used != [2]int64{5, 5} || before[1] == "" {
			return fmt.Errorf("after five logins the cluster has %v: %q", used, before)
		}
		if err := s.expect(c, login, "429 0/5", "429 0/5"); err != nil {
			return err
		}
		// Every layer was decided on its own, and those with room were charged and
		// given it back, unless that would have taken longer than the budget.
		if used := c.counted(t, rdb); used != [2]int64{5, 5} {
			return fmt.Errorf("after two denied logins the cluster has %v: %w", used, errUndecided)
		}
		return s.expect(client{ip: c.ip}, items, "200 194/200")
	})
}

package examples_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/redistest"
)

// counted is what Redis has counted of a client: by per-ip, login and per-user.
func (c client) counted(t *testing.T, rdb algorithms.Client) (used [3]int64) {
	t.Helper()
	store := &algorithms.Redis{Client: rdb, Namespace: "example", Budget: 5 * time.Second}
	d, err := store.Peek(t.Context(),
		algorithms.Check{Rule: "per-ip", Key: c.ip, Limit: algorithms.PerMinute(200)},
		algorithms.Check{Rule: "login", Key: c.ip, Limit: algorithms.Limit{Rate: 5, Period: time.Minute, Algorithm: algorithms.SlidingLog}},
		algorithms.Check{Rule: "per-user", Key: c.user, Limit: algorithms.Limit{Rate: 100, Period: time.Minute, Algorithm: algorithms.TokenBucket}},
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
		if used := c.counted(t, rdb); used[0] != 5 || used[1] != 5 || used[2] < 1 { // the bucket refills
			return fmt.Errorf("after five logins the cluster has %v: %w", used, errUndecided)
		}
		if err := s.expect(c, login, "429 0/5", "429 0/5"); err != nil {
			return err
		}
		// Every layer was decided on its own, and those with room were charged and
		// given it back, unless that would have taken longer than the budget.
		if used := c.counted(t, rdb); used[0] != 5 || used[1] != 5 {
			return fmt.Errorf("after two denied logins the cluster has %v: %w", used, errUndecided)
		}
		return s.expect(client{ip: c.ip}, items, "200 194/200")
	})
}

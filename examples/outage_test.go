package examples_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/seed75154129/ratelimit/internal/redistest"
)

// While Redis is away each layer follows its fail mode; once it is back, the
// same process counts in it again.
func TestRedisAway(t *testing.T) {
	srv := redistest.Start(t)
	srv.Stop(t)
	s := start(t, "stdlib", trusting, "-redis=redis://"+srv.Addr) // Redis may come later
	failsAsConfigured(t, s)

	srv.Restart(t)
	countsAgain(t, s, srv)

	srv.Stop(t)
	untilOpen(t, s)
	failsAsConfigured(t, s)
	srv.Restart(t)
	countsAgain(t, s, srv)
}

// untilOpen waits for the circuit to open: until then, what is not answered in time
// is counted in the process.
func untilOpen(t *testing.T, s *service) {
	t.Helper()
	eventually(t, func() error { return s.expect(newClient(), login, "503") })
}

// failsAsConfigured checks the fail modes of the layers.
func failsAsConfigured(t *testing.T, s *service) {
	t.Helper()
	c := newClient()
	user := newClient().as("outage" + c.ip)
	err := errors.Join(
		s.expect(c, items, slices.Repeat([]string{"200"}, 5)...), // per-ip: open
		s.expect(c, login, slices.Repeat([]string{"503"}, 5)...), // login: closed
		s.expect(user, login, "503", "503"),                      // per-user: local, and charged nothing
		s.expect(user, items, "200 99/100"),
	)
	if err != nil {
		t.Error(err)
	}
}

// countsAgain waits until a new client's login is counted in Redis.
func countsAgain(t *testing.T, s *service, srv *redistest.Server) {
	t.Helper()
	eventually(t, func() error { return s.expect(newClient(), login, "200 4/5") })
	rdb := srv.Client(t)
	inOneMinute(t, func(c client) error {
		if err := s.expect(c, login, "200 4/5", "200 3/5"); err != nil {
			return err
		}
		if err := s.expect(c, items, "200 197/200", "200 196/200"); err != nil {
			return err
		}
		if used := c.counted(t, rdb); used != [3]int64{4, 2, 0} {
			return fmt.Errorf("Redis has %v", used)
		}
		return nil
	})
}

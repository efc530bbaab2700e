package examples_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/internal/redistest"
)

// While Redis is away each layer follows its fail mode; once it is back, the
// same process counts in it again.
func TestRedisAway(t *testing.T) {
	for _, program := range programs {
		t.Run(program, func(t *testing.T) {
			srv := redistest.Start(t)
			srv.Stop(t)
			s := start(t, program, trusting, "-redis=redis://"+srv.Addr) // Redis may come later
			failsAsConfigured(t, s)

			srv.Restart(t)
			countsAgain(t, s, srv)

			traffic := keepSending(t, s)
			srv.Stop(t)
			untilOpen(t, s)
			failsAsConfigured(t, s)
			srv.Restart(t)
			countsAgain(t, s, srv)
			traffic()
		})
	}
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
		s.expect(user, login, "503 100/100", "503 100/100"),      // per-user: local, and charged nothing
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
		if used := c.counted(t, rdb); used != [2]int64{4, 2} {
			return fmt.Errorf("Redis has %v: %q", used, stored(t, rdb, c.keys()...))
		}
		return nil
	})
}

// keepSending sends requests of new clients until the returned function is
// called, which waits until a few of each kind were answered, and fails the test
// unless all were, all those to /api/items with 200, and within a second, which a
// busy machine may miss now and then.
func keepSending(t *testing.T, s *service) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var answered, slow atomic.Int64
	var mu sync.Mutex
	var errs []error
	for _, request := range []string{items, items, login, items} {
		wg.Go(func() {
			for ctx.Err() == nil {
				a, err := s.send(newClient(), request)
				switch {
				case err != nil:
				case request == items && a.status != 200, request == login && a.status != 200 && a.status != 503:
					err = errors.New(a.String())
				}
				if err != nil {
					mu.Lock()
					errs = append(errs, fmt.Errorf("%s: %w", request, err))
					mu.Unlock()
				}
				answered.Add(1)
				if a.took > time.Second {
					slow.Add(1)
				}
			}
		})
	}
	wait := func() { cancel(); wg.Wait() }
	t.Cleanup(wait)
	return func() {
		t.Helper()
		eventually(t, func() error {
			if n := answered.Load(); n < 50 {
				return fmt.Errorf("%d requests answered", n)
			}
			return nil
		})
		wait()
		if slow.Load() > answered.Load()/10 {
			t.Errorf("%d of %d requests took more than a second", slow.Load(), answered.Load())
		}
		if len(errs) > 0 {
			t.Errorf("%d requests, among them: %v", len(errs), errs[0])
		}
	}
}

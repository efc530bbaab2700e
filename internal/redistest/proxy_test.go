package redistest

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// behind is a server's client through a proxy, with one connection.
func behind(t *testing.T, s *Server, p *Proxy) *redis.Client {
	opts := s.Options()
	opts.Addr = p.Addr
	opts.PoolSize = 1
	rdb := redis.NewClient(opts)
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

// incrWithin increments n and returns what went wrong.
func incrWithin(t *testing.T, rdb *redis.Client, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return rdb.Incr(ctx, "n").Err()
}

// wantCount waits until n is want: what is under way arrives later.
func wantCount(t *testing.T, s *Server, want string) {
	t.Helper()
	err := waitUntil(nil, pollEvery, func() error {
		got, err := s.ask("GET", "n").Text()
		if err == nil && got != want {
			err = errors.New("n = " + got + ", want " + want)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

const soon, patient = 40 * time.Millisecond, 10 * time.Second

func TestProxy(t *testing.T) {
	t.Parallel()
	s := Start(t)
	incr := func(t *testing.T, rdb *redis.Client, limit time.Duration, want bool) {
		t.Helper()
		if err := incrWithin(t, rdb, limit); (err == nil) != want {
			t.Errorf("INCR within %v: %v", limit, err)
		}
	}
	fresh := func(t *testing.T) (*Proxy, *redis.Client) {
		p := StartProxy(t, s.Addr)
		rdb := behind(t, s, p)
		rdb.Set(t.Context(), "n", 0, 0)
		return p, rdb
	}

	t.Run("forwards", func(t *testing.T) {
		p, rdb := fresh(t)
		for range 100 {
			incr(t, rdb, patient, true)
		}
		wantCount(t, s, "100")
		if n := p.Accepted(); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
	})
	t.Run("latency", func(t *testing.T) {
		p, rdb := fresh(t)
		p.SetLatency(200*time.Millisecond, 0)
		incr(t, rdb, soon, false)
		begin := time.Now()
		incr(t, rdb, patient, true)
		if took := time.Since(begin); took < 200*time.Millisecond {
			t.Errorf("took %v", took)
		}
		wantCount(t, s, "2") // also the one nobody waited for
	})
	t.Run("replies stall", func(t *testing.T) {
		p, rdb := fresh(t)
		p.StallReplies()
		incr(t, rdb, soon, false)
		wantCount(t, s, "1")
		p.Resume(t)
		incr(t, rdb, patient, true)
	})
	t.Run("replies are lost", func(t *testing.T) {
		p, rdb := fresh(t)
		p.LoseReplies(2, "incr")
		for range 2 {
			incr(t, rdb, patient, false)
		}
		incr(t, rdb, patient, true)
		wantCount(t, s, "3")
		if n := p.Accepted(); n != 3 {
			t.Errorf("%d connections, want 3: one for each that was reset, one more", n)
		}
	})
	t.Run("cut and refused", func(t *testing.T) {
		p, rdb := fresh(t)
		p.Refuse()
		p.Refuse() // does nothing
		incr(t, rdb, patient, true)
		p.Cut()
		err := incrWithin(t, rdb, patient)
		err = errors.Join(err, incrWithin(t, rdb, patient))
		if opErr, ok := errors.AsType[*net.OpError](err); !ok || opErr.Op != "dial" {
			t.Errorf("INCR = %v, want a dial error", err)
		}
		p.Resume(t)
		if err := waitUntil(nil, pollEvery, func() error { return incrWithin(t, rdb, patient) }); err != nil {
			t.Error(err)
		}
	})
}

// TestProxyOfAStoppedServer is about its connections and goroutines: all end.
func TestProxyOfAStoppedServer(t *testing.T) {
	t.Parallel()
	s := Start(t)
	var p *Proxy
	t.Run("test", func(t *testing.T) {
		p = StartProxy(t, s.Addr)
		rdb := behind(t, s, p)
		if err := incrWithin(t, rdb, patient); err != nil {
			t.Fatal(err)
		}
		s.Stop(t)
		for range 3 {
			if err := incrWithin(t, rdb, patient); err == nil {
				t.Error("a stopped server answers")
			}
		}
		s.Restart(t)
		if err := waitUntil(nil, pollEvery, func() error { return incrWithin(t, rdb, patient) }); err != nil {
			t.Error(err)
		}
		s.Pause(t)
		p.StallReplies()
		_ = incrWithin(t, rdb, soon) // leaves a link that waits for its reply
	})
	p.all.Wait() // or the test would not end
	if len(p.links) != 0 {
		t.Errorf("%d links left", len(p.links))
	}
	if _, err := net.Dial("tcp", p.Addr); err == nil {
		t.Error("a closed proxy accepts connections")
	}
}

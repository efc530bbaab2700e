package outages

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/redistest"
)

// failFast is a client as users are told to make it.
func failFast(t *testing.T, addr string) *redis.Client {
	c := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: addr}))
	t.Cleanup(func() { c.Close() })
	return c
}

// must ends the test if a command to a server failed.
func must(t *testing.T, cmd redis.Cmder) {
	t.Helper()
	if cmd.Err() != nil {
		t.Fatal(cmd)
	}
}

// The times of most scenarios.
const (
	begins = 500 * time.Millisecond
	lasts  = 1500 * time.Millisecond
	total  = 3 * time.Second
)

const soon = 400 * time.Millisecond // a probe, its jitter and a budget, and something for the machine

// A server that hangs takes what it is sent and does not answer.
func TestHang(t *testing.T) {
	hangs := []struct {
		name string
		hang func(t *testing.T, s *redistest.Server, admin *redis.Client) (end func())
	}{
		{"SIGSTOP", func(t *testing.T, s *redistest.Server, _ *redis.Client) func() {
			s.Pause(t)
			return func() { s.Resume(t) }
		}},
		{"CLIENT PAUSE", func(t *testing.T, _ *redistest.Server, admin *redis.Client) func() {
			must(t, admin.Do(t.Context(), "CLIENT", "PAUSE", lasts.Milliseconds(), "ALL"))
			return func() {}
		}},
		{"DEBUG SLEEP", func(t *testing.T, _ *redistest.Server, admin *redis.Client) func() {
			slept := make(chan *redis.Cmd, 1)
			go func() { slept <- admin.Do(context.Background(), "DEBUG", "SLEEP", lasts.Seconds()) }()
			return func() { must(t, <-slept) }
		}},
	}
	for _, h := range selection(hangs, 1) {
		t.Run(h.name, func(t *testing.T) {
			srv := redistest.Start(t)
			r := load{client: failFast(t, srv.Addr), length: total}.start(t)
			var resume func()
			r.without(func() { resume = h.hang(t, srv, srv.Client(t)) }, func() { resume() })
			r.check(promise{
				row:     row{1, h.name + " for 1.5 s"},
				servers: []*redistest.Server{srv},
				waits:   r.underWay(),
				back:    soon,
				opens:   1,
			})
		})
	}
}

// With go-redis' own options requests wait no longer, and the limiter is back
// as soon as the client is.
func TestHangWithDefaultOptions(t *testing.T) {
	onlyAll(t)
	srv := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: srv.Addr})
	t.Cleanup(func() { client.Close() })
	r := load{client: client, length: 4 * time.Second}.start(t)
	r.without(func() { srv.Pause(t) }, func() { srv.Resume(t) })
	r.check(promise{
		row:     row{1, "SIGSTOP for 1.5 s, client not made with FailFast"},
		servers: []*redistest.Server{srv},
		waits:   r.underWay(),
		back:    soon,
		opens:   1,
	})
}

// A server that was killed comes back without its counts, and without scripts.
func TestKillAndRestartEmpty(t *testing.T) {
	srv := redistest.Start(t)
	r := load{client: failFast(t, srv.Addr), length: total}.start(t)
	r.without(func() { srv.Stop(t) }, func() { srv.Restart(t) })
	r.check(promise{
		row:     row{2, "kill -9, back empty after 1.5 s"},
		servers: []*redistest.Server{srv},
		waits:   r.strays(),
		back:    soon + time.Second, // go-redis dials once a second after many failures
		forgets: 1,
		opens:   1,
	})
}

// A server that loads its data answers LOADING until it is done.
func TestRestartWithData(t *testing.T) {
	onlyAll(t)
	srv := redistest.Start(t, "--appendonly", "yes", "--key-load-delay", "200", "--loading-process-events-interval-bytes", "1024")
	admin := srv.Client(t)
	pipe := admin.Pipeline()
	for i := range 8000 {
		pipe.Set(t.Context(), fmt.Sprint("other:", i), i, 0)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	must(t, admin.BgRewriteAOF(t.Context())) // while it loads the form that this writes, the server answers
	for info := "aof_rewrite_in_progress:1"; strings.Contains(info, "aof_rewrite_in_progress:1"); {
		info = admin.Info(t.Context(), "persistence").Val()
	}

	r := load{client: failFast(t, srv.Addr), length: 6 * time.Second}.start(t)
	r.at(begins)
	r.outage(func() { srv.Stop(t) })
	r.back(func() { srv.Restart(t) })
	r.check(promise{
		row:     row{3, "kill -9, back with its data (AOF)"},
		servers: []*redistest.Server{srv},
		waits:   r.strays(),
		back:    soon + time.Second,
		opens:   1,
	})
	if r.wire.failedWith("LOADING") == 0 {
		t.Errorf("nobody saw the server load: %v", r.wire.errors)
	}
}

func TestScriptFlush(t *testing.T) {
	srv := redistest.Start(t)
	admin := srv.Client(t)
	r := load{client: failFast(t, srv.Addr), length: time.Second}.start(t)
	for after := time.Duration(0); after < r.length; after += 10 * time.Millisecond {
		r.at(after)
		must(t, admin.ScriptFlush(t.Context()))
	}
	r.check(promise{
		row:     row{4, "SCRIPT FLUSH every 10 ms"},
		servers: []*redistest.Server{srv},
		waits:   r.strays(),
	})
}

func TestFlushAll(t *testing.T) {
	onlyAll(t)
	srv := redistest.Start(t)
	admin := srv.Client(t)
	r := load{client: failFast(t, srv.Addr), length: 3 * time.Second}.start(t)
	r.at(time.Second)
	must(t, admin.FlushAll(t.Context()))
	r.check(promise{
		row:     row{5, "FLUSHALL"},
		servers: []*redistest.Server{srv},
		waits:   r.strays(),
		forgets: 1,
	})
}

// A server without memory left refuses to write, and writes nothing by halves.
func TestOutOfMemory(t *testing.T) {
	onlyAll(t)
	srv := redistest.Start(t, "--maxmemory-policy", "noeviction")
	admin := srv.Client(t)
	r := load{client: failFast(t, srv.Addr), length: total}.start(t)
	r.without(func() { must(t, admin.ConfigSet(t.Context(), "maxmemory", "1")) }, func() { must(t, admin.ConfigSet(t.Context(), "maxmemory", "0")) })
	r.check(promise{
		row:     row{6, "out of memory, noeviction"},
		servers: []*redistest.Server{srv},
		waits:   r.strays(),
		back:    soon,
		opens:   1,
	})
	if r.wire.failedWith("OOM") == 0 {
		t.Error("the server had memory")
	}
}

// What is wrong with the set-up is said, and nobody storms the server.
func TestRefused(t *testing.T) {
	onlyAll(t)
	for _, refusal := range []struct {
		name, says  string
		begin, end  func(t *testing.T, admin *redis.Client)
		dialsPerSec int
	}{
		{"maxclients reached", "", // go-redis may find the connection closed before it can read why
			func(t *testing.T, admin *redis.Client) {
				must(t, admin.ConfigSet(t.Context(), "maxclients", "1"))
				must(t, admin.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"))
			},
			func(t *testing.T, admin *redis.Client) { must(t, admin.ConfigSet(t.Context(), "maxclients", "10000")) }, 20,
		},
		{"NOPERM", "NOPERM",
			func(t *testing.T, admin *redis.Client) {
				must(t, admin.Do(t.Context(), "ACL", "SETUSER", "limiter", "-evalsha", "-eval"))
			},
			func(t *testing.T, admin *redis.Client) {
				must(t, admin.Do(t.Context(), "ACL", "SETUSER", "limiter", "+@all"))
			}, 20,
		},
		{"WRONGPASS", "WRONGPASS",
			func(t *testing.T, admin *redis.Client) {
				must(t, admin.Do(t.Context(), "ACL", "SETUSER", "limiter", "resetpass", ">new"))
				must(t, admin.Do(t.Context(), "CLIENT", "KILL", "USER", "limiter"))
			},
			func(t *testing.T, admin *redis.Client) {
				must(t, admin.Do(t.Context(), "ACL", "SETUSER", "limiter", "resetpass", ">old"))
			}, 20,
		},
	} {
		t.Run(refusal.name, func(t *testing.T) {
			srv := redistest.Start(t)
			admin := srv.Client(t)
			must(t, admin.Do(t.Context(), "ACL", "SETUSER", "limiter", "on", ">old", "~*", "&*", "+@all"))
			client := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: srv.Addr, Username: "limiter", Password: "old"}))
			t.Cleanup(func() { client.Close() })
			r := load{client: client, length: total}.start(t)
			r.at(begins)
			dials, since := r.wire.dialled(), time.Now()
			r.outage(func() { refusal.begin(t, admin) })
			r.at(begins + lasts)
			n, took := r.wire.dialled()-dials, time.Since(since)
			if most := client.Options().PoolSize + int(took.Seconds()*float64(refusal.dialsPerSec)); n > most && !r.busy() {
				t.Errorf("%d connections in %v, want at most %d", n, took, most)
			}
			r.back(func() { refusal.end(t, admin) })
			r.check(promise{
				row:     row{13, refusal.name + " at run time"},
				servers: []*redistest.Server{srv},
				waits:   r.strays(),
				back:    soon + time.Second,
				opens:   1,
			})
			if r.wire.failedWith(refusal.says) == 0 {
				t.Errorf("no call failed with %q: %v", refusal.says, r.wire.errors)
			}
			if log := r.log.String(); strings.Count(log, "\n") == 0 || strings.Count(log, "\n") > 10 || !strings.Contains(log, refusal.says) {
				t.Errorf("logged:\n%s", log)
			}
		})
	}
}

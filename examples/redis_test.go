package examples_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/redistest"
)

// keys are what counts a client in Redis: by per-ip, login and per-user.
func (c client) keys() []string {
	return []string{"example:{" + c.ip + "}:per-ip:sw1:1m", "example:{" + c.ip + "}:login:fw1:1m", "example:{" + c.user + "}:per-user:tb1:1m"}
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
		algorithms.Check{Rule: "login", Key: c.ip, Limit: algorithms.Limit{Rate: 5, Period: time.Minute, Algorithm: algorithms.FixedWindow}},
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

func TestOneRoundTrip(t *testing.T) {
	srv := redistest.Start(t)
	tests := map[string]struct {
		user, request string
		before        int // logins before the request that is watched
		want          string
		rules         int
	}{
		"no rule":             {"", "GET /healthz", 0, "200", 0},
		"one rule":            {"", items, 0, "200 199/200", 1},
		"two rules":           {"alice", items, 0, "200 99/100", 2},
		"three rules":         {"alice", login, 0, "200 4/5", 3},
		"three rules, denied": {"alice", login, 5, "429 0/5", 3},
	}
	for _, program := range programs {
		s := start(t, program, trusting, "-redis=redis://"+srv.Addr)
		for name, tt := range tests {
			t.Run(program+"/"+name, func(t *testing.T) {
				inOneMinute(t, func(c client) error {
					if tt.user != "" {
						c.user = tt.user + "-of-" + c.ip
					}
					// Connects and loads the script, if that is yet to be done.
					if err := s.expect(newClient(), items, "200 199/200"); err != nil {
						return err
					}
					if err := s.expect(c, login, allLogins[:tt.before]...); err != nil {
						return err
					}
					m := monitor(t, srv)
					if err := s.expect(c, tt.request, tt.want); err != nil {
						return err
					}
					var want []string
					if tt.rules > 0 {
						want = []string{"evalsha"}
					}
					// A decision that was late is given back, in a command of its own: try
					// again. One that always takes two commands fails every time.
					if got := m.commands(t); !slices.Equal(got, want) {
						return fmt.Errorf("commands to Redis: %q, want %q: %w", got, want, errUndecided)
					}
					keys := slices.DeleteFunc(stored(t, srv.Client(t), c.keys()...), func(s string) bool { return s == "" })
					if len(keys) != tt.rules {
						return fmt.Errorf("%d keys count the client: %q", len(keys), keys)
					}
					return nil
				})
			})
		}
	}
}

// A watch is a connection on which Redis says what all others send.
type watch struct {
	net.Conn
	lines *bufio.Scanner
	srv   *redistest.Server
}

func monitor(t *testing.T, srv *redistest.Server) *watch {
	t.Helper()
	conn, err := net.Dial("tcp", srv.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprint(conn, "MONITOR\r\n")
	w := &watch{conn, bufio.NewScanner(conn), srv}
	w.lines.Buffer(nil, 1<<20)
	if !w.lines.Scan() || w.lines.Text() != "+OK" {
		t.Fatalf("MONITOR: %q, %v", w.lines.Text(), w.lines.Err())
	}
	return w
}

// `+1795165194.123456 [0 127.0.0.1:4711] "evalsha" "…`; instead of an address
// there is "lua" if a script ran the command.
var monitored = regexp.MustCompile(`^\+[0-9.]+ \[\d+ (\S+)\] "(\w+)"`)

// beside are the commands that connections begin with, one of which may be opened
// at any time after a decision that was late, and what the Guard asks a server once.
var beside = []string{"hello", "ping", "time", "info"}

// commands are the names of those that clients have sent so far, but for those beside requests.
func (w *watch) commands(t *testing.T) (names []string) {
	t.Helper()
	const end = "the end of the test"
	conn, err := net.Dial("tcp", w.srv.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "ECHO %q\r\n", end)
	for w.lines.Scan() {
		line := w.lines.Text()
		if strings.Contains(line, end) {
			return names
		}
		if m := monitored.FindStringSubmatch(line); m == nil {
			t.Errorf("MONITOR says %q", line)
		} else if m[1] != "lua" && !slices.Contains(beside, m[2]) {
			names = append(names, m[2])
		}
	}
	t.Fatal(w.lines.Err())
	return nil
}

// Two processes, one of each program, share what they count.
func TestProcessesShareLimits(t *testing.T) {
	srv := redistest.Start(t)
	var services []*service
	for _, program := range programs {
		services = append(services, start(t, program, trusting, "-redis=redis://"+srv.Addr))
	}
	rdb := srv.Client(t)
	// A token is refilled each 0.6 s; windows admit no more before the minute ends.
	tests := map[string]struct {
		user, request string
		each          int // requests to each process
		admits        int
		refill        time.Duration
	}{
		"login":    {"", login, 40, 5, 0},
		"per-ip":   {"", items, 112, 200, 0},
		"per-user": {"alice", items, 64, 100, 600 * time.Millisecond},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			inOneMinute(t, func(c client) error {
				if tt.user != "" {
					c.user = tt.user + "-of-" + c.ip
				}
				begin := time.Now()
				admitted, err := hammer(services, c, tt.request, tt.each)
				if err != nil {
					return err
				}
				// Every admitted request is in per-ip, too, unless Redis did not decide it.
				if n := c.counted(t, rdb)[0]; n != int64(admitted) {
					return fmt.Errorf("%d requests admitted, %d in per-ip: %w", admitted, n, errUndecided)
				}
				most := tt.admits
				if tt.refill > 0 {
					most += int(time.Since(begin) / tt.refill)
				}
				if admitted < tt.admits || admitted > most {
					return fmt.Errorf("%d of %d requests admitted, want %d to %d", admitted, tt.each*len(services), tt.admits, most)
				}
				return nil
			})
		})
	}
}

// hammer sends requests to all services from many goroutines and returns how
// many were admitted.
func hammer(services []*service, c client, request string, each int) (admitted int, err error) {
	const callers = 8
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, s := range services {
		for range callers {
			wg.Go(func() {
				for range each / callers {
					a, e := s.send(c, request)
					if e == nil && a.undecided() {
						e = errUndecided
					}
					mu.Lock()
					err = errors.Join(err, e)
					if a.status == 200 {
						admitted++
					}
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	return admitted, err
}

func TestCluster(t *testing.T) {
	cluster := redistest.StartCluster(t)
	rdb := cluster.Client(t)
	for _, program := range programs {
		t.Run(program, func(t *testing.T) {
			s := start(t, program, trusting, "-redis="+strings.Join(cluster.Addrs, ","))
			inOneMinute(t, func(c client) error {
				c.user = "user-of-" + c.ip
				if err := s.expect(c, login, allLogins...); err != nil {
					return err
				}
				before := stored(t, rdb, c.keys()...)
				if used := c.counted(t, rdb); used != [2]int64{5, 5} || before[2] == "" {
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
		})
	}
}

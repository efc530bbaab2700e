package failmode

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/internal/wait"
)

const (
	childVariable = "RATELIMIT_TEST_IN_FLIGHT" // "name address"
	childLease    = time.Second
	childLimit    = 5
	childKey      = "shop:{k}:r:if2:1s"
)

// What a child tells of each request, as "name event". It tells that a request runs after it
// was admitted, and that it ends before the place is freed. All children write to one pipe,
// so in the order of lines no more run than the limit, if it holds.
const (
	eventRuns   = "runs"
	eventEnds   = "ends"
	eventDenied = "denied"
	eventLocal  = "local" // not decided by Redis
	eventStood  = "stood still"
)

// TestInFlightProcess is what the processes of TestInFlightInManyProcesses run. An order, a
// line on its input, is how many requests it sends at a time and how long each runs.
func TestInFlightProcess(t *testing.T) {
	name, addr, ok := strings.Cut(os.Getenv(childVariable), " ")
	if !ok {
		return
	}
	client := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: addr}))
	defer client.Close()
	g := &Guard{
		Limiter:   &algorithms.Redis{Client: client, Namespace: "shop"},
		Instances: 1,
		Logger:    slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	waitFor(t, func() bool { return g.Warm(t.Context()) == nil })
	tell := func(event string) { fmt.Fprintln(os.Stderr, name, event) }
	logs := g.inFlight.Late // seldom
	g.inFlight.Late = func(by time.Duration) { tell(eventStood); logs(by) }
	check := atOnce(childLimit, "k")
	check.Limit.Period = childLease
	requests := func(ctx context.Context, long time.Duration) {
		for ctx.Err() == nil {
			d, err := g.Take(context.Background(), check)
			switch {
			case err != nil:
				t.Error(err)
				return
			case d.Results[0].Source == algorithms.SourceFallback:
				tell(eventLocal)
				_ = wait.For(ctx, rand.N(10*time.Millisecond))
			case !d.Allowed:
				tell(eventDenied)
				_ = wait.For(ctx, rand.N(10*time.Millisecond))
			default:
				tell(eventRuns)
				_ = wait.For(ctx, long/2+rand.N(long))
				tell(eventEnds)
			}
			end(t, g, d)
		}
	}
	stop := func() {}
	var running sync.WaitGroup
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		stop()
		running.Wait()
		var n int
		var long time.Duration
		if _, err := fmt.Sscan(orders.Text(), &n, (*int64)(&long)); err != nil {
			t.Fatal(err)
		}
		var ctx context.Context
		ctx, stop = context.WithCancel(context.Background())
		for range n {
			running.Go(func() { requests(ctx, long) })
		}
	}
	stop()
	running.Wait()
	waitFor(t, func() bool { return g.inFlight.Keys() == 0 }) // nothing leaks
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}

// A child is a process, as the test sees it.
type child struct {
	*redistest.Child
	name   string
	proxy  *redistest.Proxy
	orders *os.File

	runs               int
	ran, denied, local int // since the last mark
}

// does orders a child to send n requests at a time.
func (c *child) does(t *testing.T, n int, long time.Duration) {
	t.Helper()
	if _, err := fmt.Fprintln(c.orders, n, int64(long)); err != nil {
		t.Fatal(err)
	}
}

// children are processes that share a limit.
type children struct {
	srv  *redistest.Server
	pipe *os.File // that they write to

	mu     sync.Mutex // over all below, and the numbers of each child
	all    map[string]*child
	marks  int
	most   int // that ran at once since the last mark
	stood  int // how often one said since then that it stood still
	others []string
}

func startChildren(t *testing.T) *children {
	t.Helper()
	all := &children{srv: redistest.Start(t), all: map[string]*child{}}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	all.pipe = w
	var read sync.WaitGroup
	read.Go(func() {
		for lines := bufio.NewScanner(r); lines.Scan(); {
			all.hear(lines.Text())
		}
	})
	t.Cleanup(func() {
		_ = w.Close()
		read.Wait()
		_ = r.Close()
		if t.Failed() {
			t.Log(strings.Join(all.others, "\n"))
		}
	})
	return all
}

func (all *children) start(t *testing.T, name string) *child {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := &child{name: name, orders: w, proxy: redistest.StartProxy(t, all.srv.Addr)}
	t.Cleanup(func() { _ = w.Close() })
	all.mu.Lock()
	all.all[name] = c
	all.mu.Unlock()
	c.Child = redistest.StartChild(t, "TestInFlightProcess", childVariable+"="+name+" "+c.proxy.Addr, r, all.pipe)
	return c
}

// hear counts a line of the pipe.
func (all *children) hear(line string) {
	all.mu.Lock()
	defer all.mu.Unlock()
	name, event, _ := strings.Cut(line, " ")
	c := all.all[name]
	if c == nil {
		if line == "mark" {
			all.marks++
			all.most, all.stood = all.running(), 0
			for _, c := range all.all {
				c.ran, c.denied, c.local = 0, 0, 0
			}
			return
		}
		all.others = append(all.others, line)
		return
	}
	switch event {
	case eventRuns:
		c.runs++
		c.ran++
		all.most = max(all.most, all.running())
	case eventEnds:
		c.runs--
	case eventDenied:
		c.denied++
	case eventLocal:
		c.local++
	case eventStood:
		all.stood++
	case "died":
		delete(all.all, name)
	default:
		all.others = append(all.others, line)
	}
}

// running requires mu.
func (all *children) running() (n int) {
	for _, c := range all.all {
		n += c.runs
	}
	return n
}

// tell writes a line of the test's own.
func (all *children) tell(t *testing.T, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(all.pipe, line); err != nil {
		t.Fatal(err)
	}
}

// mark counts anew, after all that was written until now.
func (all *children) mark(t *testing.T) {
	t.Helper()
	all.mu.Lock()
	before := all.marks
	all.mu.Unlock()
	all.tell(t, "mark")
	all.await(t, "the mark", func() bool { return all.marks > before })
}

// await polls for a condition, with mu.
func (all *children) await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		all.mu.Lock()
		ok := holds()
		all.mu.Unlock()
		if ok {
			return
		}
		if time.Since(begun) > 20*time.Second {
			t.Fatalf("never: %s: %s", what, all.state())
		}
	}
}

// state is what a test that fails shows.
func (all *children) state() string {
	all.mu.Lock()
	defer all.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "at most %d at once", all.most)
	for _, c := range all.all {
		fmt.Fprintf(&b, "; %s: %d run, %d ran, %d denied, %d local", c.name, c.runs, c.ran, c.denied, c.local)
	}
	return b.String()
}

// right wants no more than the limit to run at once from some time on, which is until
// within at the latest, while each of these children sends requests.
func (all *children) right(t *testing.T, when string, begun time.Time, within time.Duration, of ...*child) {
	t.Helper()
	for {
		late := time.Since(begun) > within
		all.mark(t)
		all.await(t, when, func() bool {
			for _, c := range of {
				if c.ran+c.denied < 20 {
					return false
				}
			}
			return true
		})
		all.mu.Lock()
		most, stood := all.most, all.stood
		all.mu.Unlock()
		switch {
		case most <= childLimit:
			return
		case late && stood == 0: // a machine that is too busy says so
			t.Errorf("%s: %d ran at once of %d", when, most, childLimit)
			return
		}
	}
}

// At most five run at once over processes while Redis answers. Lost replies, a server that
// stands still and a process that is killed change nothing. What comes on top while a process
// stands still for longer than the lease, which it says, and after Redis has forgotten
// everything, is bounded, and is over within a lease, or a third of one. Nothing is left over.
func TestInFlightInManyProcesses(t *testing.T) {
	t.Parallel()
	const short = 10 * time.Millisecond
	all := startChildren(t)
	a, b, c := all.start(t, "a"), all.start(t, "b"), all.start(t, "c")
	living := []*child{a, b, c}
	for _, p := range living {
		p.does(t, 4, short)
	}
	atMost := func(n int, when string) {
		t.Helper()
		all.mu.Lock()
		defer all.mu.Unlock()
		if all.most > n && (all.stood == 0 || n > childLimit) {
			t.Errorf("%s: %d ran at once, want at most %d", when, all.most, n)
		}
	}
	all.await(t, "all places are used, by all", func() bool { return all.most >= childLimit && min(a.ran, b.ran, c.ran) > 20 })

	atMost(childLimit, "on a well network")

	for _, p := range living {
		all.mark(t)
		p.proxy.LoseReplies(3, "evalsha")
		all.await(t, "replies are lost", func() bool { return p.local > 0 })
		p.proxy.StallReplies()
		all.await(t, "replies are late", func() bool { return p.local > 4 })
		p.proxy.Resume(t)
		atMost(childLimit, "in spite of a network that loses replies")
	}
	all.mark(t)
	all.srv.Pause(t)
	all.await(t, "Redis stands still", func() bool { return min(a.local, b.local, c.local) > 0 })
	all.srv.Resume(t)
	all.await(t, "Redis decides", func() bool { return min(a.ran, b.ran, c.ran) > 20 })
	atMost(childLimit, "in spite of a Redis that stands still")

	b.does(t, 2, time.Hour)
	all.await(t, "two places are held", func() bool { return b.runs == 2 })
	b.Kill(t)
	all.tell(t, "b died")
	all.mark(t)
	d := all.start(t, "d")
	d.does(t, 4, short)
	all.await(t, "the places of the dead are used", func() bool { return all.most == childLimit })
	atMost(childLimit, "after a kill")
	all.right(t, "after a kill", time.Now(), 0, a, c, d)

	for {
		c.Pause(t)
		if all.mark(t); c.runs > 0 { // which nothing changes now
			break
		}
		c.Resume(t)
	}
	all.await(t, "others have its places", func() bool { return a.runs+d.runs == childLimit })
	c.Resume(t)
	begun := time.Now()
	all.await(t, "it says that it stood still", func() bool {
		return all.stood > 0 && strings.Contains(strings.Join(all.others, "\n"), "this process stood still")
	})
	atMost(2*childLimit, "beside one that stood still")
	all.right(t, "after one stood still", begun, childLease, a, c, d)

	a.does(t, 2, time.Hour)
	c.does(t, 3, time.Hour)
	d.does(t, 0, 0)
	all.await(t, "all places are held", func() bool { return a.runs == 2 && c.runs == 3 && d.runs == 0 })
	d.does(t, 4, short)
	all.mark(t)
	begun = time.Now()
	if err := all.srv.Client(t).FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	all.await(t, "Redis has forgotten", func() bool { return d.ran > 0 })
	all.right(t, "after FLUSHALL", begun, childLease*2/3, d)
	atMost(2*childLimit, "after FLUSHALL")

	for _, p := range []*child{a, c, d} {
		_ = p.orders.Close()
	}
	for _, p := range []*child{a, c, d} {
		p.Wait(t)
	}
	if n := inFlightIn(t, all.srv.Client(t), childKey); n != 0 {
		t.Errorf("%d in flight at the end, want none", n)
	}
	admin := all.srv.Client(t)
	all.await(t, "Redis is empty", func() bool { return admin.Exists(t.Context(), childKey).Val() == 0 })
}

package failmode_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/redistest"
)

const (
	leaseJob    = "RATELIMIT_TEST_LEASE" // the server's address and the algorithm
	leaseRate   = 2000
	leaseWindow = 500 * time.Millisecond
)

// TestLeaseProcess is what the processes of TestLeasesOfProcesses run: it spends
// until its input ends, and says when each unit was admitted, and by whom.
func TestLeaseProcess(t *testing.T) {
	text, ok := os.LookupEnv(leaseJob)
	if !ok {
		return
	}
	var addr, algorithm string
	if _, err := fmt.Sscan(text, &addr, &algorithm); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient((&redistest.Server{Addr: addr}).Options())
	defer client.Close()
	g := &failmode.Guard{
		Limiter:   &algorithms.Redis{Client: client, Namespace: "leases", Budget: 5 * time.Second},
		Instances: 3, Logger: slog.New(slog.DiscardHandler),
	}
	defer g.Close()
	check := algorithms.Check{Rule: "hot", Lease: true, Fail: failmode.Closed, Limit: algorithms.Limit{
		Rate: leaseRate, Period: leaseWindow, Algorithm: algorithms.Algorithm(algorithm),
	}}
	var ended atomic.Bool
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for !ended.Load() {
				d, err := g.Take(t.Context(), check)
				if err != nil {
					t.Error(err)
					return
				}
				if r := &d.Results[0]; r.Source == algorithms.SourceRedis || r.Source == algorithms.SourceLease {
					if d.Allowed {
						fmt.Println(r.At.UnixMicro()/leaseWindow.Microseconds(), r.Source)
					}
				}
			}
		})
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	ended.Store(true)
	all.Wait()
}

// A spender is a process of the test.
type spender struct {
	cmd      *exec.Cmd
	input    io.Closer
	read     sync.WaitGroup
	mu       sync.Mutex
	admitted map[int64]int // by window
	leased   int
}

func startSpender(t *testing.T, job string) *spender {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &spender{cmd: exec.CommandContext(t.Context(), exe, "-test.run=^TestLeaseProcess$", "-test.timeout=2m"), admitted: map[int64]int{}}
	p.cmd.Env = append(os.Environ(), leaseJob+"="+job)
	input, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.input = input
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	p.read.Go(func() {
		for lines := bufio.NewScanner(output); lines.Scan(); {
			var window int64
			var source string
			if _, err := fmt.Sscan(lines.Text(), &window, &source); err != nil {
				continue // what the test binary says itself
			}
			p.mu.Lock()
			if p.admitted[window]++; source == string(algorithms.SourceLease) {
				p.leased++
			}
			p.mu.Unlock()
		}
	})
	return p
}

// Processes that are stopped for longer than a window, and killed in the midst of
// a block, do not exceed the limit of any window, and neither do those beside them.
func TestLeasesOfProcesses(t *testing.T) {
	for _, a := range []algorithms.Algorithm{algorithms.FixedWindow, algorithms.SlidingWindow} {
		t.Run(string(a), func(t *testing.T) {
			server := redistest.Start(t)
			client := server.Client(t)
			job := fmt.Sprint(server.Addr, " ", a)
			spenders := make([]*spender, 3)
			for i := range spenders {
				spenders[i] = startSpender(t, job)
			}
			until := func(reached func() bool) {
				t.Helper()
				for !reached() {
					if err := client.Ping(t.Context()).Err(); err != nil {
						t.Fatal(err)
					}
				}
			}
			pass := func(d time.Duration) {
				begun := client.Time(t.Context()).Val()
				until(func() bool { return client.Time(t.Context()).Val().Sub(begun) > d })
			}
			spends := func(p *spender) {
				p.mu.Lock()
				before := p.leased
				p.mu.Unlock()
				until(func() bool {
					p.mu.Lock()
					defer p.mu.Unlock()
					return p.leased > before
				})
			}
			for range 3 {
				spends(spenders[0])
				_ = spenders[0].cmd.Process.Signal(syscall.SIGSTOP)
				pass(3 * leaseWindow / 2)
				_ = spenders[0].cmd.Process.Signal(syscall.SIGCONT)
			}
			spends(spenders[1])
			_ = spenders[1].cmd.Process.Kill()
			pass(2 * leaseWindow)
			total, leased := map[int64]int{}, 0
			for _, p := range spenders {
				_ = p.input.Close()
				p.read.Wait()
				_ = p.cmd.Wait()
				leased += p.leased
				for window, n := range p.admitted {
					total[window] += n
				}
			}
			sum := 0
			for window, n := range total {
				if sum += n; n > leaseRate {
					t.Errorf("window %d: %d admitted, want at most %d", window, n, leaseRate)
				}
			}
			t.Logf("%d admitted in %d windows of %d, %d from blocks", sum, len(total), leaseRate, leased)
		})
	}
}

package algorithms

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/internal/step"
)

// A job is what each process of a test does: several goroutines take requests
// or, where there is a third party to call, wait for their turn to call it.
type job struct {
	Redis      string // its address
	Goroutines int
	Times      int       // that each goroutine takes each request, or calls
	Requests   [][]Check // to call: one
	ThirdParty string    // URL to call; "" to take
}

const (
	jobVariable  = "RATELIMIT_TEST_JOB"
	jobNamespace = "processes"
	jobReady     = "ready\n"
)

// TestProcess is what the processes of other tests run: this test binary, with
// a job in the environment. Without one there is nothing to test.
func TestProcess(t *testing.T) {
	text, ok := os.LookupEnv(jobVariable)
	if !ok {
		return
	}
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		t.Fatal(err)
	}
	// All processes begin when the one that started them closes their input.
	fmt.Print(jobReady)
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		t.Fatal(err)
	}
	opts := (&redistest.Server{Addr: j.Redis}).Options()
	opts.ReadTimeout = roomy
	client := redis.NewClient(opts)
	defer client.Close()
	r := &Redis{Client: client, Namespace: jobNamespace, Budget: roomy}
	if j.ThirdParty != "" {
		j.call(t, r)
		return
	}
	var l Limiter = r
	if os.Getpid()%2 == 0 { // some do, and some do not
		l = jointly{r}
	}
	got, err := takeTurns(t.Context(), l, j.Goroutines, j.Times, j.Requests)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(got); err != nil {
		t.Fatal(err)
	}
}

// runProcesses has processes do a job at the same time, and returns what each
// of them admitted.
func runProcesses(t *testing.T, n int, j job) []tally {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	ps := make([]*jobProcess, n)
	for i := range ps {
		cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestProcess$", "-test.timeout=1m")
		cmd.Env = append(os.Environ(), jobVariable+"="+string(text))
		ps[i] = startJob(t, cmd)
	}
	for _, p := range ps {
		if line, err := p.out.ReadString('\n'); line != jobReady {
			t.Fatalf("a process said %q, %v; want %q\n%s", line, err, jobReady, p.finish())
		}
	}
	for _, p := range ps {
		p.begin.Close()
	}
	tallies := make([]tally, n)
	for i, p := range ps {
		line, _ := p.out.ReadString('\n') // how it went is in the exit status
		if err := p.finish(); err != nil {
			t.Fatalf("process %d: %v", i, err)
		}
		if j.ThirdParty != "" {
			continue
		}
		if err := json.Unmarshal([]byte(line), &tallies[i]); err != nil {
			t.Fatalf("process %d said %q: %v", i, line, err)
		}
	}
	return tallies
}

type jobProcess struct {
	cmd    *exec.Cmd
	begin  io.Closer
	out    *bufio.Reader
	stderr bytes.Buffer
}

func startJob(t *testing.T, cmd *exec.Cmd) *jobProcess {
	t.Helper()
	p := &jobProcess{cmd: cmd}
	cmd.Stderr = &p.stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.begin, p.out = in, bufio.NewReader(out)
	return p
}

// finish waits for the process. Its error has what the process printed.
func (p *jobProcess) finish() error {
	p.begin.Close()
	rest, _ := io.ReadAll(p.out)
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%w\n%s%s", err, rest, p.stderr.String())
	}
	return nil
}

// A noting limiter remembers its last decision.
type noting struct {
	Limiter
	last Decision
}

func (n *noting) Take(ctx context.Context, checks ...Check) (d Decision, err error) {
	n.last, err = n.Limiter.Take(ctx, checks...)
	return n.last, err
}

// call waits in every goroutine, and tells the third party when its slot begins
// and how long it had to wait.
func (j job) call(t *testing.T, l Limiter) {
	var wg sync.WaitGroup
	for range j.Goroutines {
		wg.Go(func() {
			for range j.Times {
				n := noting{Limiter: l}
				if _, err := Wait(t.Context(), &n, j.Requests[0]...); err != nil {
					t.Error(err)
					return
				}
				r := n.last.Results[0]
				resp, err := http.Get(fmt.Sprintf("%s?slot=%d&delay=%d", j.ThirdParty, r.At.Add(r.Delay).UnixMicro(), r.Delay.Microseconds()))
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
			}
		})
	}
	wg.Wait()
}

// Processes that share a leaky_bucket call a third party at its constant rate:
// no slot is given to two of them, none is left out, and nobody calls before
// its slot begins.
//
// This takes real time, because waiting is what it is about, and the processes
// have no other clock in common.
func TestProcessesWaitForTheirTurn(t *testing.T) {
	t.Parallel()
	const perProcess = 20
	limit := Limit{Rate: 50, Period: time.Second, Burst: 100, Algorithm: LeakyBucket}
	apart := limit.Period / time.Duration(limit.Rate)

	type arrival struct {
		at, slot time.Time
		delay    time.Duration
	}
	var mu sync.Mutex
	var calls []arrival
	thirdParty := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		at := time.Now()
		slot, err1 := strconv.ParseInt(r.FormValue("slot"), 10, 64)
		delay, err2 := strconv.ParseInt(r.FormValue("delay"), 10, 64)
		if err1 != nil || err2 != nil {
			t.Error(err1, err2)
		}
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, arrival{at, time.UnixMicro(slot), step.Micros(delay)})
	}))
	defer thirdParty.Close()

	runProcesses(t, processes, job{
		Redis:      redistest.Start(t).Addr,
		Goroutines: perProcess / 2,
		Times:      2,
		Requests:   [][]Check{{{Rule: "third-party", Limit: limit}}},
		ThirdParty: thirdParty.URL,
	})
	if len(calls) != processes*perProcess {
		t.Fatalf("%d calls, want %d", len(calls), processes*perProcess)
	}

	slices.SortFunc(calls, func(a, b arrival) int { return a.slot.Compare(b.slot) })
	queued, worst := 0, time.Duration(0)
	for i, c := range calls {
		// At is of Redis, which has the machine's clock, as we do.
		late := c.at.Sub(c.slot)
		if late < 0 {
			t.Errorf("call %d came %s before its slot", i, -late)
		}
		worst = max(worst, late)
		if c.delay > 0 {
			queued++
		}
		if i == 0 {
			continue
		}
		// Whoever finds the queue empty is served at once, maybe after a pause.
		if gap := c.slot.Sub(calls[i-1].slot); gap < apart || gap > apart && c.delay > 0 {
			t.Errorf("slot %d begins %s after the last, with a delay of %s; want %s", i, gap, c.delay, apart)
		}
	}
	if queued < len(calls)/2 {
		t.Errorf("only %d of %d calls had to wait: the queue was not tested", queued, len(calls))
	}

	// What the third party sees: in any window at most the rate and one more,
	// as both ends count. A busy machine lets calls come late, so that those of
	// earlier slots come together with later ones; never more than fit into
	// the window and the worst delay before it.
	slices.SortFunc(calls, func(a, b arrival) int { return a.at.Compare(b.at) })
	for i := range calls {
		for j := i; j < len(calls); j++ {
			window := calls[j].at.Sub(calls[i].at)
			if n, most := j-i+1, int((window+worst)/apart)+1; n > most {
				t.Errorf("%d calls within %s, want at most %d", n, window, most)
			}
		}
	}
	t.Logf("%d of %d calls were queued, %s apart; the latest came %s after its slot began", queued, len(calls), apart, worst)
}

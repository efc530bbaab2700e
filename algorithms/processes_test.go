package algorithms

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/internal/redistest"
)

// A job is what each process of a test does: several goroutines take requests.
type job struct {
	Redis      string // its address
	Goroutines int
	Times      int // that each goroutine takes each request
	Requests   [][]Check
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

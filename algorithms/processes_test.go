package algorithms

import (
	"bytes"
	"encoding/json"
	"os"
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
	jobReady     = "ready" // a key that counts the processes that are ready
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
	opts := (&redistest.Server{Addr: j.Redis}).Options()
	opts.ReadTimeout = roomy
	client := redis.NewClient(opts)
	defer client.Close()
	client.Incr(t.Context(), jobReady)
	for { // all processes begin when the last one is ready
		ready, err := client.Get(t.Context(), jobReady).Int()
		if err != nil {
			t.Fatal(err)
		}
		if ready%processes == 0 {
			break
		}
	}
	r := &Redis{Client: client, Namespace: jobNamespace, Budget: roomy}
	got, err := takeTurns(t.Context(), r, j.Goroutines, j.Times, j.Requests)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewEncoder(os.Stderr).Encode(got); err != nil {
		t.Fatal(err)
	}
}

// runProcesses has processes do a job at the same time, and returns what all
// of them admitted.
func runProcesses(t *testing.T, j job) (all tally) {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	var results [processes]bytes.Buffer
	var running [processes]*redistest.Child
	for i := range running {
		running[i] = redistest.StartChild(t, "TestProcess", jobVariable+"="+string(text), nil, &results[i])
	}
	for i, p := range running {
		p.Wait(t)
		var got tally
		if err := json.Unmarshal(results[i].Bytes(), &got); err != nil {
			t.Fatalf("a process: %v\n%s", err, &results[i])
		}
		t.Logf("a process was admitted %d", got.Admitted)
		all.add(got)
	}
	if t.Failed() {
		t.FailNow()
	}
	return all
}

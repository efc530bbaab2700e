package main

import (
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const output = `goos: linux
cpu: Some CPU
machine: 2 cores
load: 0.20
load: 1.5
BenchmarkRedis/get/callers=1-2 	 100	 20000 ns/op	 20000 p50-ns	 1.000 reads/op
BenchmarkRedis/handler/callers=1-2 	 100	 90000 ns/op	 60000 p50-ns	 1.000 reads/op
BenchmarkRedis/handler/callers=1-2 	 100	 50000 ns/op	 40000 p50-ns	 1.000 reads/op
BenchmarkRedis/handler/callers=1-2 	 100	 40000 ns/op	 50000 p50-ns	 1.000 reads/op
BenchmarkAlone/handler-2 	 100	 60000 p50-ns
BenchmarkAlone/handler-2 	 100	 40000 p50-ns
BenchmarkAlone/handler-2 	 100	 50000 p50-ns
BenchmarkAlone/baseline-2 	 100	 20000 p50-ns
BenchmarkAlone/baseline-2 	 100	 40000 p50-ns
BenchmarkAlone/baseline-2 	 100	 20000 p50-ns
BenchmarkFlood/handler/handler/callers=128-2 	 100	 1000 ns/op
BenchmarkFlood/handler/throttled/callers=128-2 	 100	 20000 ns/op	 25.0 failed-%
BenchmarkFlood/handler/redis_rate/callers=128-2 	 100	 10000 ns/op
BenchmarkCrowd 	 1	 0 circuits
BenchmarkCrowd 	 1	 1 circuits
BenchmarkCrowd 	 1	 0 circuits
BenchmarkOpenLoop/half/limited 	 1	 750.0 p99-µs
BenchmarkOpenLoop/half/bare 	 1	 500.0 p99-µs
BenchmarkScript/take 	 100	 15.50 redis-cpu-µs/op
BenchmarkScript/take 	 100	 16.50 redis-cpu-µs/op
BenchmarkScript/baseline 	 100	 10.00 redis-cpu-µs/op
BenchmarkNoRule/handler-2 	 100	 101.2 ns/op	 0 B/op	 0 allocs/op
PASS
ok  	example	1.234s
`

func TestReport(t *testing.T) {
	m, err := read(strings.NewReader(output))
	if err != nil {
		t.Fatal(err)
	}
	got := costs(m) + peersRows(m) + everything(m)
	for _, want := range []string{
		"| round trips of a request with 3 rules | 1 |  |\n",
		// Round by round 3, 1 and 2.5: not the ratio of the medians, 1.5.
		"| 1 caller, 3 rules: p50 / p50 of one EVALSHA of the [baseline script](README.md#the-benchmarks) | 2.5 | 1 – 3 |\n",
		"| denied, 128 callers: the whole handler's requests/s / the best peer's | 10 |  |\n", // not throttled's 20
		"| HTTP at half of the peak rate: p99 that the middleware adds, µs | 250 |  |\n",
		"| a request that matches no rule: ns | 101 |  |\n",
		"| during these 1000 connections: circuits that opened | 1 | 0 – 1 |\n",
		"| denied, the whole handler | 128 | **1,000,000** | 100,000 (10 ×) | | 50,000 (20 ×, 25 % failed) | | |\n",
		"| Redis/handler/callers=1 | p50-ns | 50,000 | ±20 % | 3 |\n",
		"| NoRule/handler | allocs/op | 0 | ±0 % | 1 |\n",
		"Machine: 2 cores.\n",
		"Measured on 2 cores;",
		"| a request, alone: median | – | 50µs |\n",
		"| denied requests/s, 128 callers | – | 1,000,000 |\n",
		"before a round: at most 1.5.\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no line %q", want)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
	if picture := draw(m); xml.Unmarshal([]byte(picture), new(struct{})) != nil || !strings.Contains(picture, "100,000 (10 ×)") {
		t.Errorf("no picture: %s", picture)
	}
}

func TestWrite(t *testing.T) {
	root := t.TempDir()
	rows, summary := filepath.Join(root, "benchmarks", "results", "peers.md"), filepath.Join(root, "docs", "performance.md")
	const old = "# Title\n\n<!-- peers --> old <!-- / -->\n\nthe rest\n"
	write := func(output string, rounds int) error {
		for _, page := range []string{rows, summary} {
			if err := os.MkdirAll(filepath.Dir(page), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(page, []byte(old), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return run(strings.NewReader(output), io.Discard, "peers", root, rounds)
	}
	has := func(page, want string) {
		t.Helper()
		text, _ := os.ReadFile(page)
		if s := string(text); !strings.Contains(s, want) || strings.Contains(s, " old ") || !strings.HasSuffix(s, "\n\nthe rest\n") {
			t.Errorf("%s", s)
		}
	}
	if err := write(output, 1); err != nil {
		t.Fatal(err)
	}
	has(rows, "| 101 |")
	has(summary, "| 1,000,000 |")
	if _, err := os.Stat(filepath.Join(root, "docs", "performance.svg")); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"what was measured once as the median of two runs": write(output, 2),
		"the figures of a run that failed":                 write(output+"--- FAIL: BenchmarkCrowd\n", 1),
	} {
		text, _ := os.ReadFile(rows)
		if err == nil || string(text) != old {
			t.Errorf("wrote %s", name)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for _, bad := range []string{"BenchmarkX-2 100 fast ns/op", "BenchmarkX-2 100 12 ns/op 13"} {
		if _, err := read(strings.NewReader(bad)); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestKeys(t *testing.T) {
	m, err := read(strings.NewReader(`BenchmarkKeys/token_bucket/few/callers=1 	 100	 30000 p50-ns	 90000 p99-ns	 15.00 redis-cpu-µs/op
BenchmarkKeys/token_bucket/size 	 100	 160.0 bytes/key	 10000000 keys	 8.000 redis-cpu-µs/key
BenchmarkKeys/token_bucket/many/callers=1 	 100	 33000 p50-ns	 99000 p99-ns	 18.00 redis-cpu-µs/op
BenchmarkCapacity/redis/rules=1 	 100	 12.00 redis-cpu-µs/op
BenchmarkCapacity/cluster/rules=3 	 100	 60.00 redis-cpu-µs/op
`))
	if err != nil {
		t.Fatal(err)
	}
	got := keysRows(m) + carries(m)
	for _, want := range []string{
		"| Redis, token_bucket | 10,000,000 | 160 | 1.6 | 8 |\n",
		"| Redis, token_bucket | 1 | 30µs | 33µs | 90µs | 99µs | 15 | 18 |\n",
		"| one Redis, 1 rule | 12 | 83,333 | 50,000 |\n",
		"| a cluster, 3 rules | 60 | 16,667 | 10,000 |\n",
		"| one Redis | 50,000 | – |\n",
		"| a cluster with 3 masters | – | 30,000 |\n",
		"A key takes 160 bytes",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no line %q in\n%s", want, got)
		}
	}
}

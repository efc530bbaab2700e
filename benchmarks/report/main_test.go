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
	got := peersPage(m) + everything(m)
	for _, want := range []string{
		"| round trips of a request with 3 rules | 1 |  | ≤ 1 | met |\n",
		// Round by round 3, 1 and 2.5: not the ratio of the medians, 1.5.
		"| 1 caller, 3 rules: p50 / p50 of one EVALSHA of the [baseline script](design/benchmarks.md) | 2.5 | 1 – 3 | ≤ 1.1 | **not met** |\n",
		"| denied, 128 callers: the whole handler's requests/s / the best peer's | 10 |  | ≥ 10 | met |\n", // not throttled's 20
		"| HTTP at half of the peak rate: p99 that the middleware adds, µs | 250 |  | ≤ 1000 | met |\n",
		"| a request that matches no rule: ns | 101 |  | ≤ 100 | **not met** |\n",
		"| a client with 1000 connections, limit 200 a minute: admitted | – | | ≤ 400 | not measured |\n",
		"| during these 1000 connections: circuits that opened | 1 | 0 – 1 | ≤ 0 | **not met** |\n",
		"| denied, the whole handler | 128 | **1,000,000** | 100,000 (10 ×) | | 50,000 (20 ×, 25 % failed) | | |\n",
		"| Redis/handler/callers=1 | p50-ns | 50,000 | ±20 % | 3 |\n",
		"| NoRule/handler | allocs/op | 0 | ±0 % | 1 |\n",
		"Machine: 2 cores.\n",
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
	dir := t.TempDir()
	document, chart := filepath.Join(dir, "performance.md"), filepath.Join(dir, "peers.svg")
	write := func(output string, rounds int) (string, error) {
		const old = "# Performance\n\n<!-- peers --> old <!-- / -->\n\nthe rest\n"
		if err := os.WriteFile(document, []byte(old), 0o600); err != nil {
			t.Fatal(err)
		}
		err := run(strings.NewReader(output), io.Discard, document, "peers", chart, rounds)
		text, _ := os.ReadFile(document)
		if err != nil && string(text) != old {
			t.Errorf("%v, but the document was changed", err)
		}
		return string(text), err
	}
	text, err := write(output, 1)
	if err != nil || !strings.Contains(text, "| 101 |") || !strings.Contains(text, "](peers.svg)") || strings.Contains(text, "old") || !strings.HasSuffix(text, "\n\nthe rest\n") {
		t.Errorf("%v\n%s", err, text)
	}
	if _, err := write(output, 2); err == nil {
		t.Error("wrote what was measured once as the median of two runs")
	}
	if _, err := write(output+"--- FAIL: BenchmarkCrowd\n", 1); err == nil {
		t.Error("wrote the figures of a run that failed")
	}
}

func TestReadRefuses(t *testing.T) {
	for _, bad := range []string{"BenchmarkX-2 100 fast ns/op", "BenchmarkX-2 100 12 ns/op 13"} {
		if _, err := read(strings.NewReader(bad)); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestCapacity(t *testing.T) {
	m, err := read(strings.NewReader(`BenchmarkKeys/token_bucket/few/callers=1 	 100	 30000 p50-ns	 90000 p99-ns	 15.00 redis-cpu-µs/op
BenchmarkKeys/token_bucket/size 	 100	 160.0 bytes/key	 10000000 keys	 8.000 redis-cpu-µs/key
BenchmarkKeys/token_bucket/many/callers=1 	 100	 33000 p50-ns	 99000 p99-ns	 18.00 redis-cpu-µs/op
BenchmarkCapacity/redis/rules=1 	 100	 12.00 redis-cpu-µs/op
BenchmarkCapacity/cluster/rules=3 	 100	 60.00 redis-cpu-µs/op
`))
	if err != nil {
		t.Fatal(err)
	}
	got := capacityPage(m)
	for _, want := range []string{
		"| Redis, token_bucket | 10,000,000 | 160 | 8 | 1.6 | 8 |\n",
		"| Redis, token_bucket | 1 | 30µs | 33µs | 90µs | 99µs | 15 | 18 |\n",
		"| one Redis, 1 rule | 12 | 83,333 | 50,000 | 2 | 20 |\n",
		"| a cluster, 3 rules | 60 | 16,667 | 10,000 | 10 | 100 |\n",
		"| 24 | 240,000 |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no line %q in\n%s", want, got)
		}
	}
}

package main

import (
	"strings"
	"testing"
)

const output = `goos: linux
cpu: Some CPU
BenchmarkRedis/get/callers=1-2 	 100	 20000 ns/op	 20000 p50-ns	 1.000 reads/op
BenchmarkRedis/handler/callers=1-2 	 100	 90000 ns/op	 60000 p50-ns	 1.000 reads/op
BenchmarkRedis/handler/callers=1-2 	 100	 50000 ns/op	 40000 p50-ns	 1.000 reads/op
BenchmarkRedis/handler/callers=1-2 	 100	 40000 ns/op	 50000 p50-ns	 1.000 reads/op
BenchmarkScript/take 	 100	 15.50 redis-cpu-µs/op
BenchmarkScript/take 	 100	 16.50 redis-cpu-µs/op
BenchmarkScript/baseline 	 100	 10.00 redis-cpu-µs/op
BenchmarkNoRule/handler-2 	 100	 101.2 ns/op	 0 B/op	 0 allocs/op
PASS
ok  	example	1.234s
`

func TestReport(t *testing.T) {
	samples, err := read(strings.NewReader(output))
	if err != nil {
		t.Fatal(err)
	}
	got := tables(samples)
	for _, want := range []string{
		"| round trips of a request with 3 rules | 1 | ≤ 1 | met |\n",
		"| 1 caller, 3 rules: p50 / a bare GET's | 2.5 | ≤ 1.25 | not met |\n",
		"| Redis CPU of a decision, pipelined / TIME + 3 GET + 3 SET PX | 1.6 | ≤ 1.6 | met |\n",
		"| a request that matches no rule: ns | 101 | ≤ 100 | not met |\n",
		"| Redis/handler/callers=1 | p50-ns | 50000 | ±20 % | 3 |\n",
		"| NoRule/handler | allocs/op | 0 | ±0 % | 1 |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no line %q", want)
		}
	}
	if unmeasured := "redis_rate"; strings.Contains(got, unmeasured) {
		t.Errorf("a figure of %s, which was not measured", unmeasured)
	}
	if t.Failed() {
		t.Log(got)
	}
}

func TestReadRefuses(t *testing.T) {
	for _, bad := range []string{"BenchmarkX-2 100 fast ns/op", "BenchmarkX-2 100 12 ns/op 13"} {
		if _, err := read(strings.NewReader(bad)); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

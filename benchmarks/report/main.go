// Command report reads the output of "go test -bench", with any -count or of
// several runs one after the other, and prints two Markdown tables: the figures
// that have a target, and the median of everything that was measured.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A metric is one unit of one benchmark.
type metric struct{ benchmark, unit string }

// A figure is the median of a metric, or its ratio to that of another.
type figure struct {
	what     string
	of, over metric // over.unit is "" where of stands alone
	target   string // "≤ 1.6", "≥ 2" or ""
}

func ratio(what, unit, of, over, target string) figure {
	return figure{what, metric{of, unit}, metric{over, unit}, target}
}

func median(what, unit, of, target string) figure {
	return figure{what, metric{of, unit}, metric{}, target}
}

var figures = []figure{
	median("round trips of a request with 3 rules", "reads/op", "Redis/handler/callers=1", "≤ 1"),
	ratio("1 caller, 3 rules: p50 / a bare GET's", "p50-ns", "Redis/handler/callers=1", "Redis/get/callers=1", "≤ 1.25"),
	ratio("1 caller, 3 rules: requests/s / redis_rate's", "ns/op", "Redis/redis_rate/callers=1", "Redis/handler/callers=1", ""),
	ratio("16 callers, 3 rules: requests/s / redis_rate's", "ns/op", "Redis/redis_rate/callers=16", "Redis/handler/callers=16", ""),
	ratio("128 callers, 3 rules: requests/s / redis_rate's", "ns/op", "Redis/redis_rate/callers=128", "Redis/handler/callers=128", "≥ 2"),
	ratio("the same with a client of default options", "ns/op", "Redis/redis_rate/callers=128", "Redis/default_client/callers=128", ""),
	ratio("128 callers, 3 rules: Redis CPU / redis_rate's", "redis-cpu-µs/op", "Redis/handler/callers=128", "Redis/redis_rate/callers=128", ""),
	ratio("Redis CPU of a decision, pipelined / TIME + 3 GET + 3 SET PX", "redis-cpu-µs/op", "Script/take", "Script/baseline", "≤ 1.6"),
	ratio("Redis CPU of a decision, pipelined / redis_rate's", "redis-cpu-µs/op", "Script/take", "Script/redis_rate", ""),
	ratio("a flood of denied requests, 128 callers: requests/s / redis_rate's", "ns/op", "Flood/redis_rate/callers=128", "Flood/handler/callers=128", "≥ 10"),
	ratio("a flood, the decision alone: requests/s / redis_rate's", "ns/op", "Flood/redis_rate/callers=128", "Flood/take/callers=128", "≥ 20"),
	ratio("a flood: requests/s / those of a handler that writes the same answer", "ns/op", "Flood/written/callers=1", "Flood/handler/callers=1", "≥ 0.5"),
	median("a flood: allocations", "allocs/op", "Flood/handler/callers=1", ""),
	median("in memory, 3 rules, handler and headers: ns", "ns/op", "Memory/handler/callers=1", "≤ 1000"),
	median("in memory, 3 rules, handler and headers: allocations", "allocs/op", "Memory/handler/callers=1", "≤ 12"),
	median("a request that matches no rule: ns", "ns/op", "NoRule/handler", "≤ 100"),
	ratio("bytes of a token_bucket key / redis_rate's", "bytes/key", "Key/token_bucket", "Key/redis_rate", "≤ 1"),
	ratio("bytes of a sliding_window key / redis_rate's", "bytes/key", "Key/sliding_window", "Key/redis_rate", ""),
}

func main() {
	samples, err := read(os.Stdin)
	if err == nil && len(samples) == 0 {
		err = errors.New("no benchmark in the input")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
	fmt.Print(tables(samples))
}

// line is a result of go test: name, GOMAXPROCS, iterations, values and units.
var line = regexp.MustCompile(`^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+(.*)$`)

func read(r io.Reader) (map[metric][]float64, error) {
	samples := make(map[metric][]float64)
	in := bufio.NewScanner(r)
	for in.Scan() {
		match := line.FindStringSubmatch(in.Text())
		if match == nil {
			continue
		}
		fields := strings.Fields(match[2])
		for pair := range slices.Chunk(fields, 2) {
			value, err := strconv.ParseFloat(pair[0], 64)
			if err != nil || len(pair) < 2 {
				return nil, fmt.Errorf("cannot read %q", in.Text())
			}
			m := metric{match[1], pair[1]}
			samples[m] = append(samples[m], value)
		}
	}
	return samples, in.Err()
}

func tables(samples map[metric][]float64) string {
	var b strings.Builder
	fmt.Fprint(&b, "| figure | measured | target | |\n|---|---|---|---|\n")
	for _, f := range figures {
		value, ok := f.value(samples)
		if !ok {
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", f.what, short(value), f.target, verdict(value, f.target))
	}
	fmt.Fprint(&b, "\n| benchmark | unit | median | spread | runs |\n|---|---|---|---|---|\n")
	all := make([]metric, 0, len(samples))
	for m := range samples {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b metric) int {
		return strings.Compare(a.benchmark+" "+a.unit, b.benchmark+" "+b.unit)
	})
	for _, m := range all {
		mid, spread := middle(samples[m])
		fmt.Fprintf(&b, "| %s | %s | %s | ±%.0f %% | %d |\n", m.benchmark, m.unit, short(mid), spread, len(samples[m]))
	}
	return b.String()
}

// value is false where something that the figure needs was not measured.
func (f figure) value(samples map[metric][]float64) (float64, bool) {
	if len(samples[f.of]) == 0 {
		return 0, false
	}
	of, _ := middle(samples[f.of])
	if f.over.unit == "" {
		return of, true
	}
	if len(samples[f.over]) == 0 {
		return 0, false
	}
	over, _ := middle(samples[f.over])
	return of / over, over != 0
}

func verdict(value float64, target string) string {
	limit, err := strconv.ParseFloat(strings.TrimLeft(target, "≤≥ "), 64)
	switch {
	case err != nil:
		return ""
	case strings.HasPrefix(target, "≤") == (value <= limit):
		return "met"
	}
	return "not met"
}

// middle is the median, and half the range in percent of it.
func middle(values []float64) (mid, spread float64) {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	mid = (sorted[(n-1)/2] + sorted[n/2]) / 2
	if mid != 0 {
		spread = (sorted[n-1] - sorted[0]) / 2 / mid * 100
	}
	return mid, spread
}

// short keeps three digits or, of large numbers, the whole part.
func short(v float64) string {
	if v >= 1000 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

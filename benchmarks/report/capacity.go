package main

import (
	"fmt"
	"math"
	"strings"
)

const (
	articleBytes = 20      // a key, by the articles' estimate: a count and a time
	demand       = 100_000 // requests a second, the articles' example
	busy         = 0.6     // of a core: what is planned with, so that there is room for bursts
)

// capacityPage has the sums that follow from what was measured.
func capacityPage(m measured) string {
	return strings.Join([]string{machine(m), m.keyTable(), m.latencyTable(), m.carries()}, "\n")
}

func (m measured) keyTable() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| where, algorithm | keys | bytes per key | times the usual %d bytes | GB for 10 million | Redis CPU to make a key, µs |\n|---|--:|--:|--:|--:|--:|\n", articleBytes)
	for _, name := range m.benchmed {
		key, ok := between(name, "Keys/", "/size")
		if !ok {
			continue
		}
		bytes, _ := m.median(name, "bytes/key")
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", where(key), m.cell(name, "keys"), short(bytes),
			short(bytes/articleBytes), short(bytes*10e6/1e9), m.cell(name, "redis-cpu-µs/key"))
	}
	return b.String()
}

func between(name, begin, end string) (part string, ok bool) {
	part, ok = strings.CutPrefix(name, begin)
	if !ok {
		return "", false
	}
	return strings.CutSuffix(part, end)
}

func where(key string) string {
	if algorithm, ok := strings.CutPrefix(key, "memory/"); ok {
		return "this process, " + algorithm
	}
	return "Redis, " + key
}

// latencyTable compares a decision for one of few keys with one of many.
func (m measured) latencyTable() string {
	var b strings.Builder
	fmt.Fprint(&b, "| a decision, one rule | callers | p50, using 10,000 of the keys | p50, using all | p99, using 10,000 | p99, using all | Redis CPU, using 10,000, µs | using all, µs |\n"+
		"|---|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, name := range m.benchmed {
		few, callers, _ := strings.Cut(name, "/few/callers=")
		key, ok := between(few, "Keys/", "")
		if !ok || callers == "" {
			continue
		}
		many := strings.Replace(name, "/few/", "/many/", 1)
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", where(key), callers, m.duration(name, "p50-ns"), m.duration(many, "p50-ns"),
			m.duration(name, "p99-ns"), m.duration(many, "p99-ns"), m.cell(name, "redis-cpu-µs/op"), m.cell(many, "redis-cpu-µs/op"))
	}
	return b.String()
}

// carries says what servers carry, if a core is busy for its planned part.
func (m measured) carries() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| store, rules | Redis CPU of a request, µs | requests/s at 100 %% of a core | requests/s at %.0f %% | servers for %s requests/s | servers for %s requests/s |\n|---|--:|--:|--:|--:|--:|\n",
		100*busy, grouped(demand), grouped(10*demand))
	var most float64
	for _, r := range []struct{ what, benchmark string }{
		{"one Redis, 1 rule", "Capacity/redis/rules=1"},
		{"one Redis, 3 rules", "Capacity/redis/rules=3"},
		{"one Redis, 3 rules, not joined", "Script/take"},
		{"a cluster, 1 rule", "Capacity/cluster/rules=1"},
		{"a cluster, 3 rules", "Capacity/cluster/rules=3"},
	} {
		cpu, ok := m.median(r.benchmark, "redis-cpu-µs/op")
		if !ok {
			continue
		}
		most = cpu
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", r.what, short(cpu), grouped(1e6/cpu), grouped(busy*1e6/cpu),
			servers(demand, cpu), servers(10*demand, cpu))
	}
	if most == 0 {
		return b.String()
	}
	fmt.Fprintf(&b, "\n| masters in a cluster | requests/s with 3 rules, each core %.0f %% busy |\n|--:|--:|\n", 100*busy)
	for _, n := range []float64{3, 6, 12, 24, 48, 96} {
		fmt.Fprintf(&b, "| %.0f | %s |\n", n, grouped(n*busy*1e6/most))
	}
	return b.String()
}

func servers(rate, cpu float64) string { return grouped(math.Ceil(rate * cpu / (busy * 1e6))) }

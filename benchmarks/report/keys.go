package main

import (
	"fmt"
	"strings"
)

const busy = 0.6 // of a core: what is planned with, so that there is room for bursts

func keysRows(m measured) string {
	return strings.Join([]string{machine(m), m.keyTable(), m.latencyTable(), m.loads()}, "\n")
}

func (m measured) keyTable() string {
	var b strings.Builder
	fmt.Fprint(&b, "| where, algorithm | keys | bytes per key | GB for 10 million | Redis CPU to make a key, µs |\n|---|--:|--:|--:|--:|\n")
	for _, name := range m.benchmed {
		key, ok := between(name, "Keys/", "/size")
		if !ok {
			continue
		}
		bytes, _ := m.median(name, "bytes/key")
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", where(key), m.cell(name, "keys"), short(bytes),
			short(bytes*10e6/1e9), m.cell(name, "redis-cpu-µs/key"))
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

// loads says what servers carry, if a core is busy for its planned part.
func (m measured) loads() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| store, rules | Redis CPU of a request, µs | requests/s at 100 %% of a core | requests/s at %.0f %% |\n|---|--:|--:|--:|\n", 100*busy)
	for _, r := range []struct{ what, benchmark string }{
		{"one Redis, 1 rule", "Capacity/redis/rules=1"},
		{"one Redis, 3 rules", "Capacity/redis/rules=3"},
		{"one Redis, 3 rules, not joined", "Script/take"},
		{"a cluster, 1 rule", "Capacity/cluster/rules=1"},
		{"a cluster, 3 rules", "Capacity/cluster/rules=3"},
	} {
		if cpu, ok := m.median(r.benchmark, "redis-cpu-µs/op"); ok {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.what, short(cpu), grouped(1e6/cpu), grouped(busy*1e6/cpu))
		}
	}
	return b.String()
}

// carries is what somebody who plans asks: what one Redis carries and a key takes.
func carries(m measured) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| requests/s at %.0f %% of a core | 1 rule | 3 rules |\n|---|--:|--:|\n", 100*busy)
	for _, r := range []struct {
		what, benchmark string
		servers         float64
	}{{"one Redis", "redis", 1}, {"a cluster with 3 masters", "cluster", 3}} {
		fmt.Fprintf(&b, "| %s |", r.what)
		for _, rules := range []string{"1", "3"} {
			cpu, ok := m.median("Capacity/"+r.benchmark+"/rules="+rules, "redis-cpu-µs/op")
			if !ok {
				fmt.Fprint(&b, " – |")
				continue
			}
			fmt.Fprintf(&b, " %s |", grouped(r.servers*busy*1e6/cpu))
		}
		fmt.Fprintln(&b)
	}
	fmt.Fprintf(&b, "\nA key takes %s bytes of Redis' memory, or %s of a process's.\n",
		m.cell("Keys/token_bucket/size", "bytes/key"), m.cell("Keys/memory/token_bucket/size", "bytes/key"))
	return b.String()
}

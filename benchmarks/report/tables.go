package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A scene is what several limiters are asked for.
type scene struct {
	title string
	begin string // of the benchmarks' names
	ours  string // the last part of ours
	peers []string
	drawn bool // in docs/performance.svg
}

var (
	overRedis = []string{"redis_rate", "rueidis", "throttled", "ulule"}
	inMemory  = []string{"httprate", "throttled", "ulule"}
	allPeers  = []string{"redis_rate", "rueidis", "throttled", "ulule", "httprate"}
	callers   = []int{1, 16, 128, 1024}
)

var scenes = []scene{
	{"admitted, three layers", "Redis/", "handler", overRedis, true},
	{"denied, the whole handler", "Flood/handler/", "handler", overRedis, true},
	{"denied, the decision alone", "Flood/decision/", "take", overRedis, false},
	{"one hot key, admitted", "Hot/", "handler", overRedis, false},
	{"one hot key, with sync", "Hot/", "sync", overRedis, false},
	{"in memory, admitted", "Memory/admitted/", "handler", inMemory, true},
	{"in memory, denied", "Memory/denied/", "handler", inMemory, true},
}

func (s scene) benchmark(name string, callers int) string {
	return fmt.Sprintf("%s%s/callers=%d", s.begin, name, callers)
}

// rate is how many requests a limiter answers in a second.
func (m measured) rate(benchmark string) (float64, bool) {
	ns, ok := m.median(benchmark, "ns/op")
	return 1e9 / ns, ok && ns > 0
}

// times is how many times as fast the first is; 0 if that was not measured.
func (m measured) times(ours, theirs string) float64 {
	ratios := m.ratios(metric{theirs, "ns/op"}, metric{ours, "ns/op"})
	if len(ratios) == 0 {
		return 0
	}
	mid, _ := middle(ratios)
	return mid
}

func peersRows(m measured) string {
	return machine(m) + "\n" + compared(m) + "\n" + beside(m) + "\n" + details(m)
}

// costs is what somebody who chooses a limiter asks: ours in memory and over Redis.
func costs(m measured) string {
	memory, redis := scene{begin: "Memory/", ours: "admitted/handler"}, scene{begin: "Redis/", ours: "handler"}
	denied := [2]scene{{begin: "Memory/", ours: "denied/handler"}, {begin: "Flood/handler/", ours: "handler"}}
	hot, sync := scene{begin: "Hot/", ours: "handler"}, scene{begin: "Hot/", ours: "sync"}
	rate := func(benchmark, _ string) string {
		v, ok := m.rate(benchmark)
		if !ok {
			return "–"
		}
		return grouped(v)
	}
	none := scene{begin: "none"}
	var b strings.Builder
	for _, text := range m.machine["machine"] {
		fmt.Fprintf(&b, "Measured on %s; Redis runs on the same machine.\n\n", text)
	}
	fmt.Fprint(&b, "| | in memory | over Redis |\n|---|--:|--:|\n")
	for _, row := range []struct {
		what    string
		of      [2]scene
		callers int
		cell    func(benchmark, unit string) string
		unit    string
	}{
		{"a request, alone: median", [2]scene{memory, redis}, 1, m.duration, "p50-ns"},
		{"a request, alone: 99th percentile", [2]scene{memory, redis}, 1, m.duration, "p99-ns"},
		{"requests/s, 128 callers", [2]scene{memory, redis}, charted, rate, ""},
		{"denied requests/s, 128 callers", denied, charted, rate, ""},
		{"requests/s of one client, 128 callers", [2]scene{none, hot}, charted, rate, ""},
		{"the same with sync", [2]scene{none, sync}, charted, rate, ""},
		{"round trips to Redis of a request, 128 callers", [2]scene{none, redis}, charted, m.cell, "reads/op"},
		{"Redis CPU of a request, 128 callers, µs", [2]scene{none, redis}, charted, m.cell, "redis-cpu-µs/op"},
	} {
		fmt.Fprintf(&b, "| %s |", row.what)
		for _, s := range row.of {
			fmt.Fprintf(&b, " %s |", cmp.Or(row.cell(s.benchmark(s.ours, row.callers), row.unit), "–"))
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}

// machine says where all that was measured.
func machine(m measured) string {
	var b strings.Builder
	for _, name := range []string{"machine", "versions"} {
		for _, text := range m.machine[name] {
			fmt.Fprintf(&b, "%s%s: %s.\n", strings.ToUpper(name[:1]), name[1:], text)
		}
	}
	if loads := m.machine["load"]; len(loads) > 0 {
		busiest := slices.MaxFunc(loads, func(a, b string) int { return cmp.Compare(number(a), number(b)) })
		fmt.Fprintf(&b, "Load average of the machine before a round: at most %s.\n", busiest)
	}
	return b.String()
}

func number(text string) float64 {
	v, _ := strconv.ParseFloat(text, 64) // what is none counts as idle
	return v
}

// beside has the limiters beside each other.
func beside(m measured) string {
	var b strings.Builder
	fmt.Fprint(&b, "Requests a second. In brackets: our rate divided by the peer's ([median of the rounds](README.md#what-is-measured)).\n\n")
	fmt.Fprintf(&b, "| scene | callers | ours | %s |\n|---|--:|--:|%s\n", strings.Join(allPeers, " | "), strings.Repeat("--:|", len(allPeers)))
	for _, s := range scenes {
		title := s.title
		for _, n := range callers {
			ours := s.benchmark(s.ours, n)
			rate, ok := m.rate(ours)
			if !ok {
				continue
			}
			fmt.Fprintf(&b, "| %s | %d | **%s** |", title, n, grouped(rate))
			title = ""
			for _, name := range allPeers {
				theirs := s.benchmark(name, n)
				if rate, ok := m.rate(theirs); ok && slices.Contains(s.peers, name) {
					fmt.Fprintf(&b, " %s (%s ×%s) |", grouped(rate), short(m.times(ours, theirs)), m.failures(theirs))
				} else {
					fmt.Fprint(&b, " |")
				}
			}
			fmt.Fprintln(&b)
		}
	}
	return b.String()
}

// failures says how many requests were answered with an error.
func (m measured) failures(benchmark string) string {
	if failed, ok := m.median(benchmark, "failed-%"); ok && failed > 0 {
		return fmt.Sprintf(", %s %% failed", short(failed))
	}
	return ""
}

// details are what else was measured of each.
func details(m measured) string {
	var b strings.Builder
	fmt.Fprint(&b, "| scene | limiter | callers | p50 | p99 | Redis CPU, µs | round trips | scripts | allocations | decided by |\n"+
		"|---|---|--:|--:|--:|--:|--:|--:|--:|---|\n")
	for _, s := range scenes {
		title, names := s.title, append([]string{s.ours}, s.peers...)
		if s.ours == "sync" {
			names = names[:1] // the peers are in the scene before
		}
		names = append(names, "get", "baseline", "default_client", "writing_429")
		for _, name := range names {
			for _, n := range callers {
				of := s.benchmark(name, n)
				if _, ok := m.rate(of); !ok {
					continue
				}
				who := name
				if name == s.ours {
					who = "**ours**"
				}
				fmt.Fprintf(&b, "| %s | %s | %d | %s | %s | %s | %s | %s | %s | %s |\n", title, who, n,
					m.duration(of, "p50-ns"), m.duration(of, "p99-ns"), m.cell(of, "redis-cpu-µs/op"),
					m.cell(of, "reads/op"), m.cell(of, "scripts/op"), m.cell(of, "allocs/op"), m.decidedBy(of))
				title = ""
			}
		}
	}
	fmt.Fprint(&b, "\n| MEMORY USAGE of a key in Redis | bytes |\n|---|--:|\n")
	for _, name := range m.benchmed {
		if key, ok := strings.CutPrefix(name, "Key/"); ok {
			fmt.Fprintf(&b, "| %s | %s |\n", key, m.cell(name, "bytes/key"))
		}
	}
	return b.String()
}

func (m measured) cell(benchmark, unit string) string {
	if v, ok := m.median(benchmark, unit); ok {
		return short(v)
	}
	return ""
}

func (m measured) duration(benchmark, unit string) string {
	ns, ok := m.median(benchmark, unit)
	if !ok {
		return ""
	}
	d := time.Duration(ns)
	for _, unit := range []time.Duration{time.Microsecond, 10 * time.Nanosecond} {
		if d >= 100*unit {
			return d.Round(unit).String()
		}
	}
	return d.String()
}

// decidedBy is what part of the checks each source decided.
func (m measured) decidedBy(benchmark string) string {
	var parts []string
	for _, source := range []string{"redis", "deny_cache", "sync"} {
		if v, ok := m.median(benchmark, source+"-%"); ok && v > 0 {
			parts = append(parts, fmt.Sprintf("%s %s %%", source, short(v)))
		}
	}
	return strings.Join(parts, ", ")
}

// everything is the median of all that was measured.
func everything(m measured) string {
	var b strings.Builder
	fmt.Fprint(&b, "\n| benchmark | unit | median | spread | runs |\n|---|---|--:|--:|--:|\n")
	all := make([]metric, 0, len(m.samples))
	for name := range m.samples {
		all = append(all, name)
	}
	slices.SortFunc(all, func(a, b metric) int {
		return strings.Compare(a.benchmark+" "+a.unit, b.benchmark+" "+b.unit)
	})
	for _, name := range all {
		mid, spread := middle(m.samples[name])
		fmt.Fprintf(&b, "| %s | %s | %s | ±%.0f %% | %d |\n", name.benchmark, name.unit, short(mid), spread, len(m.samples[name]))
	}
	return b.String()
}

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A figure is the median of a metric, or how it compares with another one.
type figure struct {
	what string
	unit string
	of   string
	how  relation
	over []string // the best of them counts: that with the least median
}

type relation int

const (
	alone  relation = iota // the median
	worst                  // the largest of all rounds: what must never happen
	ratio                  // of / over
	times                  // over / of, as in "so many times as fast"
	excess                 // of − over
)

var figures = []figure{
	{"round trips of a request with 3 rules", "reads/op", "Redis/handler/callers=1", alone, nil},
	{"1 caller, 3 rules: p50 / redis_rate's, called three times", "p50-ns", "Alone/handler", ratio, []string{"Alone/redis_rate"}},
	{"1 caller, 3 rules: p50 / p50 of one EVALSHA of the [baseline script](README.md#the-benchmarks)", "p50-ns", "Alone/handler", ratio, []string{"Alone/baseline"}},
	{"1 caller, 3 rules: p50 of the Redis command that the handler sends / p50 of that EVALSHA", "p50-ns", "Alone/script", ratio, []string{"Alone/baseline"}},
	{"16 callers, 3 rules: requests/s / redis_rate's", "ns/op", "Redis/handler/callers=16", times, []string{"Redis/redis_rate/callers=16"}},
	{"128 callers, 3 rules: requests/s / redis_rate's", "ns/op", "Redis/handler/callers=128", times, []string{"Redis/redis_rate/callers=128"}},
	{"128 callers, 3 rules, ours on a default Redis client: requests/s / redis_rate's", "ns/op", "Redis/default_client/callers=128", times, []string{"Redis/redis_rate/callers=128"}},
	{"16 callers, 3 rules: requests/s / rueidis'", "ns/op", "Redis/handler/callers=16", times, []string{"Redis/rueidis/callers=16"}},
	{"128 callers, 3 rules: requests/s / rueidis'", "ns/op", "Redis/handler/callers=128", times, []string{"Redis/rueidis/callers=128"}},
	{"16 callers, 3 rules: requests/s / ulule's", "ns/op", "Redis/handler/callers=16", times, []string{"Redis/ulule/callers=16"}},
	{"128 callers, 3 rules: requests/s / ulule's", "ns/op", "Redis/handler/callers=128", times, []string{"Redis/ulule/callers=128"}},
	{"128 callers, 3 rules: Redis CPU / redis_rate's", "redis-cpu-µs/op", "Redis/handler/callers=128", ratio, []string{"Redis/redis_rate/callers=128"}},
	{"128 callers, 3 rules: Redis CPU / rueidis'", "redis-cpu-µs/op", "Redis/handler/callers=128", ratio, []string{"Redis/rueidis/callers=128"}},
	{"pipelined: Redis CPU of a decision / of the baseline script", "redis-cpu-µs/op", "Script/take", ratio, []string{"Script/baseline"}},
	{"pipelined: Redis CPU of a decision / of redis_rate's", "redis-cpu-µs/op", "Script/take", ratio, []string{"Script/redis_rate"}},
	{"denied, 128 callers: the whole handler's requests/s / the best peer's", "ns/op", "Flood/handler/handler/callers=128", times, floodPeers("handler")},
	{"denied, 128 callers: requests/s of the whole handler / of a handler that only writes the same 429", "ns/op", "Flood/handler/handler/callers=128", times, []string{"Flood/handler/writing_429/callers=128"}},
	{"a flood over HTTP, 128 connections: requests/s of the limited server / of a server that only writes the same 429", "ns/op", "FloodHTTP/limited", times, []string{"FloodHTTP/writing_429"}},
	{"denied, 128 callers: decisions/s / the best peer's", "ns/op", "Flood/decision/take/callers=128", times, floodPeers("decision")},
	{"denied, 128 callers: commands that Redis executes per request", "scripts/op", "Flood/handler/handler/callers=128", alone, nil},
	{"denied: allocations of the whole handler", "allocs/op", "Flood/handler/handler/callers=1", alone, nil},
	{"a hot key, 128 callers: requests/s with sync / without", "ns/op", "Hot/sync/callers=128", times, []string{"Hot/handler/callers=128"}},
	{"a hot key with sync, twice as many requests as the limit: admitted / limit", "admitted/limit", "Hot/sync_total", worst, nil},
	{"a client with 1000 connections, limit 200 a minute: admitted", "admitted", "Crowd", worst, nil},
	{"during these 1000 connections: other clients' denied login requests", "refused-logins", "Crowd", worst, nil},
	{"during these 1000 connections: circuits that opened", "circuits", "Crowd", worst, nil},
	{"in memory, 3 rules: the handler's time / httprate's", "ns/op", "Memory/admitted/handler/callers=1", ratio, []string{"Memory/admitted/httprate/callers=1"}},
	{"in memory, 3 rules: allocations of the whole handler", "allocs/op", "Memory/admitted/handler/callers=1", alone, nil},
	{"in memory, 3 rules, denied: the handler's time / httprate's", "ns/op", "Memory/denied/handler/callers=1", ratio, []string{"Memory/denied/httprate/callers=1"}},
	{"in memory, 1 rule: the handler's time / httprate's", "ns/op", "Memory/one_admitted/handler/callers=1", ratio, []string{"Memory/one_admitted/httprate/callers=1"}},
	{"in memory, 1 rule, denied: the handler's time / httprate's", "ns/op", "Memory/one_denied/handler/callers=1", ratio, []string{"Memory/one_denied/httprate/callers=1"}},
	{"a request that matches no rule: ns", "ns/op", "NoRule/handler", alone, nil},
	{"HTTP at half of the peak rate: p50 that the middleware adds, µs", "p50-µs", "OpenLoop/half/limited", excess, []string{"OpenLoop/half/bare"}},
	{"HTTP at half of the peak rate: p99 that the middleware adds, µs", "p99-µs", "OpenLoop/half/limited", excess, []string{"OpenLoop/half/bare"}},
	{"HTTP at half of the peak rate: p99 that one GET of Redis adds instead, µs", "p99-µs", "OpenLoop/half/get", excess, []string{"OpenLoop/half/bare"}},
	{"HTTP at a tenth of the peak rate: p50 that the middleware adds, µs", "p50-µs", "OpenLoop/tenth/limited", excess, []string{"OpenLoop/tenth/bare"}},
	{"HTTP at a tenth of the peak rate: p99 that the middleware adds, µs", "p99-µs", "OpenLoop/tenth/limited", excess, []string{"OpenLoop/tenth/bare"}},
	{"HTTP at a tenth of the peak rate: p99 that one GET of Redis adds instead, µs", "p99-µs", "OpenLoop/tenth/get", excess, []string{"OpenLoop/tenth/bare"}},
	{"bytes of a token_bucket key / the leanest peer's (GCRA)", "bytes/key", "Key/token_bucket", ratio, []string{"Key/redis_rate", "Key/throttled"}},
	{"bytes of a fixed_window key / ulule's", "bytes/key", "Key/fixed_window", ratio, []string{"Key/ulule"}},
}

func floodPeers(what string) (all []string) {
	for _, name := range overRedis {
		all = append(all, "Flood/"+what+"/"+name+"/callers=128")
	}
	return all
}

// values are a figure's, round by round; none where something was not measured.
func (f figure) values(m measured) []float64 {
	of := metric{f.of, f.unit}
	if f.how == alone || f.how == worst {
		return m.samples[of]
	}
	best, least := metric{}, 0.0
	for _, name := range f.over {
		if mid, ok := m.median(name, f.unit); ok && (best == metric{} || mid < least) {
			best, least = metric{name, f.unit}, mid
		}
	}
	switch f.how {
	case times:
		return m.ratios(best, of)
	case excess:
		var all []float64
		for i := range min(len(m.samples[of]), len(m.samples[best])) {
			all = append(all, m.samples[of][i]-m.samples[best][i])
		}
		return all
	}
	return m.ratios(of, best)
}

func compared(m measured) string {
	var b strings.Builder
	fmt.Fprint(&b, "| figure | measured | from – to |\n|---|--:|--:|\n")
	for _, f := range figures {
		values := f.values(m)
		if len(values) == 0 {
			continue
		}
		value, _ := middle(values)
		if f.how == worst {
			value = slices.Max(values)
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", f.what, short(value), fromTo(values))
	}
	return b.String()
}

func fromTo(values []float64) string {
	least, most := values[0], values[0]
	for _, v := range values {
		least, most = min(least, v), max(most, v)
	}
	if short(least) == short(most) {
		return ""
	}
	return short(least) + " – " + short(most)
}

// short keeps three digits or, of large numbers, the whole part.
func short(v float64) string {
	if v >= 1000 || v <= -1000 {
		return grouped(v)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// grouped is a whole number with its thousands apart.
func grouped(v float64) string {
	digits := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

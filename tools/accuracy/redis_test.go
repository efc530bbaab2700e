package accuracy

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/redistest"
)

var everyAlgorithm = []algorithms.Algorithm{
	algorithms.FixedWindow, algorithms.SlidingWindow, algorithms.SlidingLog,
	algorithms.TokenBucket, algorithms.LeakyBucket, algorithms.GCRA,
}

// clients is how many the document reckons with.
const clients = 10_000

// patience is a budget for tests on a busy machine.
const patience = 10 * time.Second

// TestRedisBytes measures what a key takes. What the document shows has to be
// that, if it was measured on such a server.
func TestRedisBytes(t *testing.T) {
	redisServer, clock := redistest.StartWithClock(t)
	client := redisServer.Client(t)
	clock.Set(clock.Now().Truncate(period))
	rates := []int64{100, 1000, 10_000}
	rows := table{{""}}
	bytes := make(figures)
	for _, rate := range rates {
		rows[0] = append(rows[0], thousands(int(rate))+" a minute")
	}
	add := func(title, name string, measure func(rate int64) int64) {
		row := []string{title}
		for _, rate := range rates {
			n := int(measure(rate))
			row = append(row, thousands(n))
			bytes[fmt.Sprintf("redis/bytes/%s/%d", name, rate)] = thousands(n)
			bytes[fmt.Sprintf("redis/bytes/%s/%d/clients", name, rate)] = megabytes(n * clients)
		}
		rows = append(rows, row)
	}
	for _, name := range everyAlgorithm {
		add("`"+name.String()+"`", name.String(), func(rate int64) int64 { return limitBytes(t, client, clock, name, rate) })
	}
	add("for comparison: a sorted set of times, about", "sorted_set", func(rate int64) int64 {
		return rounded(sortedSetBytes(t, client, clock.Now(), rate))
	})
	bytes["redis/bytes"] = rows.String()
	month := algorithms.Check{Rule: "per-ip", Key: "203.0.113.7", Limit: algorithms.PerMonth(100, "UTC")}
	if got, want := checkBytes(t, client, month), limitBytes(t, client, clock, algorithms.SlidingWindow, 100); got > want+16 || got < want-16 {
		t.Errorf("a calendar_window takes %d bytes, which is not about the %d of a sliding_window", got, want)
	}
	server := figures{"redis/server": about(t, client)}
	t.Logf("%s\n%s", server["redis/server"], rows)
	switch text := read(t, document); {
	case *update:
		write(t, document, bytes.fill(server.fill(text)))
	case len(server.stale(text)) > 0:
		t.Log("not compared: the document's are of another server")
	default:
		if stale := bytes.stale(text); len(stale) > 0 {
			t.Errorf("%s: stale: %s; make accuracy writes what is measured", document, strings.Join(stale, ", "))
		}
	}
}

func megabytes(n int) string {
	if n < 1e9 {
		return fmt.Sprintf("%.3g MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.2g GB", float64(n)/1e9)
}

// rounded has two digits: the levels of a sorted set's entries are random.
func rounded(n int64) int64 {
	unit := int64(1)
	for n/unit >= 100 {
		unit *= 10
	}
	return (n + unit/2) / unit * unit
}

// about says which server it is.
func about(t *testing.T, client *redis.Client) string {
	t.Helper()
	info := client.Info(context.Background(), "server", "memory").Val()
	return fmt.Sprintf("Redis %s, %s, %s/%s", field(t, info, "redis_version:"), field(t, info, "mem_allocator:"), runtime.GOOS, runtime.GOARCH)
}

func field(t *testing.T, info, name string) string {
	t.Helper()
	_, rest, found := strings.Cut(info, name)
	if !found {
		t.Fatalf("INFO has no %s", name)
	}
	value, _, _ := strings.Cut(rest, "\r")
	return value
}

// checkBytes is what the key of a check takes, by a limiter with an empty Redis.
func checkBytes(t *testing.T, client *redis.Client, check algorithms.Check) int64 {
	t.Helper()
	client.FlushAll(context.Background())
	take(t, &algorithms.Redis{Client: client, Namespace: "shop", Budget: patience}, check, true)
	return usage(t, client, client.Keys(context.Background(), "*").Val()[0])
}

// limitBytes is what a key takes whose limit was used up in one period and is
// in use in the next.
func limitBytes(t *testing.T, client *redis.Client, clock *redistest.Clock, name algorithms.Algorithm, rate int64) int64 {
	t.Helper()
	ctx := context.Background()
	if err := client.FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	limiter := algorithms.Redis{Client: client, Namespace: "shop", Budget: patience}
	check := algorithms.Check{Rule: "per-ip", Key: "203.0.113.7", Limit: algorithms.Limit{Rate: rate, Period: period, Algorithm: name}}
	if name == algorithms.LeakyBucket {
		check.Limit.Burst = rate
	}
	requests := int64(1)
	if name == algorithms.SlidingLog {
		requests = rate
	}
	check.Cost = rate / requests
	for range requests {
		take(t, &limiter, check, true)
		if name == algorithms.SlidingLog { // those of one moment would share an entry
			clock.Advance(period / 2 / time.Duration(requests))
		}
	}
	if name != algorithms.SlidingLog {
		clock.Advance(period)
		check.Cost = rate / 2
		clock.Advance(period / 2)
		take(t, &limiter, check, true)
	}
	keys := client.Keys(ctx, "*").Val()
	if len(keys) != 1 {
		t.Fatalf("%s: keys %q", name, keys)
	}
	return usage(t, client, keys[0])
}

func take(t *testing.T, limiter algorithms.Limiter, check algorithms.Check, want bool) {
	t.Helper()
	d, err := limiter.Take(context.Background(), check)
	if err != nil {
		t.Fatal(err)
	}
	if d.Allowed != want {
		t.Fatalf("%s: allowed %t, want %t", check.Limit, d.Allowed, want)
	}
}

func usage(t *testing.T, client *redis.Client, key string) int64 {
	t.Helper()
	bytes, err := client.MemoryUsage(context.Background(), key, 0).Result() // 0: every element
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// sortedSetBytes is what the log takes that is often written: a sorted set of
// the times, in microseconds, as scores and members.
func sortedSetBytes(t *testing.T, client *redis.Client, now time.Time, entries int64) int64 {
	t.Helper()
	ctx := context.Background()
	const key = "shop:{203.0.113.7}:per-ip:sl1:1m"
	if err := client.FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	pipe := client.Pipeline()
	for i := range entries {
		at := now.UnixMicro() + i
		pipe.ZAdd(ctx, key, redis.Z{Score: float64(at), Member: strconv.FormatInt(at, 10)})
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	return usage(t, client, key)
}

// TestRedisCPU measures how long the script runs for a decision on one check,
// and writes it into the document. It is never compared: machines differ.
func TestRedisCPU(t *testing.T) {
	if !*update {
		t.Skip("only with -update")
	}
	client := redistest.Start(t).Client(t)
	least := map[algorithms.Algorithm][2]float64{}
	for range 30 { // in turns, since a machine may be slow for seconds
		for _, name := range everyAlgorithm {
			limit := algorithms.Limit{Rate: rate, Period: 24 * time.Hour, Algorithm: name}
			if name == algorithms.LeakyBucket {
				limit.Burst = rate
			}
			admitted, denied := scriptTimes(t, client, limit)
			if before, ok := least[name]; ok {
				admitted, denied = min(admitted, before[0]), min(denied, before[1])
			}
			least[name] = [2]float64{admitted, denied}
		}
	}
	rows := table{{"µs per decision", "admitted", "denied"}}
	for _, name := range everyAlgorithm {
		rows = append(rows, []string{"`" + name.String() + "`", fmt.Sprintf("%.1f", least[name][0]), fmt.Sprintf("%.1f", least[name][1])})
	}
	figures := figures{"redis/cpu": rows.String()}
	t.Log("\n" + figures["redis/cpu"])
	write(t, document, figures.fill(read(t, document)))
}

// scriptTimes uses up the limits of clients with requests one after the other,
// and then as many are denied: the mean times of both, in µs.
func scriptTimes(t *testing.T, client *redis.Client, limit algorithms.Limit) (admitted, denied float64) {
	t.Helper()
	const clients = 10
	if err := client.FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	limiter := algorithms.Redis{Client: client, Namespace: "shop", Budget: patience}
	all := func(want bool) float64 {
		if err := client.ConfigResetStat(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
		for range rate {
			for i := range clients {
				take(t, &limiter, algorithms.Check{Rule: "per-ip", Key: "203.0.113." + strconv.Itoa(i), Limit: limit}, want)
			}
		}
		return perCall(t, client)
	}
	return all(true), all(false)
}

// perCall is the mean time of an EVALSHA since the statistics were reset.
func perCall(t *testing.T, client *redis.Client) float64 {
	t.Helper()
	info := client.Info(context.Background(), "commandstats").Val()
	stat := field(t, info, "cmdstat_evalsha:")
	_, rest, _ := strings.Cut(stat, "usec_per_call=")
	number, _, _ := strings.Cut(rest, ",")
	us, err := strconv.ParseFloat(number, 64)
	if err != nil {
		t.Fatalf("%s: %v", stat, err)
	}
	return us
}

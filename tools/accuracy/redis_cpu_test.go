package accuracy

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/redistest"
)

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
		rows = append(rows, []string{"`" + string(name) + "`", fmt.Sprintf("%.1f", least[name][0]), fmt.Sprintf("%.1f", least[name][1])})
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

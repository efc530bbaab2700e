package benchmarks

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
)

// baseline is the least that three limits could do in a script: read the clock
// and the three states, and write them back.
const baseline = `
redis.call('TIME')
redis.call('GET', KEYS[1])
redis.call('GET', KEYS[2])
redis.call('GET', KEYS[3])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
redis.call('SET', KEYS[3], ARGV[1], 'PX', ARGV[2])
return 1`

// BenchmarkScript is what a request costs the server alone: its commands are
// sent in pipelines of 100 requests on one connection, so that reading and
// writing to sockets hardly counts. They take turns.
func BenchmarkScript(b *testing.B) {
	s := start(b)
	client := s.theirs
	ours := record(b, client, clients, func(c *redis.Client) subject {
		return taking(&algorithms.Redis{Client: c, Namespace: "bench", Budget: patience})
	})
	theirs := record(b, client, clients, func(c *redis.Client) subject { return deciding(redisRate(c, layered(perIP)), true) })
	all := []struct {
		name     string
		requests [][][]any
		spent    usage
	}{
		{name: "empty", requests: withScript(b, client, ours, "return 1", "empty")},
		{name: "baseline", requests: withScript(b, client, ours, baseline, "basic")},
		{name: "take", requests: ours},
		{name: "redis_rate", requests: theirs},
	}
	for _, s := range all {
		replay(b, client, s.requests, clients) // makes the keys
	}
	const turn = 2000
	turns := takeTurns(runLength(), len(all), func(n, i int) {
		before := usageOf(b, client)
		replay(b, client, all[i].requests[n%(clients/turn)*turn:][:turn], turn)
		all[i].spent.add(usageOf(b, client).since(before))
	})
	for _, s := range all {
		b.Run(s.name, func(b *testing.B) {
			b.ReportMetric(0, "ns/op")
			s.spent.report(b, turns*turn)
		})
	}
}

// record returns the commands, with their arguments, that a subject sends for a
// request of each of so many clients.
func record(tb testing.TB, server *redis.Client, clients int, s func(*redis.Client) subject) [][][]any {
	tb.Helper()
	var sent recorder
	client := redis.NewClient(server.Options())
	tb.Cleanup(func() { _ = client.Close() })
	do := s(client)()
	if err := do(0); err != nil { // what follows needs no text of a script
		tb.Fatal(err)
	}
	client.AddHook(&sent)
	all := make([][][]any, clients)
	for i := range all {
		sent.commands = nil
		if err := do(i); err != nil {
			tb.Fatal(err)
		}
		all[i] = sent.commands
	}
	return all
}

// withScript replaces the script of recorded requests, and the service in their
// keys by one of equal length.
func withScript(tb testing.TB, client *redis.Client, requests [][][]any, script, namespace string) [][][]any {
	tb.Helper()
	sha, err := client.ScriptLoad(context.Background(), script).Result()
	if err != nil {
		tb.Fatal(err)
	}
	all := make([][][]any, len(requests))
	for i, commands := range requests {
		args := []any{"evalsha", sha, 3}
		for _, key := range commands[0][3:6] {
			_, rest, _ := strings.Cut(key.(string), ":")
			args = append(args, namespace+":"+rest)
		}
		all[i] = [][]any{append(args, "1795000000000000 12345 0", "120000")}
	}
	return all
}

// replay sends n requests.
func replay(tb testing.TB, client *redis.Client, requests [][][]any, n int) {
	tb.Helper()
	ctx := context.Background()
	for sent := 0; sent < n; {
		pipe := client.Pipeline()
		for range min(100, n-sent) {
			for _, args := range requests[sent*stride%len(requests)] {
				pipe.Do(ctx, args...)
			}
			sent++
		}
		if _, err := pipe.Exec(ctx); err != nil {
			tb.Fatal(err)
		}
	}
}

// A recorder is a hook that keeps what is sent.
type recorder struct{ commands [][]any }

func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		beats := slices.ContainsFunc(cmd.Args(), func(arg any) bool { key, _ := arg.(string); return strings.HasSuffix(key, ":instances") })
		if strings.HasPrefix(cmd.Name(), "eval") && !beats { // others are of no request, such as HELLO and INFO, and come at any time
			r.commands = append(r.commands, cmd.Args())
		}
		return next(ctx, cmd)
	}
}

func (r *recorder) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

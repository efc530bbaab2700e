package transport_test

import (
	"context"
	"fmt"
	"hash/crc32"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/internal/transport"
)

var (
	together = transport.NewScript("together", nil)
	alone    = transport.NewScript("alone", func(string) ([]int64, error) { return nil, nil }).JoinedBy(together)
)

// asking are calls that differ in their keys: one of its own, and one of all.
func asking(keys ...string) (calls []*transport.Call) {
	for _, key := range keys {
		calls = append(calls, &transport.Call{Script: alone, Keys: []any{key, "all"}, Args: []any{"asked"}, Joins: true})
	}
	return calls
}

// joining is a Redis whose server answers as together does, or with an error, and
// notes the commands by their keys.
type joining struct {
	*algorithms.Redis
	costly string // keys that begin so delay others
	err    error  // of together
	delay  time.Duration
	sent   []string
}

func newJoining(t *testing.T) *joining {
	j := &joining{costly: "costly"}
	j.Redis = served(t, true, func(_ context.Context, cmds []redis.Cmder) {
		time.Sleep(j.delay)
		for _, cmd := range cmds {
			var own, replies []string
			for pair := range slices.Chunk(keysOf(cmd), 2) {
				own = append(own, pair[0].(string))
				reply := "a\nb\nc"
				if strings.HasPrefix(own[len(own)-1], j.costly) {
					reply = "! 1!no state of a limit\n\n"
				}
				replies = append(replies, reply)
			}
			if j.sent = append(j.sent, strings.Join(own, "+")); cmd.Args()[1] != together.SHA() {
				continue
			}
			if j.err != nil {
				cmd.SetErr(j.err)
			}
			transport.SetReply(cmd, strings.Join(replies, "\n"))
		}
	})
	return j
}

// ask sends calls in one flush, and returns the commands that were sent for it and
// the errors.
func (j *joining) ask(keys ...string) (sent string, errs []error) {
	j.sent = nil
	t := transportOf(j.Redis)
	for _, r := range t.SendAll(t.Within(context.Background()), asking(keys...)) {
		errs = append(errs, r.Err)
	}
	return strings.Join(j.sent, " "), errs
}

// A call that fails for a value that is slow to read fails alone, and only calls with
// its key are sent by themselves: for a minute each time it comes back.
func TestAKeyThatDelaysOthersStaysApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJoining(t)
		for range 2 {
			sent, errs := j.ask("a", "costly", "b")
			if sent != "a+costly+b" || errs[0] != nil || errs[2] != nil || transport.ClassOf(errs[1]) != transport.ClassAnswer || !transport.Answered(errs[1]) {
				t.Fatalf("sent %q: %v", sent, errs)
			}
			for _, after := range []time.Duration{0, time.Minute - 1} {
				time.Sleep(after)
				if sent, errs := j.ask("a", "costly", "b"); sent != "a+b costly" || slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
					t.Fatalf("%s later: sent %q: %v", after, sent, errs)
				}
			}
			time.Sleep(time.Nanosecond)
		}

		var many []string
		for i := range transport.MaxApart + 100 {
			many = append(many, fmt.Sprint("costly", i))
		}
		j.ask(many...)
		sent, _ := j.ask(many...)
		if n := strings.Count(sent, " "); n != transport.MaxApart {
			t.Errorf("%d are apart, want %d", n, transport.MaxApart)
		}
	})
}

// Calls that a server did not run together are sent alone if it certainly ran none.
// After an answer that is about what they have together, they are sent alone for a
// minute.
func TestWhatWasNotRunTogetherIsSentAlone(t *testing.T) {
	for text, want := range map[answer]struct{ again, minute bool }{
		"ALONE NOPERM this user has no permissions to run the 'mget' command": {true, true},
		"NOPERM No permissions to access a key":                               {true, true},
		"CROSSSLOT Keys in request don't hash to the same slot":               {true, true},
		"ERR ACL failure in script: User limiter has no permissions to run":   {false, true},
		"NOPERM ACL failure in script: User limiter has no permissions":       {false, true},
		"ERR 'EVALSHA' command keys must be in same slot":                     {false, true},
		"OOM command not allowed when used memory > 'maxmemory'.":             {false, false},
		"READONLY You can't write against a read only replica.":               {false, false},
		"MISCONF Redis is configured to save RDB snapshots":                   {false, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			j := newJoining(t)
			j.err = text
			sent, errs := j.ask("a", "b")
			if again := sent == "a+b a b"; again != want.again || !again && sent != "a+b" || (errs[0] == nil) != again || (errs[1] == nil) != again {
				t.Errorf("%s: sent %q: %v", text, sent, errs)
			}
			j.err = nil
			time.Sleep(time.Minute - 1)
			if sent, _ := j.ask("a", "b"); (sent == "a b") != want.minute {
				t.Errorf("%s: within a minute: sent %q", text, sent)
			}
			time.Sleep(time.Nanosecond)
			if sent, _ := j.ask("a", "b"); sent != "a+b" {
				t.Errorf("%s: after a minute: sent %q", text, sent)
			}
		})
	}
}

// If there is no time left to send them alone, they were certainly not executed.
func TestNoTimeToBeSentAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJoining(t)
		j.err, j.delay = answer("ALONE"), time.Minute
		sent, errs := j.ask("a", "b")
		for _, err := range errs {
			if sent != "a+b" || transport.ClassOf(err) != transport.ClassBusy || !transport.NotExecuted(err) {
				t.Errorf("sent %q: %v", sent, err)
			}
		}
	})
}

// A reply that is not as long as it should be decides nothing.
func TestAReplyForFewerCalls(t *testing.T) {
	r := served(t, true, func(_ context.Context, cmds []redis.Cmder) { transport.SetReply(cmds[0], "a\nb\nc\nd") })
	tr := transportOf(r)
	for i, resp := range tr.SendAll(tr.Within(t.Context()), asking("a", "b", "c")) {
		if (resp.Err == nil) != (i == 0) || i > 0 && transport.ClassOf(resp.Err) != transport.ClassAnswer {
			t.Errorf("%d: %v", i, resp.Err)
		}
	}
}

// A batch has so few keys that it blocks the server for less than a millisecond. Of
// decisions that are run by themselves it has half as many.
func TestABatchIsBoundedInKeys(t *testing.T) {
	for _, c := range []struct {
		algorithm algorithms.Algorithm
		checks    int
		keys      int // of the largest batch
	}{
		{algorithms.FixedWindow, 1, transport.MaxBatch},
		{algorithms.FixedWindow, 8, transport.MaxKeys},
		{algorithms.FixedWindow, 50, transport.MaxKeys + 22},
		{algorithms.FixedWindow, 500, 500},
		{algorithms.SlidingLog, 8, transport.MaxKeys / 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			largest := 0
			r := served(t, true, func(_ context.Context, cmds []redis.Cmder) {
				keys := 0
				for _, cmd := range cmds {
					keys += len(keysOf(cmd))
				}
				mu.Lock()
				largest = max(largest, keys)
				mu.Unlock()
				time.Sleep(time.Millisecond)
			})
			var all sync.WaitGroup
			for i := range transport.MaxPlaces + 2*transport.MaxBatch {
				all.Go(func() {
					checks := make([]algorithms.Check, c.checks)
					for j := range checks {
						checks[j] = algorithms.Check{Rule: fmt.Sprint(j), Key: fmt.Sprint(i), Limit: algorithms.Limit{Rate: 9, Period: time.Hour, Algorithm: c.algorithm}}
					}
					_, _ = r.Take(t.Context(), checks...)
				})
			}
			all.Wait()
			if largest != c.keys {
				t.Errorf("%d checks of %s: up to %d keys in a batch, want %d", c.checks, c.algorithm, largest, c.keys)
			}
		})
	}
}

// Behind a proxy that spreads keys over servers, Warm says what to set.
func TestWarmSaysThatConnectionsReachSeveralServers(t *testing.T) {
	addrs := []string{redistest.Start(t).Addr, redistest.Start(t).Addr}
	for _, servers := range []int{1, 2} {
		var n atomic.Int64
		client := redis.NewClient(&redis.Options{Addr: "proxy:1", MinIdleConns: 4, Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addrs[int(n.Add(1))%servers])
		}})
		defer client.Close()
		for _, sharded := range []bool{false, true} {
			err := storeOf(&algorithms.Redis{Client: client, Namespace: "test", Sharded: sharded}).Warm(t.Context())
			if want := servers > 1 && !sharded; (err != nil) != want || want && !strings.HasSuffix(err.Error(), "the client spreads keys over servers: set Redis.Sharded") {
				t.Errorf("%d servers, sharded %v: %v", servers, sharded, err)
			}
		}
	}
}

// A spreader sends each command to one of two servers, by its first key, or by the hash tag
// in it.
type spreader struct {
	*redis.Client
	other *redis.Client
	tags  bool
}

func (s spreader) Process(ctx context.Context, cmd redis.Cmder) error {
	if args := cmd.Args(); len(args) > 3 {
		key := fmt.Sprint(args[3])
		if _, tag, ok := strings.Cut(key, "{"); ok && s.tags {
			key, _, _ = strings.Cut(tag, "}")
		}
		if crc32.ChecksumIEEE([]byte(key))%2 == 1 {
			return s.other.Process(ctx, cmd)
		}
	}
	return s.Client.Process(ctx, cmd)
}

// A proxy that ignores hash tags counts the keys of a call where nobody looks for them again.
func TestWarmSaysThatAProxyIgnoresHashTags(t *testing.T) {
	one, other := redistest.Start(t).Client(t), redistest.Start(t).Client(t)
	for _, tags := range []bool{false, true} {
		r := &algorithms.Redis{Client: spreader{one, other, tags}, Namespace: "test", Sharded: true}
		if err := storeOf(r).Warm(t.Context()); (err == nil) != tags || err != nil && !strings.Contains(err.Error(), `set the proxy's hash tag to "{}"`) {
			t.Errorf("hash tags %v: %v", tags, err)
		}
	}
}

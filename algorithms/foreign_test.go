package algorithms

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// What somebody else keeps at a key is known to be that without being read. A string of
// 2 MB was read and parsed once, which opened the circuit.
func TestWhatIsNotOursIsNotRead(t *testing.T) {
	client := redistest.Start(t).Client(t)
	ctx := t.Context()
	r := &Redis{Client: client, Namespace: "test", Budget: roomy}
	const huge = 64 << 20
	eachAlgorithm(t, func(t *testing.T, l Limit) {
		check := Check{Rule: "r", Key: "k", Limit: l}
		if err := client.SetRange(ctx, keyOf("test", check), huge, "x").Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Take(ctx, check); transport.ClassOf(err) != transport.ClassAnswer {
			t.Error(err)
		}
		charged := Result{Check: check, Source: SourceRedis, Charged: 1, At: time.Now()}
		if _, err := r.Settle(ctx, Charge{Result: charged, Cost: 2}); transport.ClassOf(err) != transport.ClassAnswer {
			t.Error("settle:", err)
		}
		client.Del(ctx, keyOf("test", check))
	})
	// Whoever reads the string has it in memory a second time.
	var peak int64
	for line := range strings.Lines(client.Info(ctx, "memory").Val()) {
		if number, ok := strings.CutPrefix(line, "used_memory_peak:"); ok {
			peak, _ = strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		}
	}
	if peak < huge || peak > huge*3/2 {
		t.Errorf("the server had %d bytes at most, want what it stores, %d, and little more", peak, huge)
	}
}

// The longest state of each step is read, and nothing longer.
func TestTheLongestStatesAreRead(t *testing.T) {
	b := realBackend(t)
	client := b.limiter.(*Redis).Client.(*redis.Client)
	b.setTime(someTime)
	const start = "1794999960000000"
	for _, c := range []struct{ limit, longest string }{
		{"999999999999999/1m fixed_window", start + " 999999999999999"},
		{"94906265/1m", start + " 94906265 94906265"},
		{"999999999999999/1m burst 1", "4503599627370496 2708599627370 999999999999998"},
	} {
		l, err := ParseLimit(c.limit)
		if err != nil {
			t.Fatal(err)
		}
		check := Check{Rule: "r", Key: "k", Limit: l}
		for _, extra := range []string{"", "0"} {
			if err := client.Set(t.Context(), keyOf("test", check), c.longest+extra, time.Hour).Err(); err != nil {
				t.Fatal(err)
			}
			d, err := b.limiter.Take(t.Context(), check)
			if extra == "" && (err != nil || d.Allowed) || extra != "" && transport.ClassOf(err) != transport.ClassAnswer {
				t.Errorf("%s: %q: %+v, %v", l, c.longest+extra, d, err)
			}
		}
	}
}

// A window of whole seconds with few units is a number in Redis, and so are those
// that Settle has written as text, once they are charged. Other windows are text.
func TestWindowsAreKeptAsNumbers(t *testing.T) {
	b := realBackend(t)
	client := b.limiter.(*Redis).Client.(*redis.Client)
	// Valkey decides for itself how it keeps a number that a script has written.
	asNumbers := !strings.Contains(client.Info(t.Context(), "server").Val(), "server_name:valkey")
	take := func(t *testing.T, check Check, used int64, number bool) Result {
		t.Helper()
		d, err := b.limiter.Take(t.Context(), check)
		if err != nil || !d.Allowed || d.Results[0].Remaining != check.Limit.Rate-used {
			t.Fatalf("%+v, %v; want %d used", d, err, used)
		}
		key := keyOf("test", check)
		state, encoding := client.Get(t.Context(), key).Val(), client.ObjectEncoding(t.Context(), key).Val()
		if strings.Contains(state, " ") == number || asNumbers && (encoding == "int") != number {
			t.Fatalf("%d used: %q is %s", used, state, encoding)
		}
		return d.Results[0]
	}
	minute := someTime - someTime%time.Minute.Microseconds()
	for _, of := range []struct {
		algorithm Algorithm
		most      int64 // units in a number
	}{{FixedWindow, 999_999}, {SlidingWindow, 999}} {
		t.Run(string(of.algorithm), func(t *testing.T) {
			b.setTime(minute)
			check := Check{Rule: "r", Key: "k", Limit: Limit{Rate: 5_000_000, Period: time.Minute, Algorithm: of.algorithm}}
			used := int64(0)
			for _, to := range []int64{1, 2, 11, 101, of.most, of.most + 1, of.most + 2} {
				check.Cost, used = to-used, to
				take(t, check, used, used <= of.most)
			}

			for _, last := range []int64{of.most, of.most + 1} { // in the window before
				check.Key, check.Cost = fmt.Sprint("after ", last), last
				b.setTime(minute)
				take(t, check, last, last == of.most)
				b.setTime(minute + time.Minute.Microseconds())
				if of.algorithm == SlidingWindow {
					check.Cost = 1
					take(t, check, last+1, last == of.most)
				}
			}
			b.setTime(minute)

			check.Key, check.Cost = "settled", 50
			if _, err := b.limiter.Settle(t.Context(), Charge{Result: take(t, check, 50, true), Cost: 5}); err != nil {
				t.Fatal(err)
			}
			take(t, check, 55, true)

			check.Key, check.Limit.Period = "half", 1500*time.Millisecond
			for i, whole := range []bool{true, false, true} { // does the window begin with a second?
				b.setTime(minute + int64(i)*check.Limit.Period.Microseconds())
				used := int64(50)
				if i > 0 && of.algorithm == SlidingWindow {
					used = 100
				}
				take(t, check, used, whole)
			}
		})
	}
}

// A foreign value leaves its own check undecided. The others of the request are
// decided, all or nothing, as if it were not there.
func TestAForeignValueTakesNoOtherCheckAlong(t *testing.T) {
	values := map[string]func(c redis.UniversalClient, ctx context.Context, key string){
		"a word": func(c redis.UniversalClient, ctx context.Context, key string) { c.Set(ctx, key, "word", 0) },
		"a hash": func(c redis.UniversalClient, ctx context.Context, key string) { c.HSet(ctx, key, "f", "1") },
		"a list": func(c redis.UniversalClient, ctx context.Context, key string) { c.RPush(ctx, key, "a", "b") },
		"a phrase": func(c redis.UniversalClient, ctx context.Context, key string) {
			c.Set(ctx, key, "as long as many a state", 0)
		},
	}
	for name, b := range map[string]backend{"miniredis": miniBackend(t), "redis": realBackend(t), "cluster": clusterBackend(t)} {
		t.Run(name, func(t *testing.T) {
			client := b.limiter.(*Redis).Client.(redis.UniversalClient)
			eachAlgorithm(t, func(t *testing.T, l Limit) {
				foreign := Check{Rule: "foreign", Key: "k2", Limit: l}
				for what, write := range values {
					if name == "miniredis" && what == "a phrase" {
						continue // its Lua says otherwise what is no number
					}
					key := keyOf("test", foreign)
					t.Run(what, func(t *testing.T) {
						b.flush()
						b.setTime(someTime)
						write(client, t.Context(), key)
						value := client.Dump(t.Context(), key).Val()
						wide := Check{Rule: "wide", Key: "k1", Limit: Limit{Rate: 9, Period: time.Minute, Algorithm: TokenBucket}}
						tight := Check{Rule: "tight", Key: "k3", Limit: Limit{Rate: 2, Period: time.Minute}}
						for n := range int64(3) {
							foreign.Shadow = n == 1
							d, err := b.limiter.Take(t.Context(), wide, foreign, tight)
							if err != nil {
								t.Fatal(err)
							}
							charged := int64(1)
							if n == 2 {
								charged = 0
							}
							w, f, last := d.Results[0], d.Results[1], d.Results[2]
							if d.Allowed != foreign.Shadow || w.Err != nil || last.Err != nil || w.Charged != charged || last.Charged != charged || last.HasRoom != (charged == 1) {
								t.Errorf("%d: allowed %t\n%+v\n%+v", n, d.Allowed, w, last)
							}
							if transport.ClassOf(f.Err) != transport.ClassAnswer || f.HasRoom || f.Charged != 0 {
								t.Errorf("%d: %+v", n, f)
							}
							if !strings.Contains(f.Err.Error(), "test:{k2}:foreign:") {
								t.Errorf("%v does not say which key", f.Err)
							}
						}
						if d, err := b.limiter.Peek(t.Context(), wide, foreign); err != nil || d.Results[0].Remaining != 7 || transport.ClassOf(d.Results[1].Err) != transport.ClassAnswer {
							t.Errorf("%+v, %v", d, err)
						}
						foreign.Shadow = false
						if d, err := b.limiter.Take(t.Context(), foreign); transport.ClassOf(cmp.Or(err, errOf(d))) != transport.ClassAnswer {
							t.Errorf("alone: %+v, %v", d, err)
						}
						if client.Dump(t.Context(), key).Val() != value {
							t.Error("was written")
						}
					})
				}
			})
		})
	}
}

package algorithms

import (
	"strconv"
	"strings"
	"testing"
	"time"

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
	b := RealBackend(t)
	client := b.Client
	b.SetTime(someTime)
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
			d, err := b.Redis.Take(t.Context(), check)
			if extra == "" && (err != nil || d.Allowed) || extra != "" && transport.ClassOf(err) != transport.ClassAnswer {
				t.Errorf("%s: %q: %+v, %v", l, c.longest+extra, d, err)
			}
		}
	}
}

package algorithms

import (
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/internal/redistest"
)

// A state as long as the last one is written in place: that keeps the deadline,
// and takes no more memory than a string that is set anew, on other servers than
// Redis 7 a header more at most.
func TestStatesAreWrittenInPlace(t *testing.T) {
	srv, clock := redistest.StartWithClock(t)
	client := srv.Client(t)
	ctx := t.Context()
	r := &Redis{Client: client, Namespace: "place", Budget: roomy}
	var inPlace int
	for _, row := range asText {
		check := Check{Rule: "r", Key: row.Name, Limit: Limit{Rate: 20_000_000, Period: time.Minute, Algorithm: Algorithm(row.Number)}, Cost: 9_999_995}
		if row.Bucket {
			check.Limit.Rate, check.Limit.Burst, check.Cost = 100, 100, 1
		}
		key := keyOf("place", check)
		bytes := map[int64]int64{} // by length
		for range 12 {             // the counts get a digit more
			clock.Advance(time.Millisecond)
			if d, err := r.Take(ctx, check); err != nil || !d.Allowed {
				t.Fatalf("%+v, %v", d, err)
			}
			check.Cost = 1
			was, used := client.StrLen(ctx, key).Val(), client.MemoryUsage(ctx, key).Val()
			if set, ok := bytes[was]; ok && used > set+16 {
				t.Errorf("%s: %d bytes written in place, %d set anew", row.Name, used, set)
			} else if !ok {
				bytes[was] = used
			}
			if encoding := client.ObjectEncoding(ctx, key).Val(); encoding == "raw" {
				inPlace++
			}
		}
	}
	if all := 12 * len(asText); inPlace < all*5/8 {
		t.Errorf("%d of %d states were written in place", inPlace, all)
	}
}

// A deadline that somebody has removed or shortened stands until the next window or
// part of a bucket's grid: setting it with each charge would cost a command.
func TestDeadlinesThatWereChangedAreMended(t *testing.T) {
	b := RealBackend(t)
	client := b.Client
	minute := someTime - someTime%time.Minute.Microseconds()
	for what, change := range map[string]func(key string) error{
		"removed":   func(key string) error { return client.Persist(t.Context(), key).Err() },
		"shortened": func(key string) error { return client.PExpire(t.Context(), key, 70*time.Second).Err() },
	} {
		eachAlgorithm(t, func(t *testing.T, l Limit) {
			check := Check{Rule: "r", Key: what, Limit: l}
			for at, then := range []func(string) error{change, nil} {
				b.SetTime(minute + int64(at)*time.Minute.Microseconds())
				d, err := b.Redis.Take(t.Context(), check)
				if err != nil || !d.Allowed {
					t.Fatalf("%+v, %v", d, err)
				}
				if then != nil {
					if err := then(keyOf("test", check)); err != nil {
						t.Fatal(err)
					}
				} else if ttl := b.TTL(keyOf("test", check)); ttl < d.Results[0].ResetAfter || ttl > 3*time.Minute {
					t.Errorf("%s: forgotten in %s, counts for %s", what, ttl, d.Results[0].ResetAfter)
				}
			}
		})
	}
}

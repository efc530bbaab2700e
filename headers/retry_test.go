package headers_test

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/internal/rated"
)

func drawCheck(t *rapid.T, name string) algorithms.Check {
	row := rapid.SampledFrom(rated.Rows).Draw(t, "algorithm")
	l := algorithms.Limit{
		Rate:      rapid.Int64Range(1, 9).Draw(t, "rate"),
		Period:    time.Duration(rapid.Int64Range(1, 20_000_000).Draw(t, "period µs")) * time.Microsecond,
		Algorithm: algorithms.Algorithm(row.Number),
	}
	if row.Bucket {
		l.Burst = rapid.Int64Range(1, 9).Draw(t, "burst")
	}
	return algorithms.Check{Rule: name, Limit: l, Cost: rapid.Int64Range(1, l.Quota()).Draw(t, "cost")}
}

// TestResetsDoNotWobble looks at one count from two instances until it is free.
func TestResetsDoNotWobble(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		check := drawCheck(rt, "r")
		parts := rapid.SliceOfN(rapid.Int64Range(1, 9), 1, 9).Draw(rt, "parts") // of the time until then
		var resets []string
		var err error
		synctest.Test(t, func(t *testing.T) { resets, err = watchReset(t.Context(), check, parts) })
		if err != nil || len(slices.Compact(slices.Clone(resets))) != 1 {
			rt.Fatalf("%q, %v", resets, err)
		}
	})
}

func watchReset(ctx context.Context, check algorithms.Check, parts []int64) ([]string, error) {
	var memory algorithms.Memory
	d, err := memory.Take(ctx, check)
	if err != nil {
		return nil, err
	}
	resets := []string{xReset(headers.XRateLimit, d)}
	for _, part := range parts {
		pause := (d.Results[0].ResetAfter / time.Duration(part+1)).Truncate(time.Microsecond)
		time.Sleep(pause)
		if d, err = memory.Peek(ctx, check); err != nil {
			return nil, err
		}
		resets = append(resets, xReset(headers.XRateLimit, d), xReset(headers.All(headers.IETFDraft11, headers.XRateLimit), d))
	}
	return resets, nil
}

func xReset(write headers.Writer, d algorithms.Decision) string {
	h := http.Header{}
	write(h, d)
	return h.Get("X-RateLimit-Reset")
}

func TestJitterOnlyAdds(t *testing.T) {
	over := decision(result("wide", algorithms.PerMinute(9), 1, 30*time.Second), denied(login(0), 4*time.Second))
	before := over.Results[1]
	both := headers.All(headers.XRateLimitDelta, headers.IETFDraft11)
	seen := map[string]bool{}
	for range 200 {
		h := http.Header{}
		headers.Jitter(10*time.Second, both)(h, over)
		headers.SetRetryAfter(h, over) // as the middleware does
		retry, _ := strconv.Atoi(h.Get("Retry-After"))
		if reset, _ := strconv.Atoi(h.Get("X-RateLimit-Reset")); retry < 4 || retry > 14 || reset-retry != 38 {
			t.Fatalf("one amount of at most 10 s for all: %v", h)
		}
		if items := limits(t, h); len(items) != 1 || items[0].seconds != int64(retry) {
			t.Fatalf("%v", h)
		}
		seen[h.Get("Retry-After")] = true
	}
	if len(seen) < 5 {
		t.Errorf("200 responses, and only %v", seen)
	}
	if over.Results[1] != before {
		t.Error("the decision was changed")
	}

	// Also where the wait is cut to an hour.
	clear(seen)
	full := decision(denied(result("plan", algorithms.PerMonth(9, "UTC"), 0, 20*24*time.Hour), 20*24*time.Hour))
	for range 200 {
		h := http.Header{}
		headers.Jitter(10*time.Minute, headers.XRateLimit)(h, full)
		headers.SetRetryAfter(h, full)
		if retry, _ := strconv.Atoi(h.Get("Retry-After")); retry < 3600 || retry > 4200 {
			t.Fatalf("%v", h)
		}
		seen[h.Get("Retry-After")] = true
	}
	if len(seen) < 5 {
		t.Errorf("200 denials by a calendar window, and only %v", seen)
	}

	h := http.Header{}
	headers.Jitter(time.Hour, headers.None)(h, ours)
	if len(h) != 0 {
		t.Errorf("an admitted request has %v", h)
	}
	headers.Jitter(time.Hour, headers.IETFDraft11)(h, decision(denied(login(0), algorithms.Never)))
	if got := strings.Join(h["Ratelimit"], "") + strings.Join(h["Retry-After"], ""); got != `"login";r=0` {
		t.Errorf("never became %q", got)
	}
	h = http.Header{}
	headers.Jitter(0, headers.XRateLimit)(h, ours)
	if got := x(h); got[2] != "1795000043" {
		t.Errorf("no jitter gave %q", got)
	}
}

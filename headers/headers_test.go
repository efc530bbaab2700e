package headers_test

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
)

var at = time.UnixMicro(1_795_000_000_000_001)

func result(rule string, limit algorithms.Limit, remaining int64, reset time.Duration) algorithms.Result {
	return algorithms.Result{
		Source:     algorithms.SourceRedis,
		Check:      algorithms.Check{Rule: rule, Limit: limit, Cost: 1},
		HasRoom:    true,
		Remaining:  remaining,
		ResetAfter: reset,
		At:         at,
	}
}

func denied(r algorithms.Result, retryAfter time.Duration) algorithms.Result {
	r.HasRoom, r.RetryAfter = false, retryAfter
	return r
}

func decision(results ...algorithms.Result) algorithms.Decision {
	d := algorithms.Decision{Allowed: true, Results: results}
	for _, r := range results {
		d.Allowed = d.Allowed && !r.Denies()
	}
	return d
}

func costing(units int64, r algorithms.Result) algorithms.Result {
	r.Check.Cost = units
	return r
}

func TestXRateLimitShowsTheTightestRule(t *testing.T) {
	bucket := algorithms.Limit{Rate: 100, Period: time.Minute, Burst: 250, Algorithm: algorithms.TokenBucket}
	shadow := result("shadow", algorithms.PerMinute(1), 0, time.Hour)
	shadow.Check.Shadow = true
	undecided := result("undecided", algorithms.PerMinute(1), 0, time.Hour)
	undecided.Err = fmt.Errorf("away")
	costly := result("costly", algorithms.PerMinute(100), 99, time.Second)
	costly.Check.Cost = 50

	for name, c := range map[string]struct {
		d                       algorithms.Decision
		limit, remaining, reset string
	}{
		"one rule": {decision(result("a", algorithms.PerMinute(5), 4, 59_999_999*time.Microsecond)), "5", "4", "1795000060"},
		"a reset on a whole second is not rounded further": {
			decision(result("a", algorithms.PerMinute(5), 4, 999_999*time.Microsecond)), "5", "4", "1795000001"},
		"a reset just after one is": {
			decision(result("a", algorithms.PerMinute(5), 4, time.Second)), "5", "4", "1795000002"},
		"the limit of a bucket is its burst": {decision(result("a", bucket, 249, 0)), "250", "249", "1795000001"},
		"fewest left": {decision(
			result("wide", algorithms.PerMinute(200), 150, time.Minute),
			result("tight", algorithms.PerMinute(5), 3, time.Second)), "5", "3", "1795000002"},
		"fewest of such requests left": {decision(result("a", algorithms.PerMinute(5), 3, 0), costly), "100", "99", "1795000002"},
		"a debt is not shown, and is the tightest": {decision(
			denied(result("empty", algorithms.PerMinute(5), 0, time.Minute), time.Second),
			denied(result("owes", algorithms.PerMinute(6), -7, time.Second), time.Second)), "6", "0", "1795000002"},
		"a debt of less than a request is one": {decision(
			denied(result("empty", algorithms.PerMinute(5), 0, time.Minute), time.Second),
			denied(costing(50, result("owes", algorithms.PerMinute(60), -1, time.Second)), time.Second)), "60", "0", "1795000002"},
		"among equals the longest": {decision(
			result("short", algorithms.PerMinute(5), 3, time.Second),
			result("long", algorithms.PerMinute(6), 3, time.Minute)), "6", "3", "1795000061"},
		"neither shadow nor undecided rules": {decision(shadow, undecided, result("a", algorithms.PerMinute(5), 4, 0)), "5", "4", "1795000001"},
	} {
		t.Run(name, func(t *testing.T) {
			h := http.Header{}
			headers.XRateLimit(h, c.d)
			got := [3]string{h.Get("X-RateLimit-Limit"), h.Get("X-RateLimit-Remaining"), h.Get("X-RateLimit-Reset")}
			if want := [3]string{c.limit, c.remaining, c.reset}; got != want {
				t.Errorf("limit, remaining, reset: got %q, want %q", got, want)
			}
		})
	}

	h := http.Header{}
	headers.XRateLimit(h, decision(shadow, undecided))
	if len(h) != 0 {
		t.Errorf("nothing was decided, but %v is set", h)
	}
}

func TestHeaderValuesDoNotRunIntoEachOther(t *testing.T) {
	h := http.Header{}
	headers.XRateLimit(h, decision(result("a", algorithms.PerMinute(5), 4, 0)))
	h.Add("X-RateLimit-Limit", "more")
	if got := h.Get("X-RateLimit-Remaining"); got != "4" {
		t.Errorf("after adding a second limit, remaining is %q", got)
	}
}

// A writer that is nil is the default, as Config.Headers is.
func TestANilWriterIsXRateLimit(t *testing.T) {
	for name, w := range map[string]headers.Writer{
		"All":       headers.All(nil, headers.IETFDraft11),
		"Jitter":    headers.Jitter(time.Second, nil),
		"no jitter": headers.Jitter(0, nil),
		"both":      headers.Jitter(time.Second, headers.All(nil)),
	} {
		h := http.Header{}
		w(h, decision(login(3)))
		if got := h.Get("X-RateLimit-Remaining"); got != "3" {
			t.Errorf("%s: %v", name, h)
		}
	}
}

// A duration whose unit was forgotten, and percents for a fraction, are refused with what
// to write.
func TestMistakesAreRefused(t *testing.T) {
	const unit = "; a number without a unit is in nanoseconds: write 10*time.Second, in text 10s"
	panics := func(longest time.Duration) (said any) {
		defer func() { said = recover() }()
		headers.Jitter(longest, headers.None)
		return nil
	}
	for _, longest := range []time.Duration{1, 10, 9_999_999} {
		if got, want := panics(longest), "headers: Jitter: longest "+longest.String()+" is below 10ms"+unit; got != want {
			t.Errorf("got %v, want %s", got, want)
		}
	}
	if got := panics(10 * time.Millisecond); got != nil {
		t.Error(got)
	}
	for want, rt := range map[string]headers.Transport{
		"MaxWait 30ns is below 10ms" + unit:                                                                                        {MaxWait: 30},
		"MaxWait -1s is below 10ms" + unit:                                                                                         {MaxWait: -time.Second},
		"Jitter 10 is above 1; it is a fraction of the wait: write 0.1 for 10%":                                                    {Jitter: 10},
		"Jitter NaN is above 1; it is a fraction of the wait: write 0.1 for 10%":                                                   {Jitter: math.NaN()},
		"a Limiter needs Checks, which say what to ask it":                                                                         {Limiter: new(algorithms.Memory)},
		"a Limiter needs Checks, which say what to ask it\nJitter 1.5 is above 1; it is a fraction of the wait: write 0.1 for 10%": {Limiter: new(algorithms.Memory), Jitter: 1.5},
	} {
		closed := false
		r := get(t)
		r.Body = closing{strings.NewReader("hello"), &closed}
		rt.Base = play()
		if _, err := do(&rt, r); err == nil || err.Error() != "headers: Transport: "+want || !closed {
			t.Errorf("got %v, the body closed: %v; want %s", err, closed, want)
		}
	}
}

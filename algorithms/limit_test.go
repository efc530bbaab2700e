package algorithms

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/internal/step"
)

func TestLimitValidate(t *testing.T) {
	day := 24 * time.Hour
	for name, c := range map[string]struct {
		limit Limit
		want  []string // parts of the error, none if valid
	}{
		"default algorithm":         {Limit{Rate: 1, Period: time.Second}, nil},
		"largest rate":              {Limit{Rate: step.MaxSquared, Period: time.Second}, nil},
		"rate above":                {Limit{Rate: step.MaxSquared + 1, Period: time.Second}, []string{"rate must be at most 94906265 for sliding_window, so that its square stays below 2^53; got 94906266: use a shorter period, fixed_window or a bucket"}},
		"a terabyte an hour":        {Limit{Rate: 1e12, Period: time.Hour, Algorithm: FixedWindow}, nil},
		"a terabyte at once":        {Limit{Rate: 1e9, Period: time.Hour, Burst: 1e12, Algorithm: TokenBucket}, nil},
		"largest window":            {Limit{Rate: step.MaxUnits, Period: time.Microsecond, Algorithm: FixedWindow}, nil},
		"window above":              {Limit{Rate: step.MaxUnits + 1, Period: time.Second, Algorithm: FixedWindow}, []string{"rate must be at most 999999999999999, as headers hold no more; got 1000000000000000"}},
		"largest bucket":            {Limit{Rate: step.MaxUnits, Period: time.Second, Burst: step.MaxUnits, Algorithm: LeakyBucket}, nil},
		"bucket above":              {Limit{Rate: step.MaxUnits + 1, Period: time.Second, Burst: 1, Algorithm: GCRA}, []string{"rate must be at most 999999999999999"}},
		"burst above":               {Limit{Rate: 1, Period: time.Microsecond, Burst: step.MaxUnits + 1, Algorithm: GCRA}, []string{"burst must be at most 999999999999999, as headers hold no more; got 1000000000000000"}},
		"longest log":               {Limit{Rate: 10_000, Period: time.Second, Algorithm: SlidingLog}, nil},
		"log above":                 {Limit{Rate: 10_001, Period: time.Second, Algorithm: SlidingLog}, []string{"rate must be at most 10000 for sliding_log, which remembers each request; got 10001: use sliding_window"}},
		"zero":                      {Limit{}, []string{"no limit; write one such as ratelimit.PerMinute(100)"}},
		"negative":                  {Limit{Rate: -1, Period: -time.Second}, []string{"rate must be at least 1, got -1", "period must be at least 1µs"}},
		"shortest period":           {Limit{Rate: 1, Period: time.Microsecond}, nil},
		"nanoseconds":               {Limit{Rate: 1, Period: 1500}, []string{"whole microseconds, got 1.5µs"}},
		"longest period":            {Limit{Rate: 1, Period: (step.MaxDuration - 1) * time.Microsecond}, nil},
		"period above":              {Limit{Rate: 1, Period: step.MaxDuration * time.Microsecond}, []string{"period must be below 2^52 µs"}},
		"unknown algorithm":         {Limit{Rate: 1, Period: 1000, Algorithm: 9}, []string{`unknown algorithm 9; use one of fixed_window, sliding_window, sliding_log, token_bucket, leaky_bucket, gcra`}},
		"burst on a window":         {Limit{Rate: 1, Period: 1000, Burst: 1, Algorithm: SlidingWindow}, []string{"burst is for buckets, not for sliding_window"}},
		"negative burst":            {Limit{Rate: 1, Period: 1000, Burst: -1, Algorithm: TokenBucket}, []string{"burst must not be negative, got -1"}},
		"1 per 30 days":             {Limit{Rate: 1, Period: 30 * day, Algorithm: TokenBucket}, nil},
		"999,999 per 30 days":       {Limit{Rate: 999_999, Period: 30 * day, Algorithm: TokenBucket}, nil},
		"200,003 per day":           {Limit{Rate: 200_003, Period: day}, nil},
		"999,983 per second":        {Limit{Rate: 999_983, Period: time.Second, Algorithm: TokenBucket}, nil},
		"refill just fits":          {Limit{Rate: 1, Period: 4 * time.Microsecond, Burst: 1<<49 - 1, Algorithm: TokenBucket}, nil},
		"refill too long":           {Limit{Rate: 1, Period: 4 * time.Microsecond, Burst: 1 << 49, Algorithm: TokenBucket}, []string{"burst 562949953421312 at 1 per 4µs: the time to refill it must be below 2^51 µs"}},
		"burst beyond all products": {Limit{Rate: 1, Period: time.Hour, Burst: math.MaxInt64, Algorithm: TokenBucket}, []string{"burst must be at most"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.limit.Validate()
			if (err == nil) != (len(c.want) == 0) {
				t.Fatalf("Validate(%+v) = %v", c.limit, err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("Validate(%+v) = %q, want %q", c.limit, err, want)
				}
			}
		})
	}
}

func TestParseLimit(t *testing.T) {
	for text, want := range map[string]Limit{
		"100/1m":                     {Rate: 100, Period: time.Minute},
		"100/minute":                 {Rate: 100, Period: time.Minute},
		"100/min":                    {Rate: 100, Period: time.Minute},
		"100 / 1m":                   {Rate: 100, Period: time.Minute},
		"100/ min":                   {Rate: 100, Period: time.Minute},
		"10 /s burst 20 gcra":        {Rate: 10, Period: time.Second, Burst: 20, Algorithm: GCRA},
		" 5/h  fixed_window ":        {Rate: 5, Period: time.Hour, Algorithm: FixedWindow},
		"10/s burst 20":              {Rate: 10, Period: time.Second, Burst: 20, Algorithm: TokenBucket},
		"10/s burst 20 token_bucket": {Rate: 10, Period: time.Second, Burst: 20, Algorithm: TokenBucket},
		"1/30d":                      {Rate: 1, Period: 720 * time.Hour},
		"1/1h30m":                    {Rate: 1, Period: 90 * time.Minute},
		"7/250us":                    {Rate: 7, Period: 250 * time.Microsecond},
		"1000 / month@Europe/Berlin": PerMonth(1000, "Europe/Berlin"),
		"5/day@UTC":                  PerDay(5, "UTC"),
		"5/month:15@UTC":             {Rate: 5, Calendar: "month:15@UTC"},
		"5/week@UTC calendar_window": {Rate: 5, Calendar: "week@UTC", Algorithm: CalendarWindow},
		"20 in flight":               MaxInFlight(20),
		" 1  in   flight ":           MaxInFlight(1),
		"20 / 15s in_flight":         MaxInFlight(20),
		"20/5m in_flight":            {Rate: 20, Period: 5 * time.Minute, Algorithm: InFlight},
	} {
		if got, err := ParseLimit(text); err != nil || got != want {
			t.Errorf("ParseLimit(%q) = %+v, %v; want %+v", text, got, err, want)
		}
		if again, err := ParseLimit(want.String()); err != nil || again != want {
			t.Errorf("%q is written as %q: %+v, %v", text, want, again, err)
		}
	}
	for text, want := range map[string]string{
		"":                            "empty",
		"100":                         "no period",
		"100 per Minute":              `no period; write it as "100/1m"`,
		"10/1M":                       `period "1M" is not a duration; write it as "10/1m", or for a month as "10/month@UTC"`,
		"10/M":                        `write it as "10/1m", or for a month as "10/month@UTC"`,
		"1000/day":                    `period "day" has two meanings; write it as "1000/1d" for a period of 1d, or "1000/day@UTC" for each day of a time zone`,
		"1,000/d":                     `write it as "1000/1d" for a period of 1d, or "1000/day@UTC" for each day of`,
		"10 per Month":                `write it as "10/30d" for a period of 30d, or "10/month@UTC" for each month of`,
		"5/month@Berlin":              `cannot load the time zone`,
		"5/month@Local":               "Local differs from machine to machine",
		"5/1h@UTC":                    `unknown window "1h"; write day, week, month, quarter or year`,
		"5/month@UTC burst 9":         "a calendar window has no burst",
		"5/month@UTC gcra":            "calendar is for calendar_window, not for gcra",
		"5/1m calendar_window":        "period must be 0 for calendar_window",
		"0 in flight":                 "rate must be at least 1",
		"x in flight":                 "is not a whole number",
		"in flight":                   "no period",
		"20 in flight 15s":            "no period",
		"20 in-flight":                `write it as "20 in flight"`,
		"20 requests  inflight":       `write it as "20 in flight"`,
		"20 concurrent requests":      `write it as "20 in flight"`,
		"20 at once":                  `write it as "20 in flight"`,
		"20/100ms in_flight":          "the lease of in_flight must be at least 1s",
		"2/15s burst 3 in_flight":     "burst is for buckets",
		"2000000 in flight":           "rate must be at most",
		"10/60":                       `period "60" is not a duration; write it as "10/1m"`,
		"10/90 burst 20":              `write it as "10/90s burst 20 token_bucket"`,
		"1,000/1m":                    `rate "1,000" is not a whole number; write it as "1000/1m"`,
		"1_000_000/1h":                `write it as "1000000/1h"`,
		"1,5/1m":                      `rate "1,5" is not a whole number; write it as "100/1m", "10/s`,
		"10/1m Burst 20":              `write it as "10/1m burst 20 token_bucket"`,
		"10/1m token_bucket burst 20": `unexpected "burst"; write it as "10/1m burst 20 token_bucket"`,
		"10/1m with a burst of 20":    `unexpected "a"; write it as "10/1m burst 20 token_bucket"`,
		"10/1m, burst: 1,000":         `write it as "10/1m burst 1000 token_bucket"`,
		"10/s (burst 20)":             `write it as "10/1s burst 20 token_bucket"`,
		"10/1m burst=20 tokens":       `write it as "10/1m burst 20 token_bucket"`,
		"10/1m burst 20 tokens":       `write it as "10/1m burst 20 token_bucket"`,
		"10 requests per 5 minutes":   `no period; write it as "10/5m"`,
		"10/60 s":                     `write it as "10/1m"`,
		"100 / 1 hour fixed_window":   `write it as "100/1h fixed_window"`,
		"10 r/s":                      `write it as "10/1s"`,
		"10/minutes":                  `write it as "10/1m"`,
		"10/5 ms":                     `write it as "100/1m", "10/s`,
		"10/1 month":                  `write it as "100/1m", "10/s`,
		"10/1m burst 20 GCRA burst 5": `unexpected "burst"; write it as "100/1m", "10/s`,
		"10/1m fixed_window burst 20": `unexpected "burst"; write it as "100/1m", "10/s`,
		"5-S":                         `no period; write it as "100/1m"`,
		"100/":                        `period "" is not a duration`,
		"100 / burst 5":               `period "burst" is not a duration`,
		"100 1m":                      "no period",
		"100 x/1m":                    `rate "100 x" is not a whole number`,
		"+5/1m":                       `rate "+5" is not a whole number`,
		"5/+1m":                       `period "+1m" is not a duration`,
		"5/+1d":                       `period "+1d" is not a duration`,
		"/1m":                         `rate "" is not a whole number`,
		"x/1m":                        `rate "x" is not a whole number`,
		"1.5/1m":                      `rate "1.5" is not a whole number`,
		"1/fortnight":                 `period "fortnight" is not a duration`,
		"1/s burst":                   "burst without a number",
		"1/s burst 0":                 "burst must be at least 1",
		"1/s burst two":               `burst "two" is not a whole number`,
		"1/s fixed_window please":     `unexpected "please"`,
		"0/s":                         "rate must be at least 1",
		"10/s, 1000/month@UTC":        `several limits; write them as a list, in a file [10/s, 1000/month@UTC]`,
		"10/s, 5/fortnight":           `period "s," is not a duration`,
		"1/s leaky":                   `unknown algorithm "leaky"`,
		"1/s burst 5 sliding_window":  "burst is for buckets",
		"1/99999999999999999999999d":  "is not a duration",
		"1/106752d":                   "is not a duration",
		"99999999999999999999999/1ms": "is not a whole number",
	} {
		_, err := ParseLimit(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseLimit(%q): %v, want %q", text, err, want)
		}
	}
}

func TestUnmarshalTextKeepsTheOldLimitOnError(t *testing.T) {
	l := PerMinute(5)
	if err := l.UnmarshalText([]byte("nonsense")); err == nil || l != PerMinute(5) {
		t.Errorf("got %+v, %v", l, err)
	}
}

func FuzzParseLimit(f *testing.F) {
	for _, s := range []string{"100/1m", "10/s burst 20", "1/30d", "5/h fixed_window", "/", "1/1ns", "-1/-1s", "9223372036854775807/106751d burst 1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := ParseLimit(text)
		if err != nil {
			return
		}
		again, err := ParseLimit(l.String())
		if err != nil || again != l {
			t.Fatalf("%q is %+v, written %q, read again %+v, %v", text, l, l, again, err)
		}
	})
}

package headers_test

import (
	"math/big"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
)

const year = 366 * 24 * time.Hour // the longest wait that is believed

// A reply is what a scripted server sends.
type reply struct{ *http.Response }

// answer is a response with these header lines.
func answer(status int, lines ...string) reply {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return reply{&http.Response{StatusCode: status, Header: h, Body: http.NoBody}}
}

// The dates to wait for are a minute after the server's Date, which is a year
// before the client's clock, or a minute after that clock where there is no Date.
// The forms of a value are in [FuzzRetryAfter].
func TestRetryAfterReadsResponses(t *testing.T) {
	const (
		date   = "Date: Fri, 31 Dec 1999 23:59:00 GMT"
		minute = time.Minute
		second = time.Second
	)
	for name, c := range map[string]struct {
		lines []string
		want  time.Duration // 0: it does not say
	}{
		"nothing": {nil, 0},

		"seconds":                      {[]string{"Retry-After: 60"}, minute},
		"a date by the client's clock": {[]string{"Retry-After: Mon, 01 Jan 2001 00:00:00 GMT"}, minute},
		"a malformed Date":             {[]string{"Date: today", "Retry-After: Mon, 01 Jan 2001 00:00:00 GMT"}, minute},

		"RateLimit":                          {[]string{`RateLimit: "a";r=0;t=60`}, minute},
		"RateLimit, in vain":                 {[]string{`RateLimit: "a";r=1;t=60`}, 0},
		"RateLimit without t":                {[]string{`RateLimit: "a";r=0`}, 0},
		"RateLimit, t=0":                     {[]string{`RateLimit: "a";r=0;t=0`}, second},
		"RateLimit, the longest exhausted":   {[]string{`RateLimit: "a";r=0;t=5,"b";r=0;t=60`, `RateLimit: "c";r=0;t=7,"d";r=1;t=3600`}, minute},
		"RateLimit, as much as it can hold":  {[]string{`RateLimit: "a";r=0;t=999999999999999`}, 0},
		"RateLimit, malformed":               {[]string{`RateLimit: "a";r=0;t=60,`}, 0},
		"RateLimit, two lines of one name":   {[]string{`RateLimit: "a";r=0;t=5`, `RateLimit: "a";r=0;t=60`}, minute},
		"RateLimit, only the second is 0":    {[]string{`RateLimit: "a";r=9;t=5`, `RateLimit: "a";r=0;t=60`}, minute},
		"RateLimit, the second malformed":    {[]string{`RateLimit: "a";r=0;t=5`, `RateLimit: limit=9`}, 0},
		"RateLimit, more than 4 KiB":         {[]string{`RateLimit: "a";r=0;t=60;x="` + zeros(4096) + `"`}, 0},
		"RateLimit, malformed, beside X-":    {[]string{`RateLimit: "a";r=0;t=5,`, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 60"}, minute},
		"RateLimit, in vain, beside X-":      {[]string{`RateLimit: "a";r=1;t=5`, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 60"}, minute},
		"RateLimit before X-":                {[]string{`RateLimit: "a";r=0;t=60`, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 5"}, minute},
		"Retry-After before all":             {[]string{`RateLimit: "a";r=0;t=5`, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 7", "Retry-After: 60"}, minute},
		"Retry-After, malformed":             {[]string{`RateLimit: "a";r=0;t=60`, "Retry-After: soon"}, minute},
		"RateLimit from a cache":             {[]string{`RateLimit: "a";r=0;t=60`, "Age: 5"}, 0},
		"X-RateLimit from a cache":           {[]string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 60", "Age: 5"}, 0},
		"RateLimit through a cache":          {[]string{`RateLimit: "a";r=0;t=60`, "Age: 0"}, minute},
		"RateLimit, two Ages":                {[]string{`RateLimit: "a";r=0;t=60`, "Age: 0", "Age: 5"}, 0},
		"Retry-After from a cache":           {[]string{"Retry-After: 60", "Age: 5"}, minute},
		"RateLimit-Policy alone says naught": {[]string{`RateLimit-Policy: "a";q=5;w=60`}, 0},

		"X-, in vain":                  {[]string{"X-RateLimit-Remaining: 1", "X-RateLimit-Reset: 60"}, 0},
		"X-, no remaining":             {[]string{"X-RateLimit-Reset: 60"}, 0},
		"X-, no reset":                 {[]string{"X-RateLimit-Remaining: 0"}, 0},
		"X-, seconds from now":         {[]string{date, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 60"}, minute},
		"X-Rate-Limit, as Twitter":     {[]string{"X-Rate-Limit-Remaining: 0", "X-Rate-Limit-Reset: 60"}, minute},
		"RateLimit-Reset, as Kong":     {[]string{"RateLimit-Remaining: 0", "RateLimit-Reset: 60"}, minute},
		"X-, two lines":                {[]string{"X-RateLimit-Remaining: 9", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 5", "X-RateLimit-Reset: 60"}, minute},
		"X-, two lines, the other":     {[]string{"X-RateLimit-Remaining: 0", "X-RateLimit-Remaining: 9", "X-RateLimit-Reset: 60", "X-RateLimit-Reset: 3600"}, minute},
		"X-, two lines, both":          {[]string{"X-RateLimit-Remaining: 0", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 5", "X-RateLimit-Reset: 60"}, minute},
		"X-, two lines, two forms":     {[]string{date, "X-RateLimit-Remaining: 0", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 5", "X-RateLimit-Reset: 2000-01-01T00:00:00Z"}, minute},
		"X-, two lines, none":          {[]string{"X-RateLimit-Remaining: 1", "X-RateLimit-Remaining: 9", "X-RateLimit-Reset: 5", "X-RateLimit-Reset: 60"}, 0},
		"X-, two lines, one malformed": {[]string{"X-RateLimit-Remaining: none", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 5", "X-RateLimit-Reset: 60"}, minute},
		"X-, two lines, one reset":     {[]string{"X-RateLimit-Remaining: 9", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 60"}, minute},
		"X-, two resets":               {[]string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 5", "X-RateLimit-Reset: 60"}, minute},
		"X-, joined":                   {[]string{"X-RateLimit-Limit: 5, 100", "X-RateLimit-Remaining: 0, 5", "X-RateLimit-Reset: 60, 3600"}, minute},
		"X-, joined, the other":        {[]string{"X-RateLimit-Remaining: 5, 0", "X-RateLimit-Reset: 3600, 60"}, minute},
		"X-, joined dates":             {[]string{date, "X-RateLimit-Remaining: 0, 0", "X-RateLimit-Reset: Fri, 31 Dec 1999 23:59:30 GMT, Sat, 01 Jan 2000 00:00:00 GMT"}, minute},
		"X-, joined, with windows":     {[]string{"X-RateLimit-Limit: 10, 10;w=1;name=a", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 60"}, minute},
		"two families have 0 left":     {[]string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 5", "RateLimit-Remaining: 0", "RateLimit-Reset: 60"}, minute},
		"X-, a broken server":          {[]string{"X-Rate-Limit-Remaining: 0", "X-Rate-Limit-Reset: 150933900"}, 0},
		"OpenAI, requests":             {[]string{"x-ratelimit-remaining-requests: 0", "x-ratelimit-remaining-tokens: 9", "x-ratelimit-reset-requests: 42s", "x-ratelimit-reset-tokens: 6m0s"}, 42 * second},
		"OpenAI, tokens":               {[]string{"x-ratelimit-remaining-requests: 9", "x-ratelimit-remaining-tokens: 0", "x-ratelimit-reset-requests: 42s", "x-ratelimit-reset-tokens: 6m0s"}, 6 * minute},
		"a broken value gives way":     {[]string{"Retry-After: 99999999999", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 30"}, 30 * second},
		"a broken value beside one":    {[]string{"Retry-After: 99999999999", "Retry-After: 30"}, 30 * second},
		"the past gives way":           {[]string{"Date: Fri, 27 Nov 2026 14:00:00 GMT", "Retry-After: 1795788000", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 30"}, 30 * second},
		"0 gives way":                  {[]string{"Retry-After: 0", `RateLimit: "a";r=0;t=60`}, minute},
		"0 gives way to nothing":       {[]string{"Retry-After: 0", `RateLimit: "a";r=0;t=0`}, second},
		"the past from a cache":        {[]string{date, "Retry-After: Fri, 31 Dec 1999 23:58:00 GMT", `RateLimit: "a";r=0;t=60`, "Age: 5"}, second},
		"only one has nothing left":    {[]string{"X-RateLimit-Remaining: 5", "X-RateLimit-Reset: 5", "RateLimit-Remaining: 0", "RateLimit-Reset: 60"}, minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // a bubble's clock begins at 2000-01-01
				time.Sleep(366*24*time.Hour - time.Minute)
				wait, ok := headers.RetryAfter(answer(429, c.lines...).Response)
				if wait != c.want || ok != (c.want != 0) {
					t.Errorf("%s: got %v, %v; want %v", c.lines, wait, ok, c.want)
				}
			})
		})
	}
}

func zeros(n int) string { return strings.Repeat("0", n) }

// What our own writers send comes back as the same numbers.
func TestRetryAfterReadsWhatWeWrite(t *testing.T) {
	ceil := func(d time.Duration) time.Duration { return (d + time.Second - 1).Truncate(time.Second) }
	for _, c := range []struct{ retry, reset time.Duration }{
		{time.Microsecond, time.Second},
		{time.Second, time.Minute},
		{4*time.Second + time.Microsecond, 59_999_999 * time.Microsecond},
		{time.Hour, 24 * time.Hour},
	} {
		d := decision(
			denied(result(`the "login", \ rule`, algorithms.PerMinute(5), 0, c.reset), c.retry),
			denied(result("less", algorithms.PerMinute(7), 0, time.Millisecond), time.Microsecond),
			result("not denied", algorithms.PerMinute(9), 3, 48*time.Hour))
		for name, w := range map[string]struct {
			write headers.Writer
			want  time.Duration
		}{
			"SetRetryAfter": {headers.SetRetryAfter, ceil(c.retry)},
			// The reset is rounded up, and Date down.
			"XRateLimit":      {headers.XRateLimit, at.Add(c.reset + time.Second - 1).Truncate(time.Second).Sub(at.Truncate(time.Second))},
			"XRateLimitDelta": {headers.XRateLimitDelta, ceil(c.reset)},
			"IETFDraft11":     {headers.IETFDraft11, ceil(c.retry)},
			"all":             {headers.All(headers.XRateLimit, headers.IETFDraft11, headers.SetRetryAfter), ceil(c.retry)},
		} {
			resp := answer(429, "Date: "+at.UTC().Format(http.TimeFormat))
			w.write(resp.Header, d)
			if wait, ok := headers.RetryAfter(resp.Response); wait != w.want || !ok {
				t.Errorf("%s of %v: got %v, %v; want %v: %v", name, c, wait, ok, w.want, resp.Header)
			}
		}
	}
}

// Whatever a server sends as Retry-After, in one line or two: it is read by one of the
// forms, or ignored. Of several, joined with commas or not, the longest counts. A value
// alone means the same as X-RateLimit-Reset.
//
// A number is a duration, Unix seconds or Unix milliseconds by its size, which
// only a server that says "in 31 years" or "in the year 1973" could confuse.
func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{
		// A duration.
		"", "0", "120", "060", " 60\t", "1.5", "0.0000000001", "31622400", "31622401", "31536000", "31536000000", "999999999", "9223372036854775808", "99999999999999999999",
		"1" + zeros(30), "1" + zeros(400), "00000000000000060", "5,60 , 7", "5, 6", " 5 ", "soon", "Sat, 60", ",", "a,1", strings.Repeat("5,", 2048),
		"60s", "500ms", "1m30s", "99999h", "87600h", "60 seconds", "-1s", "-1m", "+1m",
		// No number.
		"-1", "+1", "1e3", "1e9", "0x10", "Inf", "NaN", "1.2.3", "1.", ".5", "²", "٣",
		// A Unix time.
		"1000000000", "1009843140", "1009843200", "1009843200.25", "1009843200250", "1009843140000", "1010000000000", "1041465540", "1041465541", "2147483647",
		"99999999999", "100000000000", "946684740000", "1009843200000000",
		// A date.
		"Mon, 31 Dec 2001 23:59:00 GMT", "Fri, 31 Dec 2001 23:59:59 GMT", "Monday, 31-Dec-01 23:59:59 GMT", "Mon Dec 31 23:59:59 2001", "Sun, 31 Dec 2000 23:59:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT",
		"Fri, 31 Dec 2001 23:59:59 UTC", "Fri, 31 Dec 2001 23:59:59 +0000", "Tue, 01 Jan 2002 01:00:00 +0100", "Fri, 31 Dec 2001 23:59:59 CET", "Monday, 31-Dec-01 23:59:59 CET",
		"2002-01-01T00:00:00Z", "2002-01-01T00:00Z", "2002-01-01T01:00:00.5+01:00",
		"5,Fri, 31 Dec 2001 23:59:59 GMT,7", "Fri, Fri, 31 Dec 2001 23:59:59 GMT", "Mon, 31 Dec 2001 23:59:30 GMT, Tuesday, 01-Jan-02 00:00:00 GMT, 5",
		"Tue, 01 Jan 2002 00:00:00 UTC, Mon, 31 Dec 2001 23:59:30 +0000, 5",
	} {
		f.Add(seed, seed)
		f.Add(seed, "3")
		f.Add("soon", seed)
	}
	date := "Mon, 31 Dec 2001 23:59:00 GMT"
	now, _ := http.ParseTime(date)
	f.Fuzz(func(t *testing.T, first, second string) {
		lines := []string{first, second}
		resp := http.Response{Header: http.Header{"Date": {date}, "Retry-After": lines}}
		got, ok := headers.RetryAfter(&resp)
		if ok != (got > 0) {
			t.Fatalf("%q: got %v, %v", lines, got, ok)
		}
		if len(first)+len(second) > 4<<10 {
			if ok {
				t.Errorf("%d bytes: got %v", len(first)+len(second), got)
			}
			return
		}
		var want time.Duration
		found := false
		for _, line := range lines {
			pieces := strings.Split(line, ",")
			for i := 0; i < len(pieces); i++ {
				text := strings.Trim(pieces[i], " \t")
				if i+1 < len(pieces) {
					if both := strings.Trim(pieces[i]+","+pieces[i+1], " \t"); isDate(both) {
						text, i = both, i+1
					}
				}
				wait, ok := referenceRetryAfter(text, now)
				if ok {
					want, found = max(want, wait), true
				}
			}
		}
		same := func(got time.Duration, ok bool, lines []string, want time.Duration, found bool) {
			if found && want == 0 {
				want = time.Second
			}
			if diff := (got - want).Abs(); ok != found || ok && diff > time.Microsecond {
				t.Errorf("%q: got %v, %v; want %v", lines, got, ok, want)
			}
		}
		same(got, ok, lines, want, found)
		if text := strings.Trim(first, " \t"); !strings.Contains(text, ",") || isDate(text) {
			resp.Header = http.Header{"Date": {date}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {first}}
			got, ok := headers.RetryAfter(&resp)
			want, found := referenceRetryAfter(text, now)
			same(got, ok, []string{first}, want, found)
		}
	})
}

func isDate(text string) bool {
	_, ok := referenceDate(text)
	return ok
}

func referenceDate(text string) (time.Time, bool) {
	if at, ok := strings.CutSuffix(text, " UTC"); ok {
		text = at + " GMT"
	}
	for _, layout := range []string{http.TimeFormat, "Monday, 02-Jan-06 15:04:05 GMT", time.ANSIC, time.RFC1123Z, time.RFC3339, "2006-01-02T15:04Z07:00"} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}

// referenceRetryAfter computes with rational numbers. A time in the past is 0.
func referenceRetryAfter(text string, now time.Time) (wait time.Duration, ok bool) {
	if at, ok := referenceDate(text); ok {
		return max(at.Sub(now), 0), at.Sub(now) <= year
	}
	if d, err := time.ParseDuration(text); err == nil && text[0] >= '0' && text[0] <= '9' {
		return d, d <= year
	}
	n, ok := new(big.Rat).SetString(text)
	if !ok || strings.Trim(text, "0123456789.") != "" || strings.HasPrefix(text, ".") || strings.HasSuffix(text, ".") {
		return 0, false
	}
	if n.Cmp(big.NewRat(1e9, 1)) >= 0 {
		if n.Cmp(big.NewRat(1e11, 1)) >= 0 {
			n.Quo(n, big.NewRat(1000, 1))
		}
		n.Sub(n, big.NewRat(now.Unix(), 1))
	}
	if n.Sign() <= 0 {
		return 0, true
	}
	if n.Cmp(big.NewRat(int64(year), 1e9)) > 0 {
		return 0, false
	}
	whole, rest := new(big.Int).QuoRem(n.Mul(n, big.NewRat(1e9, 1)).Num(), n.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		return time.Duration(whole.Int64() + 1), true
	}
	return time.Duration(whole.Int64()), true
}

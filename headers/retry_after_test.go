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
		"seconds of another Date":      {[]string{date, "Retry-After: 60"}, minute},
		"leading zeros":                {[]string{"Retry-After: 060"}, minute},
		"spaces":                       {[]string{"Retry-After:  60\t"}, minute},
		"a fraction":                   {[]string{"Retry-After: 0.35"}, 350 * time.Millisecond},
		"a tiny fraction":              {[]string{"Retry-After: 0.0000000001"}, 1},
		"at once":                      {[]string{"Retry-After: 0"}, second},
		"a year":                       {[]string{"Retry-After: 31622400"}, year},
		"more than a year":             {[]string{"Retry-After: 31622401"}, 0},
		"more than an int64":           {[]string{"Retry-After: 9223372036854775808"}, 0},
		"more than a float64":          {[]string{"Retry-After: 1" + strings.Repeat("0", 400)}, 0},
		"a Unix time":                  {[]string{"Date: Fri, 27 Nov 2026 14:00:00 GMT", "Retry-After: 1795788060"}, minute},
		"the longest of two":           {[]string{"Retry-After: 60", "Retry-After: 5"}, minute},
		"joined":                       {[]string{"Retry-After: 5,60 , 7"}, minute},
		"joined dates":                 {[]string{date, "Retry-After: Fri, 31 Dec 1999 23:59:30 GMT, Saturday, 01-Jan-00 00:00:00 GMT, 5"}, minute},
		"a day alone, and seconds":     {[]string{"Retry-After: Sat, 60"}, minute},
		"seconds and a date":           {[]string{date, "Retry-After: 5", "Retry-After: Sat, 01 Jan 2000 00:00:00 GMT"}, minute},
		"more than 4 KiB":              {[]string{"Retry-After: 60", "Retry-After: " + strings.Repeat("5,", 2048)}, 0},
		"the one of two that parses":   {[]string{"Retry-After: soon", "Retry-After: 60"}, minute},
		"a date":                       {[]string{date, "Retry-After: Sat, 01 Jan 2000 00:00:00 GMT"}, minute},
		"a date as in RFC 850":         {[]string{date, "Retry-After: Saturday, 01-Jan-00 00:00:00 GMT"}, minute},
		"a date as in C":               {[]string{date, "Retry-After: Sat Jan  1 00:00:00 2000"}, minute},
		"a date by the client's clock": {[]string{"Retry-After: Mon, 01 Jan 2001 00:00:00 GMT"}, minute},
		"a malformed Date":             {[]string{"Date: today", "Retry-After: Mon, 01 Jan 2001 00:00:00 GMT"}, minute},
		"the Date itself":              {[]string{date, "Retry-After: Fri, 31 Dec 1999 23:59:00 GMT"}, second},
		"a date that has passed":       {[]string{date, "Retry-After: Fri, 31 Dec 1998 23:59:00 GMT"}, second},
		"a date in centuries":          {[]string{date, "Retry-After: Fri, 31 Dec 9999 23:59:59 GMT"}, 0},
		"RFC 1123 in UTC":              {[]string{date, "Retry-After: Sat, 01 Jan 2000 00:00:00 UTC"}, minute},
		"RFC 1123, +0000":              {[]string{date, "Retry-After: Sat, 01 Jan 2000 00:00:00 +0000"}, minute},
		"RFC 1123, another zone":       {[]string{date, "Retry-After: Sat, 01 Jan 2000 01:00:00 +0100"}, minute},
		"joined dates in UTC":          {[]string{date, "Retry-After: Sat, 01 Jan 2000 00:00:00 UTC, Fri, 31 Dec 1999 23:59:30 +0000, 5"}, minute},
		"ISO 8601":                     {[]string{date, "Retry-After: 2000-01-01T00:00:00Z"}, minute},
		"a unit":                       {[]string{"Retry-After: 60s"}, minute},
		"a duration":                   {[]string{"Retry-After: 1m30s"}, 90 * second},
		"milliseconds":                 {[]string{"Retry-After: 500ms"}, second / 2},
		"a duration of a decade":       {[]string{"Retry-After: 87600h"}, 0},

		"negative":       {[]string{"Retry-After: -1"}, 0},
		"a plus":         {[]string{"Retry-After: +1"}, 0},
		"an exponent":    {[]string{"Retry-After: 1e3"}, 0},
		"hexadecimal":    {[]string{"Retry-After: 0x10"}, 0},
		"infinite":       {[]string{"Retry-After: Inf"}, 0},
		"another unit":   {[]string{"Retry-After: 60 seconds"}, 0},
		"minus a minute": {[]string{"Retry-After: -1m"}, 0},
		"plus a minute":  {[]string{"Retry-After: +1m"}, 0},
		"two points":     {[]string{"Retry-After: 1.2.3"}, 0},
		"a bare point":   {[]string{"Retry-After: 1."}, 0},
		"no whole":       {[]string{"Retry-After: .5"}, 0},
		"empty":          {[]string{"Retry-After: "}, 0},
		"not ASCII":      {[]string{"Retry-After: ²"}, 0},
		"another zone":   {[]string{date, "Retry-After: Sat, 01 Jan 2000 00:00:00 CET"}, 0},
		"RFC 850, CET":   {[]string{date, "Retry-After: Saturday, 01-Jan-00 00:00:00 CET"}, 0},

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
		"X-, negative reset":           {[]string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: -5"}, 0},
		"X-, seconds from now":         {[]string{date, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 60"}, minute},
		"X-, fractions, as Reddit":     {[]string{"X-RateLimit-Remaining: 0.0", "X-RateLimit-Reset: 60.5"}, 60500 * time.Millisecond},
		"X-, 0 seconds from now":       {[]string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 0"}, second},
		"X-, ISO 8601":                 {[]string{date, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 2000-01-01T00:00:00Z"}, minute},
		"X-, ISO 8601, fraction, zone": {[]string{date, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 2000-01-01T01:00:00.5+01:00"}, 60500 * time.Millisecond},
		"X-, ISO 8601, as Atlassian":   {[]string{date, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 2000-01-01T00:00Z"}, minute},
		"X-, HTTP date":                {[]string{date, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: Sat, 01 Jan 2000 00:00:00 GMT"}, minute},
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
		"X-, RFC 1123 in UTC":          {[]string{date, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: Sat, 01 Jan 2000 00:00:00 UTC"}, minute},
		"X-, a duration":               {[]string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1m30s"}, 90 * second},
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

// A number is a duration, Unix seconds or Unix milliseconds by its size, which
// only a server that says "in 31 years" or "in the year 1973" could confuse.
func TestRetryAfterTellsUnixTimesFromSeconds(t *testing.T) {
	const ignored = 0                                  // more than a year
	const date = "Date: Fri, 21 Nov 2026 12:00:00 GMT" // 1795262400
	for reset, want := range map[string]time.Duration{
		"60":                60 * time.Second,
		"86400":             24 * time.Hour,
		"31536000":          365 * 24 * time.Hour,
		"31536000000":       ignored,
		"999999999":         ignored,
		"1000000000":        time.Second, // in 2001, so over
		"1795262400":        time.Second,
		"1795262460":        time.Minute,
		"1795262460.25":     time.Minute + time.Second/4,
		"1795262460250":     time.Minute + time.Second/4,
		"1795262400000":     time.Second,
		"1795788630000":     526230 * time.Second,
		"99999999999":       ignored,     // 5138
		"100000000000":      time.Second, // 1973
		"1795262460000000":  ignored,     // nobody says microseconds
		"9" + zeros(400):    ignored,
		"1" + zeros(30):     ignored,
		"2147483647":        ignored,
		"00000000000000060": time.Minute,
	} {
		for _, lines := range [][]string{{date, "Retry-After: " + reset}, {date, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: " + reset}} {
			wait, ok := headers.RetryAfter(answer(429, lines...).Response)
			if wait != want || ok != (want != ignored) {
				t.Errorf("%q: got %v, %v; want %v", lines, wait, ok, want)
			}
		}
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
// forms, or ignored. Of several, joined with commas or not, the longest counts.
func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{
		"", "0", "120", "1.5", "-1", "1e9", "99999999999999999999", "NaN", "٣",
		"Fri, 31 Dec 2001 23:59:59 GMT", "Monday, 31-Dec-01 23:59:59 GMT", "Mon Dec 31 23:59:59 2001", " 5 ", "5, 6", "1009843200", "1009843200.5", "1009843200000", "946684740000", "500ms", "1m30s", "-1s", "99999h",
		"Fri, 31 Dec 2001 23:59:59 UTC", "Fri, 31 Dec 2001 23:59:59 +0000", "2002-01-01T00:00:00Z", "Fri, 31 Dec 2001 23:59:59 CET",
		"5,Fri, 31 Dec 2001 23:59:59 GMT,7", "Fri, Fri, 31 Dec 2001 23:59:59 GMT", ",", "a,1",
	} {
		f.Add(seed, seed)
		f.Add(seed, "3")
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
		if found && want == 0 {
			want = time.Second
		}
		if diff := (got - want).Abs(); ok != found || diff > time.Microsecond {
			t.Errorf("%q: got %v, %v; want %v", lines, got, ok, want)
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

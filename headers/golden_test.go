package headers_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
)

var update = flag.Bool("update", false, "write the golden files")

func login(remaining int64) algorithms.Result {
	return result("login", algorithms.PerMinute(5), remaining, 42*time.Second)
}

// Rules that could not be counted, as failmode.Guard leaves them.
var (
	errAway = errors.New("dial tcp 10.0.0.7:6379: connection refused")
	asked   = algorithms.Check{Rule: "per-user", Limit: algorithms.PerMinute(100), Cost: 1}
	open    = algorithms.Result{Check: asked, Source: algorithms.SourceFailOpen, HasRoom: true, Err: errAway}
	closed  = algorithms.Result{Check: asked, Source: algorithms.SourceFailClosed, RetryAfter: time.Second, Err: errAway}
)

func goldenCases() map[string]algorithms.Decision {
	one, two := threeRules(), threeRules()
	one.Allowed, one.Results[2] = false, denied(login(0), 4_200_000*time.Microsecond)
	two.Allowed, two.Results[2] = false, denied(login(0), 4_200_000*time.Microsecond)
	two.Results[0] = denied(result("per-ip", algorithms.PerMinute(200), 0, 70*time.Second), 11*time.Second)

	costly := func(cost, remaining int64) algorithms.Result {
		r := login(remaining)
		r.Check.Cost = cost
		return r
	}

	banned := denied(result("login", algorithms.PerMinute(5), 0, 15*time.Minute), 15*time.Minute)
	banned.BannedFor = time.Minute

	shadowBan := banned
	shadowBan.Check.Shadow = true
	exports := result("exports", algorithms.MaxInFlight(2), 1, 0)
	exportsFull := denied(result("exports", algorithms.MaxInFlight(2), 0, 0), time.Second)

	month := result("plan", algorithms.PerMonth(1000, "UTC"), 7, 734_400*time.Second)
	monthOver := denied(result("plan", algorithms.PerMonth(1000, "UTC"), 0, 734_400*time.Second), 734_400*time.Second)

	second := result("plan", algorithms.PerSecond(10), 3, time.Second)
	secondOver := denied(result("plan", algorithms.PerSecond(10), 0, time.Second), time.Second)

	bucket := result("plan", algorithms.Limit{Rate: 5, Period: time.Second, Burst: 20}, 9, 3*time.Second)

	shadow := denied(result("trial", algorithms.PerHour(1), 0, time.Hour), time.Hour)
	shadow.Check.Shadow = true

	return map[string]algorithms.Decision{
		"admitted":                   threeRules(),
		"admitted, of cost 4":        decision(result("per-ip", algorithms.PerMinute(200), 10, time.Minute), costly(4, 1)),
		"admitted, a bucket":         decision(result("bucket", algorithms.Limit{Rate: 100, Period: time.Minute, Burst: 250, Algorithm: algorithms.TokenBucket}, 249, 600*time.Millisecond)),
		"admitted, below a second":   decision(result("fast", algorithms.Limit{Rate: 10, Period: 100 * time.Millisecond}, 9, 50*time.Millisecond)),
		"admitted, in flight":        decision(exports),
		"admitted, in flight too":    decision(exports, login(3)),
		"denied, in flight":          decision(exportsFull),
		"denied, in flight, a rate":  decision(exportsFull, login(3)),
		"admitted, two windows":      decision(login(5), second, month),
		"denied, one of two windows": decision(login(5), second, monthOver),
		"denied, two windows":        decision(secondOver, monthOver),
		"admitted, two algorithms":   decision(second, month, bucket),
		"admitted, a month":          decision(month),
		"denied, a month":            decision(monthOver, login(3)),
		"denied, a month and a day":  decision(monthOver, denied(result("daily", algorithms.Limit{Rate: 9, Period: 24 * time.Hour}, 0, 9000*time.Second), 8000*time.Second)),
		"admitted, a shadow over":    decision(shadow, login(3)),
		"admitted, fail open":        decision(open),
		"admitted, one fail open":    decision(open, login(3)),
		"admitted, names":            decision(result(`say "hi" \o/`, algorithms.PerMinute(5), 4, time.Minute), result("größer\n", algorithms.PerMinute(9), 8, time.Minute)),
		"denied, one of three":       one,
		"denied, two of three":       two,
		"denied, of cost 4":          decision(result("per-ip", algorithms.PerMinute(200), 100, time.Minute), denied(costly(4, 3), 8*time.Second)),
		"denied, never to pass":      decision(result("per-ip", algorithms.PerMinute(200), 100, time.Minute), denied(costly(6, 3), algorithms.Never)),
		"denied, fail closed":        decision(closed, result("per-ip", algorithms.PerMinute(200), 100, time.Minute)),
		"denied, closed and over":    decision(closed, denied(login(0), 4*time.Second)),
		"denied, beside a shadow":    decision(shadow, denied(login(0), 4*time.Second)),
		"denied, banned":             decision(result("per-ip", algorithms.PerMinute(200), 100, time.Minute), banned),
		"denied, a ban in shadow":    decision(denied(login(0), 4*time.Second), shadowBan),
		"denied, closed, no ban":     decision(closed, shadowBan),
		"denied, one rule twice":     decision(denied(login(0), 4*time.Second), denied(login(0), 4*time.Second)),
		"denied, by nothing":         {},
		"denied, one rule by names":  decision(denied(result(`say "hi" \o/`, algorithms.PerMinute(5), 0, time.Minute), time.Minute)),
	}
}

// TestGolden compares everything that clients get with testdata/headers: a file
// for each case, with what each Writer sets and, for a denial, whole responses.
func TestGolden(t *testing.T) {
	dir := filepath.Join("..", "testdata", "headers")
	cases := goldenCases()
	for name, d := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, goldenName(name))
			got := golden(name, d)
			if *update {
				if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(path, []byte(got), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("%v; run the test with -update", err)
			}
			if got != string(want) {
				t.Errorf("%s: got\n%s\nwant\n%s", path, got, want)
			}
		})
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != len(cases) {
		t.Errorf("%d files in %s for %d cases (%v): remove those of old cases", len(files), dir, len(cases), err)
	}
}

// TestDocsShowWhatIsWritten finds every example of docs/headers.md in a golden
// file.
func TestDocsShowWhatIsWritten(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "docs", "headers.md"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for name, d := range goldenCases() {
		all.WriteString(golden(name, d) + "\n")
	}
	_, rest, found := strings.Cut(string(doc), "```http\n")
	if !found {
		t.Fatal("no examples")
	}
	for found {
		var example string
		example, rest, _ = strings.Cut(rest, "```\n")
		if !strings.Contains(all.String(), "\n\n"+example+"\n") {
			t.Errorf("not in testdata/headers:\n%s", example)
		}
		_, rest, found = strings.Cut(rest, "```http\n")
	}
}

func goldenName(name string) string {
	return strings.NewReplacer(", ", "_", " ", "_").Replace(name) + ".txt"
}

func golden(name string, d algorithms.Decision) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n", name)
	for _, w := range []struct {
		name  string
		write headers.Writer
	}{
		{"XRateLimit", headers.XRateLimit},
		{"XRateLimitDelta", headers.XRateLimitDelta},
		{"IETFDraft11", headers.IETFDraft11},
	} {
		h := http.Header{}
		w.write(h, d)
		fmt.Fprintf(&b, "\n## %s\n\n%s", w.name, fields(h))
	}
	if d.Allowed {
		return b.String()
	}
	for _, request := range []struct{ method, accept string }{
		{http.MethodGet, ""},
		{http.MethodGet, "text/html, text/plain;q=0.9"},
		{http.MethodHead, ""},
	} {
		r := httptest.NewRequest(request.method, "/", nil)
		fmt.Fprintf(&b, "\n## Deny, to a %s", request.method)
		if request.accept != "" {
			r.Header.Set("Accept", request.accept)
			fmt.Fprintf(&b, " with Accept: %s", request.accept)
		}
		w := httptest.NewRecorder()
		headers.Deny(w, r, d)
		fmt.Fprintf(&b, "\n\nHTTP/1.1 %d %s\n%s", w.Code, http.StatusText(w.Code), fields(w.Header()))
		if w.Body.Len() > 0 {
			fmt.Fprintf(&b, "\n%s", w.Body)
		}
	}
	return b.String()
}

// spelling is how people write the fields; HTTP does not tell case.
var spelling = strings.NewReplacer("X-Ratelimit-", "X-RateLimit-", "Ratelimit", "RateLimit")

func fields(h http.Header) string {
	if len(h) == 0 {
		return "(nothing)\n"
	}
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(h)) {
		for _, line := range h[key] {
			fmt.Fprintf(&b, "%s: %s\n", spelling.Replace(key), line)
		}
	}
	return b.String()
}

package headers_test

import (
	"fmt"
	"math"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"pgregory.net/rapid"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
)

// A listed item is a member of a field as an independent parser reads it.
type listed struct {
	name    string
	units   int64
	seconds int64 // -1 where there is none
}

// list parses a field and checks that it is written as RFC 9651 serialises it.
func list(t rapid.TB, h http.Header, field, units, seconds string) (items []listed) {
	t.Helper()
	lines := h.Values(field)
	if len(lines) == 0 {
		return nil
	}
	parsed, err := httpsfv.UnmarshalList(lines)
	if err != nil {
		t.Fatalf("%s: %v: %q", field, err, lines)
	}
	if canonical, err := httpsfv.Marshal(parsed); err != nil || len(lines) != 1 || canonical != lines[0] {
		t.Errorf("%s: %q is serialised as %q (%v)", field, lines, canonical, err)
	}
	for _, member := range parsed {
		m := member.(httpsfv.Item)
		item := listed{name: m.Value.(string), seconds: -1}
		for _, name := range m.Params.Names() {
			value, _ := m.Params.Get(name)
			switch name {
			case units:
				item.units = value.(int64)
			case seconds:
				item.seconds = value.(int64)
			default:
				t.Errorf("%s: parameter %s of %q", field, name, item.name)
			}
		}
		items = append(items, item)
	}
	return items
}

func policies(t rapid.TB, h http.Header) []listed { return list(t, h, "RateLimit-Policy", "q", "w") }
func limits(t rapid.TB, h http.Header) []listed   { return list(t, h, "RateLimit", "r", "t") }

const mostInteger = 999_999_999_999_999

func bounded(n int64) int64 { return min(max(n, 0), mostInteger) }

// ceil is a duration in seconds, rounded up.
func ceil(d time.Duration) int64 {
	whole := d.Truncate(time.Second)
	if whole < d {
		return int64(whole/time.Second) + 1
	}
	return int64(whole / time.Second)
}

// spelled is a name as a String can hold it.
func spelled(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		if c < ' ' || c > '~' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func drawDecision(t *rapid.T) algorithms.Decision {
	number := rapid.OneOf(rapid.Int64Range(-1, 1000), rapid.Int64())
	duration := rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.OneOf(rapid.Int64Range(0, 1000), rapid.Int64Range(0, 3e12), rapid.Int64Range(0, math.MaxInt64)).Draw(t, "ns"))
	})
	name := rapid.OneOf(rapid.String(), rapid.StringMatching(`[ -~]{0,9}`), rapid.SampledFrom([]string{"a", "b", `"`, `\`, ""}))
	d := algorithms.Decision{Allowed: true}
	for range rapid.IntRange(0, 6).Draw(t, "rules") {
		r := algorithms.Result{
			Source: algorithms.SourceRedis,
			Check: algorithms.Check{
				Rule: name.Draw(t, "rule"),
				Key:  rapid.String().Draw(t, "key"),
				Limit: algorithms.Limit{
					Rate: number.Draw(t, "rate"), Period: duration.Draw(t, "period"), Burst: number.Draw(t, "burst"),
					Algorithm: rapid.SampledFrom([]algorithms.Algorithm{0, algorithms.TokenBucket, algorithms.LeakyBucket}).Draw(t, "algorithm"),
				},
				Cost:   number.Draw(t, "cost"),
				Shadow: rapid.IntRange(0, 5).Draw(t, "shadow") == 0,
			},
			HasRoom:    rapid.IntRange(0, 2).Draw(t, "allowed") > 0,
			Remaining:  number.Draw(t, "remaining"),
			ResetAfter: duration.Draw(t, "reset"),
			At:         at,
		}
		for _, other := range d.Results { // windows of a rule have names of their own
			if l := other.Check.Limit; other.Check.Rule == r.Check.Rule {
				r.Check.Limit.Period, r.Check.Limit.Burst, r.Check.Limit.Algorithm = l.Period, l.Burst, l.Algorithm
			}
		}
		if !r.HasRoom {
			r.RetryAfter = rapid.OneOf(duration, rapid.Just(algorithms.Never)).Draw(t, "retry")
		}
		if rapid.IntRange(0, 5).Draw(t, "undecided") == 0 {
			r.Err = errAway
		}
		d.Allowed = d.Allowed && !r.Denies()
		d.Results = append(d.Results, r)
	}
	return d
}

// TestDraft11MeansWhatWasDecided writes random decisions, reads the fields with
// another library, and compares them with what the documentation says.
func TestDraft11MeansWhatWasDecided(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDecision(t)
		h := http.Header{}
		headers.IETFDraft11(h, d)

		shown := map[string][]algorithms.Result{} // several with one name: any of them may stand for it
		for _, r := range d.Results {
			if !r.Check.Shadow && r.Err == nil && (d.Allowed || !r.HasRoom) {
				shown[spelled(r.Check.Rule)] = append(shown[spelled(r.Check.Rule)], r)
			}
		}
		gotPolicies, gotLimits := policies(t, h), limits(t, h)
		if len(gotPolicies) != len(shown) {
			t.Fatalf("%d policies of %d rules: %v", len(gotPolicies), len(shown), h)
		}
		for _, p := range gotPolicies {
			if !slices.ContainsFunc(shown[p.name], func(r algorithms.Result) bool { return p == policyOf(r) }) {
				t.Errorf("policy %+v of %+v", p, shown[p.name])
			}
		}
		if tightest, ok := d.Tightest(); d.Allowed && ok {
			if want := limitOf(*tightest); len(gotLimits) != 1 || gotLimits[0] != want {
				t.Errorf("limits %+v, want %+v", gotLimits, want)
			}
			return
		}
		if len(gotLimits) != len(shown) {
			t.Fatalf("%d limits of %d rules: %v", len(gotLimits), len(shown), h)
		}
		for i, l := range gotLimits {
			if !slices.ContainsFunc(shown[l.name], func(r algorithms.Result) bool { return l == limitOf(r) }) || l.name != gotPolicies[i].name {
				t.Errorf("limit %+v of %+v", l, shown[l.name])
			}
		}
	})
}

func policyOf(r algorithms.Result) listed {
	p := listed{name: spelled(r.Check.Rule), units: bounded(r.Check.Limit.Quota()), seconds: -1}
	if l := r.Check.Limit; l.Rate > 0 && l.Period > 0 && l.Quota() > 0 {
		window := new(big.Rat).SetFrac(big.NewInt(l.Quota()), big.NewInt(l.Rate))
		window.Mul(window, new(big.Rat).SetInt64(int64(l.Period)))
		if ns := new(big.Int).Quo(window.Num(), window.Denom()); ns.IsUint64() { // a valid limit has at most 2^61
			window.Quo(window, big.NewRat(1e9, 1))
			whole, rest := new(big.Int).DivMod(window.Num(), window.Denom(), new(big.Int))
			p.seconds = whole.Int64() + int64(rest.Sign()) // rounded up
		}
	}
	return p
}

func limitOf(r algorithms.Result) listed {
	l := listed{name: spelled(r.Check.Rule), units: bounded(r.Remaining), seconds: ceil(r.ResetAfter)}
	switch {
	case r.HasRoom:
	case r.RetryAfter == algorithms.Never:
		l.seconds = -1
	default:
		l.seconds = max(ceil(r.RetryAfter), 1)
	}
	return l
}

func TestOneNameIsListedOnce(t *testing.T) {
	// One rule's check of an address, and of the network it is in.
	address := result("per-ip", algorithms.PerMinute(5), 3, time.Minute)
	network := result("per-ip", algorithms.PerMinute(50), 1, 20*time.Second)
	network.Check.Key = "net"
	h := http.Header{}
	headers.IETFDraft11(h, decision(address, network))
	if p, l := h.Get("RateLimit-Policy"), h.Get("RateLimit"); p != `"per-ip";q=5;w=60` || l != `"per-ip";r=1;t=20` {
		t.Errorf("%s and %s", p, l)
	}
	headers.IETFDraft11(h, decision(denied(address, 5*time.Second), denied(network, 9*time.Second)))
	if p, l := h.Get("RateLimit-Policy"), h.Get("RateLimit"); p != `"per-ip";q=5;w=60` || l != `"per-ip";r=1;t=9` {
		t.Errorf("%s and %s", p, l)
	}
}

package middleware_test

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed75154129/ratelimit/algorithms"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

func inRegion(share float64, rules ...ratelimit.Rule) (*ratelimit.Middleware, error) {
	return ratelimit.New(ratelimit.Config{Limiter: new(algorithms.Memory), Rules: rules, Share: share, TierFor: byHeader})
}

func TestShares(t *testing.T) {
	rule := perHour("r", 101)
	rule.Tiers = map[string][]algorithms.Limit{"pro": {{Rate: 1000, Period: time.Hour, Burst: 15}}, "internal": ratelimit.Unlimited()}
	rule.Cost = 2
	rule.LimitsFor = func(r *http.Request) []algorithms.Limit {
		if l, err := algorithms.ParseLimit(r.Header.Get("Limit")); err == nil {
			return []algorithms.Limit{l}
		}
		return nil
	}
	for _, c := range []struct {
		share             float64
		tier, limit, want string
	}{
		{0, "", "", "101/1h 2"},
		{1, "", "", "101/1h 2"},
		{0.5, "", "", "50/1h 2"},
		{0.5, "pro", "", "500/1h burst 7 2"},
		{0.5, "internal", "", ""},
		{0.29, "", "", "29/1h 2"}, // 28.99… in floating-point numbers
		{0.29, "", "100/1h", "29/1h 2"},
		{0.5, "", "7/1m", "3/1m 2"},
		{0.5, "", "1/1m", "50/1h 2"}, // half of one unit is none
		{0.5, "", "3/1m", "1/1m 2"},  // less than the cost: denied
		{0, "", "1/1m", "1/1m 2"},
		{0, "", "9 in flight", "101/1h 2"},
		{0.25, "", "999999999999999/1s fixed_window", "249999999999999/1s fixed_window 2"},
		{1.0 / 3, "", "", "33/1h 2"},
	} {
		m, err := inRegion(c.share, rule)
		if err != nil {
			t.Fatal(err)
		}
		if got := checked(t, m, request("GET /", "Tier", c.tier, "Limit", c.limit))["r"]; got != c.want {
			t.Errorf("%v of tier %q, limit %q: %s, want %s", c.share, c.tier, c.limit, got, c.want)
		}
		if got := m.Rules()[0].Limit; got != rule.Limit {
			t.Errorf("the rules say %s", got)
		}
	}
}

// Rounded up, a share would admit more than the limit in all regions together.
func TestSharesThatAreTooSmallAreRefused(t *testing.T) {
	costly := perHour("costly", 10)
	costly.Costs = map[string]int64{"/reports": 6}
	tiered := perHour("tiered", 100)
	tiered.Cost, tiered.Tiers = 3, map[string][]algorithms.Limit{"small": {algorithms.PerHour(5)}, "internal": ratelimit.Unlimited()}
	slow := perHour("slow", 100)
	slow.Limit = algorithms.Limit{Rate: 1, Period: time.Hour, Burst: 50}
	overridden := perHour("overridden", 100)
	overridden.Overrides = []ratelimit.Override{override(algorithms.PerHour(1), "192.0.2.1")}
	_, err := inRegion(0.5, costly, tiered, slow, overridden, perHour("one", 1), perHour("enough", 2))
	want := []string{
		`middleware: rule "costly": limit: the share 0.5 of 10/1h holds 5 units, and a request costs up to 6`,
		`middleware: rule "tiered": tiers.small: the share 0.5 of 5/1h holds 2 units, and a request costs up to 3`,
		`middleware: rule "slow": limit: the share 0.5 of 1/1h burst 50 is less than one unit`,
		`middleware: rule "overridden": overrides[0].limit: the share 0.5 of 1/1h is less than one unit`,
		`middleware: rule "one": limit: the share 0.5 of 1/1h is less than one unit`,
	}
	lines := strings.Split(fmt.Sprint(err), "\n")
	for i := range max(len(want), len(lines)) {
		if i >= len(lines) || i >= len(want) || !strings.HasPrefix(lines[i], want[i]) {
			t.Fatalf("got\n%v\nwant\n%s", err, strings.Join(want, "\n"))
		}
	}
	if mistake, ok := errors.AsType[*ratelimit.RuleError](err); !ok || mistake.Index != 0 || mistake.Field != "Limit" {
		t.Errorf("%+v", mistake)
	}

	m, err := inRegion(0.5, perHour("enough", 2))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.SetRules([]ratelimit.Rule{perHour("one", 1)}); err == nil || m.Rules()[0].Name != "enough" {
		t.Errorf("SetRules: %v", err)
	}
	for _, share := range []float64{-0.1, 1.1, math.NaN(), math.Inf(1), 50} {
		if _, err := inRegion(share, perHour("r", 100)); err == nil || !strings.HasPrefix(err.Error(), "middleware: share: must be above 0 and at most 1") {
			t.Errorf("%v: %v", share, err)
		}
	}
	if _, err := inRegion(1e-300, perHour("r", 100)); err == nil || !strings.Contains(err.Error(), "less than one unit") {
		t.Errorf("1e-300: %v", err)
	}
}

// Hundredths that add up to 1, and any limit.
func TestSharesNeverExceedTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := algorithms.Limit{Rate: rapid.Int64Range(1, 999_999_999_999_999).Draw(t, "rate"), Period: time.Second, Algorithm: algorithms.FixedWindow}
		if rapid.Bool().Draw(t, "bucket") {
			limit.Algorithm, limit.Burst = algorithms.TokenBucket, rapid.Int64Range(1, 1e9).Draw(t, "burst")
		}
		var rate, burst int64
		for left := 100; left > 0; {
			part := rapid.IntRange(1, left).Draw(t, "part")
			left -= part
			m, err := inRegion(float64(part)/100, ratelimit.Rule{Name: "r", Key: perHour("", 1).Key, Limit: limit})
			if err != nil {
				continue // refused: this region admits nothing
			}
			d, err := m.Peek(request("GET /"))
			if err != nil {
				t.Fatal(err)
			}
			rate, burst = rate+d.Results[0].Check.Limit.Rate, burst+d.Results[0].Check.Limit.Burst
		}
		if rate > limit.Rate || burst > limit.Burst {
			t.Errorf("%s: %d and burst %d together", limit, rate, burst)
		}
	})
}

package middleware_test

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// validated returns the mistakes in a valid rule that was changed, as "Field: text".
func validated(change func(*ratelimit.Rule)) (mistakes []string) {
	rule := ratelimit.Rule{Name: "r", Key: keyfunc.IP, Limit: algorithms.PerMinute(100)}
	change(&rule)
	err := ratelimit.ValidateRules([]ratelimit.Rule{rule})
	if err == nil {
		return nil
	}
	for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
		mistake, _ := errors.AsType[*ratelimit.RuleError](err)
		mistakes = append(mistakes, fmt.Sprintf("%s: %v", mistake.Field, mistake.Err))
	}
	return mistakes
}

func bucket(rate int64) algorithms.Limit {
	return algorithms.Limit{Rate: rate, Period: time.Minute, Algorithm: algorithms.TokenBucket}
}

var unlimited = ratelimit.Unlimited()[0]

func TestWhatRulesMaySay(t *testing.T) {
	for name, change := range map[string]func(*ratelimit.Rule){
		"tiers": func(r *ratelimit.Rule) {
			r.Tiers = map[string][]algorithms.Limit{"pro": {bucket(1000)}, "internal": ratelimit.Unlimited()}
		},
		"costs that are as high as the limit": func(r *ratelimit.Rule) { r.Costs = map[string]int64{"POST /a": 100, "/a/": 1} },
		"costs by more and less specific patterns": func(r *ratelimit.Rule) {
			r.Costs = map[string]int64{"/a/{x}": 2, "/a/b": 3, "POST /a/b": 4, "/": 5}
		},
		"statuses": func(r *ratelimit.Rule) { r.ChargeOn = []int{200, 401, 599} },
		"several limits, with a ban": func(r *ratelimit.Rule) {
			r.Limit, r.Limits = algorithms.Limit{}, []algorithms.Limit{algorithms.PerSecond(10), algorithms.PerMinute(100), bucket(100), algorithms.PerMonth(1000, "UTC")}
			r.Ban = algorithms.Ban{After: 5, Within: time.Minute, For: time.Hour}
		},
		"statuses of a month": func(r *ratelimit.Rule) {
			r.ChargeOn, r.Limit = []int{401}, algorithms.PerMonth(5, "Europe/Berlin")
		},
		"statuses of log": func(r *ratelimit.Rule) { r.ChargeOn, r.Limit.Algorithm = []int{401}, algorithms.SlidingLog },
		"a ban":           func(r *ratelimit.Rule) { r.Ban = algorithms.Ban{After: 1, For: 10 * time.Millisecond} },
		"all of a ban": func(r *ratelimit.Rule) {
			r.Ban = algorithms.Ban{After: 1 << 60, Within: time.Hour, For: 720 * time.Hour}
		},
		"all in shadow":           func(r *ratelimit.Rule) { r.Shadow = true },
		"a part in shadow":        func(r *ratelimit.Rule) { r.Shadow, r.Enforce = true, 5e-324 },
		"all enforced, in shadow": func(r *ratelimit.Rule) { r.Shadow, r.Enforce = true, 1 },
	} {
		if got := validated(change); got != nil {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestMistakesInRules(t *testing.T) {
	for _, c := range []struct {
		change func(*ratelimit.Rule)
		want   []string // beginnings
	}{
		{func(r *ratelimit.Rule) { r.Limit, r.Limits = algorithms.Limit{}, ratelimit.Unlimited() }, []string{
			"Limits: Unlimited is for a tier, an override or LimitsFor, alone and not beside other limits; to turn a whole rule off, leave it out or set Shadow",
		}},
		{func(r *ratelimit.Rule) { r.Limits = []algorithms.Limit{algorithms.PerSecond(10)} }, []string{"Limits: set beside Limit; set one of the two"}},
		{func(r *ratelimit.Rule) { r.Limit, r.Limits = algorithms.Limit{}, []algorithms.Limit{} }, []string{"Limits: 0 limits; write 1 to 8"}},
		{func(r *ratelimit.Rule) {
			r.Limit, r.Limits = algorithms.Limit{}, []algorithms.Limit{algorithms.PerMinute(5), algorithms.PerMonth(9, "UTC"), {Rate: 7, Period: time.Minute}, algorithms.PerMonth(8, "UTC")}
			r.Tiers = map[string][]algorithms.Limit{
				"a": {}, "b": {algorithms.MaxInFlight(2), algorithms.PerHour(30)}, "c": {unlimited, algorithms.PerHour(30)},
				"d": slices.Repeat([]algorithms.Limit{algorithms.PerHour(30)}, 9),
			}
		}, []string{
			"Limits: 5/1m and 7/1m are one count; keep one of them", "Limits: 9/month@UTC and 8/month@UTC are one count",
			`Tiers: tier "a": 0 limits; write 1 to 8`, `Tiers: tier "b": 2 in flight counts requests, and other limits may count units; write two rules`,
			`Tiers: tier "c": Unlimited is for a tier, an override or LimitsFor, alone`, `Tiers: tier "d": 9 limits; write 1 to 8`,
		}},
		{func(r *ratelimit.Rule) {
			r.Limit, r.Limits, r.Cost = algorithms.Limit{}, []algorithms.Limit{algorithms.PerSecond(10), algorithms.PerMonth(1000, "UTC")}, 11
			r.Ban, r.Lease = algorithms.Ban{After: 5, For: time.Hour}, true
		}, []string{
			"Cost: 11 is above the 10 units that the limit 10/1s can hold",
			"Lease: units can be taken in batches only by fixed_window and sliding_window, and the limit 1000/month@UTC is neither",
			"Lease: does not go with several limits, which have room together; lease by a rule of its own", "Lease: does not go with a ban",
			"Ban: needs within, since the periods of several limits differ",
		}},
		{func(r *ratelimit.Rule) { r.Tiers = map[string][]algorithms.Limit{"": {bucket(5)}} }, []string{
			`Tiers: a tier needs a name`,
		}},
		{func(r *ratelimit.Rule) {
			r.Tiers = map[string][]algorithms.Limit{"pro": {{Rate: 0, Period: time.Minute}}, "a\nb": {{Rate: 5, Period: 1}}}
		}, []string{
			`Tiers: tier "a\nb": there is a character in it`, `Tiers: tier "a\nb": the period 1ns is below 10ms`, `Tiers: tier "pro": rate must be at least 1, got 0`,
		}},
		{func(r *ratelimit.Rule) {
			r.Tiers = map[string][]algorithms.Limit{"": ratelimit.Unlimited(), "pro ": ratelimit.Unlimited(), "Pro": {bucket(5)}, "pro": {bucket(5)}, "PRO": {bucket(5)}, "a\u200bb": {bucket(5)}, "über uns": {bucket(5)}}
		}, []string{
			`Tiers: a tier needs a name`, `Tiers: tier "Pro": differs from "PRO" only in case; keep the one`,
			`Tiers: tier "a\u200bb": there is a character in it that is not visible`, `Tiers: tier "pro": differs from "Pro" only in case`,
			`Tiers: tier "pro ": there is white space around it; write "pro"`,
		}},
		{func(r *ratelimit.Rule) {
			r.Match = []string{"POST /a", "/b/"}
			r.Costs = map[string]int64{"/a": 1, "/{x}": 2, "/b/{y}": 3, "GET /a": 4, "/c": 5}
		}, []string{
			`Costs: pattern "/c": the rule matches no such request, so the cost would never apply`, `Costs: pattern "GET /a": the rule matches no such request`,
		}},
		{func(r *ratelimit.Rule) {
			r.Match, r.Costs = []string{"POST /a", "/c/*"}, map[string]int64{"/c": 5} // it may be what the bad one means
		}, []string{`Match: pattern "/c/*": * is no wildcard`}},
		{func(r *ratelimit.Rule) { r.Match = slices.Repeat([]string{"/*"}, 1001) }, []string{"Match: 1001 patterns; at most 1000"}},
		{func(r *ratelimit.Rule) { r.Cost, r.Tiers = 50, map[string][]algorithms.Limit{"free": {bucket(49)}} }, []string{
			`Cost: 50 is above the 49 units that tier "free"'s limit 49/1m token_bucket can hold`,
		}},
		{func(r *ratelimit.Rule) {
			r.Cost, r.Costs = 50, map[string]int64{"/a": 45}
			r.Tiers = map[string][]algorithms.Limit{"free": {bucket(49)}, "trial": {bucket(40)}, "pro": {bucket(50)}}
		}, []string{
			`Cost: 50 is above the 49 units that tier "free"'s limit`, `Cost: 50 is above the 40 units that tier "trial"'s limit`,
			`Costs: pattern "/a": 45 is above the 40 units that tier "trial"'s limit`,
		}},
		{func(r *ratelimit.Rule) {
			r.Cost, r.Tiers = 50, make(map[string][]algorithms.Limit)
			for i := range 12 {
				r.Tiers[fmt.Sprintf("tier %02d", i)] = []algorithms.Limit{bucket(int64(30 + i))}
			}
		}, []string{
			`Cost: 50 is above the 30 units`, `Cost: 50 is above the 31 units`, `Cost: 50 is above the 32 units`, `Cost: 50 is above the 33 units`,
			`Cost: 50 is above the 34 units`, `Cost: 50 is above the 35 units`, `Cost: 50 is above the 36 units`, `Cost: 50 is above the 37 units`,
			`Cost: 50 is above the 38 units`, `Cost: 50 is above the 39 units`, `Cost: 50 is above what 2 further limits can hold`,
		}},
		{func(r *ratelimit.Rule) { r.Costs = map[string]int64{"POST /a": 101, "POST /b": 0, "/c": -3, "/d/*": 1} }, []string{
			`Costs: pattern "/c": must cost at least 1, got -3`,
			`Costs: pattern "/d/*": * is no wildcard`,
			`Costs: pattern "POST /a": 101 is above the 100 units that the limit 100/1m can hold`,
			`Costs: pattern "POST /b": must cost at least 1, got 0`,
		}},
		{func(r *ratelimit.Rule) { r.Costs = map[string]int64{"/a/{x}": 1, "/a/{y}": 2, "/{z}/b": 3, "/c": 4} }, []string{
			`Costs: pattern "/a/{y}": conflicts with "/a/{x}": /a/{y} matches the same requests as /a/{x}; make one more specific`,
			`Costs: pattern "/{z}/b": conflicts with "/a/{x}": /{z}/b and /a/{x} both match some paths, like "/a/b". But neither is more specific`,
		}},
		{func(r *ratelimit.Rule) { r.ChargeOn = []int{} }, []string{"ChargeOn: empty"}},
		{func(r *ratelimit.Rule) { r.ChargeOn = []int{401, 199, 600, 401} }, []string{
			"ChargeOn: status 199: must be 200 to 599", "ChargeOn: status 600: must be", "ChargeOn: status 401: listed twice",
		}},
		{func(r *ratelimit.Rule) {
			r.ChargeOn, r.Limit, r.Tiers = []int{401}, algorithms.Limit{Rate: 5, Period: time.Minute, Burst: 9}, map[string][]algorithms.Limit{"pro": {bucket(9)}}
		}, []string{
			"ChargeOn: needs a window, from which all can be given back, and the limit 5/1m burst 9 is none; use fixed_window",
			`ChargeOn: needs a window, from which all can be given back, and tier "pro"'s limit 9/1m token_bucket is none`,
		}},
		{func(r *ratelimit.Rule) { r.Ban = algorithms.Ban{Within: time.Minute} }, []string{
			"Ban: after: must be at least 1", "Ban: for: must be at least 1µs, got 0s",
		}},
		{func(r *ratelimit.Rule) { r.Ban = algorithms.Ban{After: 1, Within: -1, For: 1500} }, []string{
			"Ban: for: 1.5µs is below 10ms", "Ban: within: must be at least 1µs, got -1ns",
		}},
		{func(r *ratelimit.Rule) { r.Ban = algorithms.Ban{After: 1, For: math.MaxInt64 / 1000 * 1000} }, []string{
			"Ban: for: must be below 2^52 µs",
		}},
		{func(r *ratelimit.Rule) { r.Ban = algorithms.Ban{After: 1, Within: 9 * time.Millisecond, For: 1000} }, []string{
			"Ban: for: 1µs is below 10ms", "Ban: within: 9ms is below 10ms",
		}},
		{func(r *ratelimit.Rule) {
			r.Ban, r.Key = algorithms.Ban{After: 1, For: time.Hour}, keyfunc.Hashed(keyfunc.Everyone, nil)
		}, []string{
			"Ban: all clients have one key",
		}},
		{func(r *ratelimit.Rule) {
			r.Limit.Period, r.Tiers = 60000, map[string][]algorithms.Limit{"pro": {{Rate: 5, Period: 9999 * time.Microsecond}}}
		}, []string{
			"Limit: the period 60µs is below 10ms; a number without a unit", `Tiers: tier "pro": the period 9.999ms is below 10ms`,
		}},
		{func(r *ratelimit.Rule) {
			r.Limit, r.Lease, r.Ban = algorithms.PerMonth(5, "UTC"), true, algorithms.Ban{After: 1, For: time.Hour}
		}, []string{
			"Lease: units can be taken in batches only by fixed_window and sliding_window, and the limit 5/month@UTC is neither", "Lease: does not go with a ban",
			"Ban: denials by calendar windows lead to no ban",
		}},
		{func(r *ratelimit.Rule) {
			r.Limit, r.Tiers = algorithms.PerDay(5, ""), map[string][]algorithms.Limit{"pro": {algorithms.PerMonth(5, "Mars/Olympus")}}
		}, []string{
			"Limit: calendar day@ needs a time zone; write day@UTC", `Tiers: tier "pro": calendar "month@Mars/Olympus": this program cannot load the time zone`,
		}},
		{func(r *ratelimit.Rule) {
			r.Limit, r.Ban, r.Lease = algorithms.PerHour(5), algorithms.Ban{After: 1, For: time.Hour}, true
			r.Tiers = map[string][]algorithms.Limit{"pro": {algorithms.PerMinute(9), algorithms.PerMinute(7)}, "max": {algorithms.PerMonth(9, "UTC")}}
		}, []string{
			`Tiers: tier "pro": 9/1m and 7/1m are one count`,
			"Lease: units can be taken",
			"Lease: does not go with several limits", "Lease: does not go with a ban",
			`Ban: by tier "max": denials by calendar windows`, `Ban: by tier "pro": needs within`,
		}},
		{func(r *ratelimit.Rule) { r.Limit, r.Costs = algorithms.MaxInFlight(20), map[string]int64{"/": 1} }, []string{
			"Costs: a request in flight costs 1; leave it out, and count units by another rule",
		}},
		{func(r *ratelimit.Rule) {
			r.Limit, r.CostFor = algorithms.MaxInFlight(20), func(*http.Request) int64 { return 1 }
		}, []string{"CostFor: a request in flight costs 1"}},
		{func(r *ratelimit.Rule) { r.Limit = algorithms.MaxInFlight(20); r.Limit.Period = 500 * time.Millisecond }, []string{`Limit: the lease of in_flight must be at least 1s, got 500ms: a process renews it each third; write as in "20 in flight" or "20/5m in_flight"`}},
		{func(r *ratelimit.Rule) { r.Shadow, r.Enforce = true, 10 }, []string{"Enforce: must be 0 to 1, the fraction of keys that are limited; got 10"}},
		{func(r *ratelimit.Rule) { r.Shadow, r.Enforce = true, -0.1 }, []string{"Enforce: must be 0 to 1"}},
		{func(r *ratelimit.Rule) { r.Enforce = math.NaN() }, []string{"Enforce: must be 0 to 1"}},
		{func(r *ratelimit.Rule) { r.Enforce = 0.1 }, []string{"Enforce: needs shadow: without it the rule is enforced for all keys"}},
		{func(r *ratelimit.Rule) { r.Lease, r.Limit = true, bucket(5) }, []string{
			"Lease: units can be taken in batches only by fixed_window and sliding_window, and the limit 5/1m token_bucket is neither",
		}},
		{func(r *ratelimit.Rule) { r.Lease, r.Limit.Algorithm = true, algorithms.SlidingLog }, []string{"Lease: units can"}},
		{func(r *ratelimit.Rule) {
			r.Lease, r.ChargeOn, r.Ban = true, []int{401}, algorithms.Ban{After: 1, For: time.Minute}
		}, []string{"Lease: does not go with charging by response", "Lease: does not go with a ban"}},
	} {
		got := validated(c.change)
		same := len(got) == len(c.want)
		for i := range min(len(got), len(c.want)) {
			same = same && strings.HasPrefix(got[i], c.want[i])
		}
		if !same {
			t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(c.want, "\n\t"))
		}
	}
}

// A request is compared with each rule.
func TestRulesAreBounded(t *testing.T) {
	rules := make([]ratelimit.Rule, 1000)
	for i := range rules {
		rules[i] = perHour(fmt.Sprintf("r%d", i), 5)
	}
	if err := ratelimit.ValidateRules(rules); err != nil {
		t.Error(err)
	}
	err := ratelimit.ValidateRules(slices.Concat(rules, []ratelimit.Rule{perHour("last", 5), perHour("last", 5)}))
	if err == nil || err.Error() != `middleware: rule "last": 1002 rules; at most 1000` {
		t.Error(err)
	}
	for i := range rules {
		rules[i].Match, rules[i].Costs = slices.Repeat([]string{"/a"}, 9), map[string]int64{"/a": 1}
	}
	if err := ratelimit.ValidateRules(rules); err != nil {
		t.Error(err)
	}
	rules[990].Costs = map[string]int64{"/a": 1, "/a/": 1}
	if err := ratelimit.ValidateRules(rules); err == nil || err.Error() != `middleware: rule "r999": with this rule there are 10001 patterns; at most 10000 in all rules` {
		t.Error(err)
	}
}

// Patterns that may conflict are compared with each other, and costs with the limits
// of tiers; a million are not.
func TestEntriesAreBounded(t *testing.T) {
	costs, tiers := make(map[string]int64), make(map[string][]algorithms.Limit)
	for i := range 1000 {
		costs[fmt.Sprintf("/{a}/%d/{b}", i)] = 1
		tiers[fmt.Sprint(i)] = []algorithms.Limit{bucket(5)}
	}
	if got := validated(func(r *ratelimit.Rule) { r.Costs, r.Tiers = costs, tiers }); got != nil {
		t.Error(got)
	}
	costs["/"], tiers["x"] = 1, []algorithms.Limit{bucket(5)}
	got := validated(func(r *ratelimit.Rule) { r.Costs, r.Tiers = costs, tiers })
	if want := []string{"Tiers: 1001 tiers; at most 1000", "Costs: 1001 patterns; at most 1000"}; !slices.Equal(got, want) {
		t.Error(got)
	}
	clear(costs)
	for i := range 500 {
		costs[fmt.Sprintf("/{a}/%d", i)], costs[fmt.Sprintf("/%d/{a}", i)] = 1, 1
	}
	if got := validated(func(r *ratelimit.Rule) { r.Costs = costs }); len(got) != 10 || !strings.Contains(got[9], "conflicts with") {
		t.Errorf("%d: %s", len(got), got[len(got)-1])
	}
}

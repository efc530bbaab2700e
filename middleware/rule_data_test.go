package middleware_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/pattern"
	"github.com/seed75154129/ratelimit/internal/view"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

// changed is a valid rule, but for a change.
func changed(change func(*ratelimit.Rule)) ratelimit.Rule {
	rule := ratelimit.Rule{Name: "r", Key: keyfunc.IP, Limit: algorithms.PerMinute(100)}
	change(&rule)
	return rule
}

// each returns the texts of joined errors, without their beginnings.
func each(err error, prefix string) (texts []string) {
	for _, err := range view.Each(err) {
		_, text, _ := strings.Cut(err.Error(), prefix)
		texts = append(texts, text)
	}
	return texts
}

// validated returns the mistakes in a rule.
func validated(change func(*ratelimit.Rule)) []string {
	return each(ratelimit.ValidateRules([]ratelimit.Rule{changed(change)}), `rule "r": `)
}

// inFile writes a rule as a document; false if a document cannot say it.
func inFile(r *ratelimit.Rule) (document []byte, ok bool) {
	ok = r.Key == keyfunc.IP && r.Overrides == nil && r.CostFor == nil && r.Fail == failmode.Local && (r.Limits == nil || r.Limit == algorithms.Limit{})
	list := func(limits []algorithms.Limit) any {
		if len(limits) == 1 && limits[0] == unlimited {
			return "unlimited"
		}
		for _, l := range limits {
			read, _ := algorithms.ParseLimit(l.String())
			ok = ok && read == l
		}
		ok = ok && len(limits) > 0
		return limits
	}

	rule := map[string]any{"name": r.Name, "key": "ip", "limit": list([]algorithms.Limit{r.Limit}), "shadow": r.Shadow, "enforce": r.Enforce}
	if r.Limits != nil {
		rule["limit"] = list(r.Limits)
	}
	if r.Tiers != nil {
		tiers := make(map[string]any)
		for tier, limits := range r.Tiers {
			tiers[tier] = list(limits)
			ok = ok && !strings.ContainsFunc(tier, pattern.Invisible)
		}
		rule["tiers"] = tiers
	}
	if r.Match != nil {
		rule["match"] = r.Match
	}
	if r.Cost != 0 {
		rule["cost"] = r.Cost
	}
	if r.Costs != nil {
		rule["costs"] = r.Costs
	}
	if r.ChargeOn != nil {
		rule["charge_on"] = r.ChargeOn
	}
	if r.Ban != (ratelimit.Ban{}) {
		ban := map[string]any{"after": r.Ban.After, "for": view.Span(r.Ban.For)}
		if r.Ban.Within != 0 {
			ban["within"] = view.Span(r.Ban.Within)
		}
		rule["ban"] = ban
	}
	if r.Sync != 0 {
		rule["sync"] = view.Span(r.Sync)
	}
	if r.RetryAfter != 0 {
		rule["retry_after"] = view.Span(r.RetryAfter)
	}
	if r.Note != "" {
		rule["note"] = r.Note
	}
	document, err := json.Marshal(map[string]any{"version": 1, "rules": []any{rule}})
	return document, err == nil && ok
}

// byItsForm are parts of what a rule file says of a value that has not the form of its
// field, so that no rule can be made of it.
var byItsForm = []string{"unlimited is for", "must be a whole number", "must be at least 1, got", "must be 0 to 1, ", "is empty; ", " is not a duration; ", " is too short or too long; "}

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
			r.Ban = ratelimit.Ban{After: 5, Within: time.Minute, For: time.Hour}
		},
		"statuses of a month": func(r *ratelimit.Rule) {
			r.ChargeOn, r.Limit = []int{401}, algorithms.PerMonth(5, "Europe/Berlin")
		},
		"statuses of log": func(r *ratelimit.Rule) { r.ChargeOn, r.Limit.Algorithm = []int{401}, algorithms.SlidingLog },
		"a ban":           func(r *ratelimit.Rule) { r.Ban = ratelimit.Ban{After: 1, For: 10 * time.Millisecond} },
		"all of a ban": func(r *ratelimit.Rule) {
			r.Ban = ratelimit.Ban{After: 10_001, Within: time.Hour, For: 720 * time.Hour}
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

// Every mistake is found, and New, SetRules and rule files say the same about it, and no secret.
func TestMistakesInRules(t *testing.T) {
	overridden := func(key keyfunc.Key, client ...string) func(*ratelimit.Rule) {
		return func(r *ratelimit.Rule) {
			r.Overrides = []ratelimit.Override{override(algorithms.PerHour(5), client...)}
			if key != nil {
				r.Key = key
			}
		}
	}
	m, inFiles, said := inMemory(t, perHour("before", 5)), 0, make(map[string]bool)
	for _, c := range []struct {
		change func(*ratelimit.Rule)
		want   []string // beginnings
	}{
		{func(r *ratelimit.Rule) { r.Limit, r.Limits = algorithms.Limit{}, ratelimit.Unlimited() }, []string{
			"limits: Unlimited is for a tier, an override or LimitsFor, alone and not beside other limits; to turn a whole rule off, leave it out or set Shadow",
		}},
		{func(r *ratelimit.Rule) { r.Limits = []algorithms.Limit{algorithms.PerSecond(10)} }, []string{"limits: set beside Limit; set one of the two"}},
		{func(r *ratelimit.Rule) { r.Limit, r.Limits = algorithms.Limit{}, []algorithms.Limit{} }, []string{"limits: 0 limits; write 1 to 8"}},
		{func(r *ratelimit.Rule) {
			r.Limit, r.Limits = algorithms.Limit{}, []algorithms.Limit{algorithms.PerMinute(5), algorithms.PerMonth(9, "UTC"), {Rate: 7, Period: time.Minute}, algorithms.PerMonth(8, "UTC")}
			r.Tiers = map[string][]algorithms.Limit{
				"a": {}, "b": {algorithms.MaxInFlight(2), algorithms.PerHour(30)}, "c": {unlimited, algorithms.PerHour(30)},
				"d": slices.Repeat([]algorithms.Limit{algorithms.PerHour(30)}, 9),
			}
		}, []string{
			"limits: 5/1m and 7/1m are one count; keep one of them", "limits: 9/month@UTC and 8/month@UTC are one count",
			`tiers.a: 0 limits; write 1 to 8`, `tiers.b: 2 in flight counts requests, and other limits may count units; write two rules`,
			`tiers.c: Unlimited is for a tier, an override or LimitsFor, alone`, `tiers.d: 9 limits; write 1 to 8`,
		}},
		{func(r *ratelimit.Rule) {
			r.Limit, r.Limits, r.Cost = algorithms.Limit{}, []algorithms.Limit{algorithms.PerSecond(10), algorithms.PerMonth(1000, "UTC")}, 11
			r.Ban, r.Sync = ratelimit.Ban{After: 5, For: time.Hour}, 100*time.Millisecond
		}, []string{
			"cost: 11 is above the 10 units that the limit 10/1s can hold",
			"ban: needs within, since the periods of several limits differ",
			"sync: does not go with a ban", "sync: 100ms is more than a twentieth of the period of the limit 10/1s; write 50ms or less",
		}},
		{func(r *ratelimit.Rule) { r.Tiers = map[string][]algorithms.Limit{"": {bucket(5)}} }, []string{
			`tiers[""]: a tier needs a name`,
		}},
		{func(r *ratelimit.Rule) {
			r.Tiers = map[string][]algorithms.Limit{"pro": {{Rate: 0, Period: time.Minute}}, "a\nb": {{Rate: 5, Period: 1}}}
		}, []string{
			`tiers["a\nb"]: there is a character in it`, `tiers["a\nb"]: the period 1ns is below 10ms`, `tiers.pro: rate must be at least 1, got 0`,
		}},
		{func(r *ratelimit.Rule) {
			r.Tiers = map[string][]algorithms.Limit{"": ratelimit.Unlimited(), "pro ": ratelimit.Unlimited(), "Pro": {bucket(5)}, "pro": {bucket(5)}, "PRO": {bucket(5)}, "a\u200bb": {bucket(5)}, "über uns": {bucket(5)}}
		}, []string{
			`tiers[""]: a tier needs a name`, `tiers.Pro: differs from "PRO" only in case; keep the one`,
			`tiers["a\u200bb"]: there is a character in it that is not visible`, `tiers.pro: differs from "Pro" only in case`,
			`tiers["pro "]: there is white space around it; write "pro"`,
		}},
		{func(r *ratelimit.Rule) {
			r.Match = []string{"POST /a", "/b/"}
			r.Costs = map[string]int64{"/a": 1, "/{x}": 2, "/b/{y}": 3, "GET /a": 4, "/c": 5}
		}, []string{
			`costs["/c"]: the rule matches no such request, so the cost would never apply`, `costs["GET /a"]: the rule matches no such request`,
		}},
		{func(r *ratelimit.Rule) {
			r.Match, r.Costs = []string{"POST /a", "/c/*"}, map[string]int64{"/c": 5} // it may be what the bad one means
		}, []string{`match[1]: pattern "/c/*": * is no wildcard`}},
		{func(r *ratelimit.Rule) { r.Match = slices.Repeat([]string{"/*"}, 1001) }, []string{"match: 1001 patterns; at most 1000"}},
		{func(r *ratelimit.Rule) { r.Cost, r.Tiers = 50, map[string][]algorithms.Limit{"free": {bucket(49)}} }, []string{
			`cost: 50 is above the 49 units that tier "free"'s limit 49/1m token_bucket can hold`,
		}},
		{func(r *ratelimit.Rule) {
			r.Cost, r.Costs = 50, map[string]int64{"/a": 45}
			r.Tiers = map[string][]algorithms.Limit{"free": {bucket(49)}, "trial": {bucket(40)}, "pro": {bucket(50)}}
		}, []string{
			`cost: 50 is above the 49 units that tier "free"'s limit`, `cost: 50 is above the 40 units that tier "trial"'s limit`,
			`costs["/a"]: 45 is above the 40 units that tier "trial"'s limit`,
		}},
		{func(r *ratelimit.Rule) {
			r.Cost, r.Tiers = 50, make(map[string][]algorithms.Limit)
			for i := range 22 {
				r.Tiers[fmt.Sprintf("tier %02d", i)] = []algorithms.Limit{bucket(int64(10 + i))}
			}
		}, func() (want []string) {
			for i := range 20 {
				want = append(want, fmt.Sprintf(`cost: 50 is above the %d units that tier "tier %02d"'s limit`, 10+i, i))
			}
			return append(want, "cost: and 2 more")
		}()},
		{func(r *ratelimit.Rule) { r.Costs = map[string]int64{"POST /a": 101, "POST /b": 0, "/c": -3, "/d/*": 1} }, []string{
			`costs["/c"]: must be at least 1, got -3`,
			`costs["/d/*"]: pattern "/d/*": * is no wildcard`,
			`costs["POST /b"]: must be at least 1, got 0`,
			`costs["POST /a"]: 101 is above the 100 units that the limit 100/1m can hold`,
		}},
		{func(r *ratelimit.Rule) { r.Costs = map[string]int64{"/a/{x}": 1, "/a/{y}": 2, "/{z}/b": 3, "/c": 4} }, []string{
			`costs["/a/{y}"]: pattern "/a/{y}": conflicts with "/a/{x}": /a/{y} matches the same requests as /a/{x}; make one more specific`,
			`costs["/{z}/b"]: pattern "/{z}/b": conflicts with "/a/{x}": /{z}/b and /a/{x} both match some paths, like "/a/b". But neither is more specific`,
		}},
		{func(r *ratelimit.Rule) { r.ChargeOn = []int{} }, []string{"charge on: empty"}},
		{func(r *ratelimit.Rule) { r.ChargeOn = []int{401, 199, 600, 401} }, []string{
			"charge on[1]: status 199: must be 200 to 599", "charge on[2]: status 600: must be", "charge on[3]: status 401: listed twice",
		}},
		{func(r *ratelimit.Rule) {
			r.ChargeOn, r.Limit, r.Tiers = []int{401}, algorithms.Limit{Rate: 5, Period: time.Minute, Burst: 9}, map[string][]algorithms.Limit{"pro": {bucket(9)}}
		}, []string{
			"charge on: needs a window, from which all can be given back, and the limit 5/1m burst 9 is none; use fixed_window",
			`charge on: needs a window, from which all can be given back, and tier "pro"'s limit 9/1m token_bucket is none`,
		}},
		{func(r *ratelimit.Rule) { r.Ban = ratelimit.Ban{Within: time.Minute} }, []string{
			"ban.after: must be at least 1", "ban.for: must be positive, got 0s",
		}},
		{func(r *ratelimit.Rule) { r.Ban = ratelimit.Ban{After: 1, Within: -1, For: 1500} }, []string{
			"ban.for: the time 1.5µs is below 10ms", "ban.within: must be whole microseconds, at least 1µs",
		}},
		{func(r *ratelimit.Rule) { r.Ban = ratelimit.Ban{After: 1, For: math.MaxInt64 / 1000 * 1000} }, []string{
			"ban.for: must be at most 70 years",
		}},
		{func(r *ratelimit.Rule) { r.Ban = ratelimit.Ban{After: 1, Within: 9 * time.Millisecond, For: 1000} }, []string{
			"ban.within: the time 9ms is below 10ms", "ban.for: the time 1µs is below 10ms",
		}},
		{func(r *ratelimit.Rule) {
			r.Ban, r.Key = ratelimit.Ban{After: 1, For: time.Hour}, keyfunc.Hashed(keyfunc.Everyone, nil)
		}, []string{
			"ban: all clients have one key",
		}},
		{func(r *ratelimit.Rule) {
			r.Limit.Period, r.Tiers = 60000, map[string][]algorithms.Limit{"pro": {{Rate: 5, Period: 9999 * time.Microsecond}}}
		}, []string{
			"limit: the period 60µs is below 10ms; a number without a unit", `tiers.pro: the period 9.999ms is below 10ms`,
		}},
		{func(r *ratelimit.Rule) {
			r.Limit, r.Ban = algorithms.PerMonth(5, "UTC"), ratelimit.Ban{After: 1, For: time.Hour}
		}, []string{
			"ban: denials by calendar windows lead to no ban",
		}},
		{func(r *ratelimit.Rule) {
			r.Limit, r.Tiers = algorithms.PerDay(5, ""), map[string][]algorithms.Limit{"pro": {algorithms.PerMonth(5, "Mars/Olympus")}}
		}, []string{
			"limit: calendar day@ needs a time zone; write day@UTC", `tiers.pro: calendar "month@Mars/Olympus": this program cannot load the time zone`,
		}},
		{func(r *ratelimit.Rule) {
			r.Limit, r.Ban, r.Sync = algorithms.PerHour(5), ratelimit.Ban{After: 1, For: time.Hour}, 2*time.Second
			r.Tiers = map[string][]algorithms.Limit{"pro": {algorithms.PerMinute(9), algorithms.PerMinute(7)}, "max": {algorithms.PerMonth(9, "UTC")}}
		}, []string{
			`tiers.pro: 9/1m and 7/1m are one count`,
			`ban: by tier "max": denials by calendar windows`, `ban: by tier "pro": needs within`,
			"sync: must be at most 1s, got 2s", "sync: does not go with a ban",
		}},
		{func(r *ratelimit.Rule) { r.Limit, r.Costs = algorithms.MaxInFlight(20), map[string]int64{"/": 1} }, []string{
			"costs: a request in flight costs 1; leave it out, and count units by another rule",
		}},
		{func(r *ratelimit.Rule) {
			r.Limit, r.CostFor = algorithms.MaxInFlight(20), func(*http.Request) int64 { return 1 }
		}, []string{"cost for: a request in flight costs 1"}},
		{func(r *ratelimit.Rule) { r.Limit = algorithms.MaxInFlight(20); r.Limit.Period = 500 * time.Millisecond }, []string{`limit: the lease of in_flight must be at least 1s, got 500ms: a process renews it each third; write as in "20 in flight" or "20/5m in_flight"`}},
		{func(r *ratelimit.Rule) { r.Limit, r.RetryAfter = algorithms.MaxInFlight(1), 15 }, []string{"retry after: must be from a second to an hour, got 15ns; write one such as 15*time.Second"}},
		{func(r *ratelimit.Rule) { r.Limit, r.RetryAfter = algorithms.MaxInFlight(1), time.Hour+time.Second }, []string{"retry after: must be from a second to an hour, got 1h0m1s"}},
		{func(r *ratelimit.Rule) { r.RetryAfter = time.Second }, []string{"retry after: is for limits in flight"}},
		{func(r *ratelimit.Rule) { r.Fail = 9 }, []string{"fail: unknown fail mode 9"}},
		{func(r *ratelimit.Rule) { r.Shadow, r.Enforce = true, 10 }, []string{"enforce: must be 0 to 1, the fraction of keys that are limited; got 10"}},
		{func(r *ratelimit.Rule) { r.Shadow, r.Enforce = true, -0.1 }, []string{"enforce: must be 0 to 1"}},
		{func(r *ratelimit.Rule) { r.Enforce = math.NaN() }, []string{"enforce: must be 0 to 1"}},
		{func(r *ratelimit.Rule) { r.Enforce = 0.1 }, []string{"enforce: needs shadow: without it the rule is enforced for all keys"}},
		{func(r *ratelimit.Rule) { r.Sync = 100 }, []string{"sync: the time 100ns is below 20ms; a number without a unit"}},
		{func(r *ratelimit.Rule) { r.Sync, r.Limit.Algorithm = time.Second, algorithms.SlidingLog }, []string{
			"sync: not with the limit 100/1m sliding_log, of which a process has no copy; use fixed_window, sliding_window or token_bucket, or leave sync out",
		}},
		{func(r *ratelimit.Rule) {
			r.Sync, r.ChargeOn, r.Ban = time.Second, []int{401}, ratelimit.Ban{After: 1, For: time.Minute}
		}, []string{"sync: does not go with charging by response", "sync: does not go with a ban"}},
		{overridden(nil, "nobody"), []string{"overrides[0].client: keyfunc: ip: "}},
		{overridden(nil), []string{"overrides[0].client: keyfunc: ip: takes one value, got 0"}},
		{func(r *ratelimit.Rule) {
			r.Overrides = []ratelimit.Override{override(algorithms.PerHour(5), "192.0.2.1"), override(algorithms.PerHour(6), "::ffff:192.0.2.1")}
		}, []string{"overrides[1].client: the same as of overrides[0]: keep one"}},
		{overridden(keyfunc.First(keyfunc.Header("User"), keyfunc.IP), "192.0.2.1"), []string{
			"overrides[0].client: keyfunc: first(header:User, ip): begin with the number of the key that has the value, as in 1:alice",
		}},
		{overridden(keyfunc.Join(keyfunc.Header("User"), keyfunc.IP), "192.0.2.1"), []string{"overrides[0].client: keyfunc: [header:User, ip]: takes 2 values, got 1"}},
		{overridden(keyfunc.Everyone), []string{"overrides[0].client: all clients have one key: change the limit"}},
		{overridden(keyfunc.APIKey("Key"), "s3cret-1"), []string{
			"overrides[0].client: keyfunc: apikey:Key: a secret must not be written down: write its stored form, apikey:",
		}},
		{overridden(keyfunc.Hashed(keyfunc.IP, nil), "s3cret-1"), []string{"overrides[0].client: the client is a secret"}},
		{overridden(keyfunc.Join(keyfunc.IP, keyfunc.APIKey("Key")), strings.Repeat("s3cret-1", 20), "192.0.2.1"), []string{ // in the wrong order, one of them long
			"overrides[0].client: the client is a secret",
		}},
		{overridden(keyfunc.Join(keyfunc.IP, keyfunc.APIKey("Key")), `"s3cret"-1`, "192.0.2.1"), []string{"overrides[0].client: the client is a secret"}},
		{func(r *ratelimit.Rule) { r.Overrides = []ratelimit.Override{{Client: []string{"192.0.2.1"}}} }, []string{"overrides[0].limit: 0 limits; write 1 to 8"}},
		{func(r *ratelimit.Rule) {
			r.Cost, r.Overrides = 9, []ratelimit.Override{override(algorithms.PerHour(5), "192.0.2.1")}
		}, []string{"cost: 9 is above the 5 units that overrides[0]'s limit 5/1h can hold"}},
		{func(r *ratelimit.Rule) {
			r.Overrides = slices.Repeat([]ratelimit.Override{override(algorithms.PerHour(5), "192.0.2.1")}, 1001)
		}, []string{"overrides: 1001 overrides; at most 1000: give many clients a tier"}},
		{func(r *ratelimit.Rule) { r.Note = "ask\nops" }, []string{"note: there is a character in it that is not visible"}},
	} {
		got := validated(c.change)
		same := len(got) == len(c.want)
		for i := range min(len(got), len(c.want)) {
			same = same && strings.HasPrefix(got[i], c.want[i])
		}
		if !same || strings.Contains(strings.Join(got, ""), "s3cret") {
			t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(c.want, "\n\t"))
		}

		rule := changed(c.change)
		_, err := ratelimit.New(ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{rule}})
		if byNew := each(err, `rule "r": `); !slices.Equal(byNew, got) {
			t.Errorf("New says\n\t%s\nand ValidateRules\n\t%s", strings.Join(byNew, "\n\t"), strings.Join(got, "\n\t"))
		}
		if bySetRules := each(m.SetRules([]ratelimit.Rule{rule}), `rule "r": `); !slices.Equal(bySetRules, got) {
			t.Errorf("SetRules says\n\t%s\nand ValidateRules\n\t%s", strings.Join(bySetRules, "\n\t"), strings.Join(got, "\n\t"))
		}
		for _, err := range view.Each(err) {
			mistake, _ := errors.AsType[*ratelimit.RuleError](err)
			said[mistake.Field] = true
		}
		document, ok := inFile(&rule)
		if !ok {
			continue
		}
		_, err = new(rulefile.Loader).Parse("f", document)
		byFile := each(err, "rules[0].")
		if slices.ContainsFunc(byFile, func(text string) bool {
			return slices.ContainsFunc(byItsForm, func(form string) bool { return strings.Contains(text, form) })
		}) {
			continue
		}
		inFiles++
		for i := range got {
			got[i] = strings.NewReplacer("charge on", "charge_on", "retry after", "retry_after", "limits: ", "limit: ").Replace(got[i])
		}
		if slices.Sort(got); !slices.Equal(slices.Sorted(slices.Values(byFile)), got) {
			t.Errorf("of %s\nrulefile says\n\t%s\nand ValidateRules\n\t%s", document, strings.Join(byFile, "\n\t"), strings.Join(got, "\n\t"))
		}
	}
	for field := range reflect.TypeFor[ratelimit.Rule]().Fields() { // there is nothing wrong with the last three, and they are not in the table
		if elsewhere := []string{"Name", "Key", "LimitsFor", "Hidden", "Shadow"}; !said[field.Name] && !slices.Contains(elsewhere, field.Name) {
			t.Errorf("no mistake in %s is tested", field.Name)
		}
	}
	if inFiles < 19 {
		t.Errorf("%d documents", inFiles)
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
	if want := []string{"tiers: 1001 tiers; at most 1000", "costs: 1001 patterns; at most 1000"}; !slices.Equal(got, want) {
		t.Error(got)
	}
	clear(costs)
	for i := range 500 {
		costs[fmt.Sprintf("/{a}/%d", i)], costs[fmt.Sprintf("/%d/{a}", i)] = 1, 1
	}
	if got := validated(func(r *ratelimit.Rule) { r.Costs = costs }); len(got) != 20 || !strings.Contains(got[19], "conflicts with") {
		t.Errorf("%d: %s", len(got), got[len(got)-1])
	}
}

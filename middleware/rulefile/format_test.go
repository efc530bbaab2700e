package rulefile_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/rated"
	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// Whatever rules in code say, their document reads as the same rules.
func TestAnyRulesArePrintedAndReadAgain(t *testing.T) {
	t.Parallel()
	drawn, printed := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		rules := make([]ratelimit.Rule, rapid.IntRange(1, 4).Draw(t, "rules"))
		for i := range rules {
			rules[i] = drawRule(t, fmt.Sprint("rule", i))
		}
		drawn++
		if ratelimit.ValidateRules(rules) != nil {
			return // what one field needs, another may not have
		}
		printed++
		roundTrip(t, "code", rules)
	})
	if printed < drawn/4 {
		t.Errorf("only %d of %d sets of rules were valid", printed, drawn)
	}
}

func drawRule(t *rapid.T, name string) ratelimit.Rule {
	keys := map[string]keyfunc.Key{
		"ip": keyfunc.IP, "everyone": keyfunc.Everyone, "header": keyfunc.Header("x-device"), "apikey": keyfunc.APIKey("authorization"),
		"joined": keyfunc.Join(keyfunc.IP, keyfunc.Header("X-A"), keyfunc.Everyone),
	}
	patterns := rapid.SampledFrom([]string{"/", "/{$}", "POST /a", "GET /u/{id}", "/b/{x...}", "DELETE /c/", "/%41", "/%20", "/a,b", "/{x}/d", "/é", "/'\""})
	aligned := rapid.SampledFrom(append(rated.Without(func(row step.Row) bool { return !row.Aligned }), step.Row{}))
	others := rapid.SampledFrom(append(rated.Without(func(row step.Row) bool { return row.Aligned }), step.Row{Bucket: true})) // "" with a burst is a bucket
	periods := rapid.SampledFrom([]time.Duration{10 * time.Millisecond, 10500 * time.Microsecond, time.Second, 90 * time.Minute, 720 * time.Hour})
	onlyWindows := rapid.Bool().Draw(t, "windows")
	limit := rapid.Custom(func(t *rapid.T) algorithms.Limit {
		l := algorithms.Limit{Rate: rapid.Int64Range(1, 9000).Draw(t, "rate"), Period: periods.Draw(t, "period")}
		row := aligned.Draw(t, "algorithm")
		if !onlyWindows {
			row = others.Draw(t, "algorithm")
		}
		if row.Queue || row.Bucket && rapid.Bool().Draw(t, "bursts") {
			l.Burst = rapid.Int64Range(1, 9000).Draw(t, "burst")
		}
		l.Algorithm = algorithms.Algorithm(row.Name)
		l.Soft = row.Aligned && rapid.IntRange(0, 7).Draw(t, "soft") == 0
		return l
	})
	tiers := rapid.OneOf(rapid.SampledFrom([]string{"pro", "on", "no", "Y", "null", "~", "true", "1", "0x1", "1:30", "1e3", "<<", "-", "- a", "a: b", "a #b", "#", "&a", "*a", "!a", "%a", "@a", "`a", "[a]", "{a}", ",", "'", "\"", "2026-11-21", "?", "x-a"}),
		rapid.StringN(1, 20, 80))

	r := ratelimit.Rule{
		Name: name, Key: keys[rapid.SampledFrom(slices.Sorted(maps.Keys(keys))).Draw(t, "key")], Limit: limit.Draw(t, "limit"),
		Match: rapid.SliceOfN(patterns, 0, 3).Draw(t, "match"), Fail: rapid.SampledFrom([]failmode.Mode{failmode.Local, failmode.Open, failmode.Closed}).Draw(t, "fail"),
		Disabled: rapid.Bool().Draw(t, "disabled"), Hidden: rapid.Bool().Draw(t, "hidden"),
	}
	if len(r.Match) == 0 {
		r.Match = nil
	}
	for _, tier := range rapid.SliceOfN(tiers, 0, 3).Draw(t, "tiers") {
		if r.Tiers == nil {
			r.Tiers = make(map[string][]algorithms.Limit)
		}
		r.Tiers[tier] = ratelimit.Unlimited()
		if rapid.Bool().Draw(t, "limited") {
			r.Tiers[tier] = []algorithms.Limit{limit.Draw(t, "limit of tier")}
		}
	}
	switch rapid.IntRange(0, 9).Draw(t, "shadows") {
	case 0, 1:
		r.Shadow, r.Enforce = true, rapid.Float64Range(0, 1).Draw(t, "enforce")
	case 2:
		r.Shadow = true
	}
	if rapid.Bool().Draw(t, "has costs") {
		r.MaxReserve = rapid.Float64Range(0, 1).Draw(t, "max reserve")
		r.Cost = rapid.Int64Range(0, 2).Draw(t, "cost")
		pattern := patterns.Draw(t, "pattern")
		if len(r.Match) > 0 {
			pattern = r.Match[0] // costs are for what the rule matches
		}
		r.Costs = map[string]int64{pattern: rapid.Int64Range(1, 2).Draw(t, "cost of pattern")}
	}
	switch extra := rapid.IntRange(0, 3).Draw(t, "extra"); {
	case extra == 1 && onlyWindows:
		r.Lease = true
	case extra == 2 && onlyWindows:
		r.ChargeOn = rapid.SliceOfNDistinct(rapid.IntRange(200, 599), 1, 3, rapid.ID).Draw(t, "charge on")
	case extra == 3 && r.Key != keyfunc.Everyone:
		r.Ban = algorithms.Ban{After: rapid.Int64Range(1, 1<<60).Draw(t, "after"), For: periods.Draw(t, "for")}
		if rapid.Bool().Draw(t, "has within") {
			r.Ban.Within = periods.Draw(t, "within")
		}
	}
	return r
}

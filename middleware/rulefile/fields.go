package rulefile

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/internal/view"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// version is the only version of the format. Of a document of another version nothing
// else is read, because its fields may mean something else.
const version = "1"

var documentFields = []field[[]ratelimit.Rule]{
	{"version", "write version: " + version, func(_ *[]ratelimit.Rule, v value) { v.integer() }},
	{"rules", "write a list of rules", func(rules *[]ratelimit.Rule, v value) { *rules = v.rules() }},
}

// fields are all fields of a rule.
var fields = []field[ratelimit.Rule]{
	{"name", "a name for headers, metrics and logs", func(r *ratelimit.Rule, v value) { r.Name = v.quoted() }},
	{"match", "", func(r *ratelimit.Rule, v value) {
		r.Match = list(v, "patterns, as in [POST /auth/login, /files/{path...}]", func(v value) (string, bool) {
			text, _ := v.text(`write a pattern such as "POST /auth/login"`)
			return text, true // so that the others keep their numbers
		})
	}},
	{"key", "who is limited: ip, header:NAME, apikey:NAME, cookie:NAME, or a list", func(r *ratelimit.Rule, v value) {
		if k := v.key(); k != nil { // a Key with a nil *named is not nil
			r.Key = k
		}
	}},
	{"limit", `how much, as in "100/1m", "10/s burst 20" or "5/1m fixed_window"`, func(r *ratelimit.Rule, v value) {
		if limits := v.limits(); len(limits) == 1 {
			r.Limit = limits[0]
		} else {
			r.Limits = limits
		}
	}},
	{"tiers", "", func(r *ratelimit.Rule, v value) { r.Tiers = v.tiers() }},
	{"overrides", "", func(r *ratelimit.Rule, v value) {
		r.Overrides = list(v, "overrides, as in [{client: acme, limit: 1000/1m}]", value.override)
	}},
	{"cost", "", func(r *ratelimit.Rule, v value) { r.Cost = v.count() }},
	{"costs", "", func(r *ratelimit.Rule, v value) { r.Costs = v.costs() }},
	{"charge_on", "", func(r *ratelimit.Rule, v value) { r.ChargeOn = v.statuses() }},
	{"ban", "", func(r *ratelimit.Rule, v value) {
		if v.mapping("as in {after: 10, within: 10m, for: 15m}") {
			record(v, &r.Ban, banFields)
		}
	}},
	{"fail", "", func(r *ratelimit.Rule, v value) {
		if text, ok := v.text("write local, open or closed"); ok {
			if err := r.Fail.UnmarshalText([]byte(text)); err != nil {
				v.bad("%w", err)
			}
		}
	}},
	{"shadow", "", func(r *ratelimit.Rule, v value) { r.Shadow = v.boolean() }},
	{"enforce", "", func(r *ratelimit.Rule, v value) { r.Enforce = v.fraction() }},
	{"retry_after", "", func(r *ratelimit.Rule, v value) { r.RetryAfter = v.duration() }},
	{"hidden", "", func(r *ratelimit.Rule, v value) { r.Hidden = v.boolean() }},
	{"sync", "", func(r *ratelimit.Rule, v value) { r.Sync = v.duration() }},
	{"note", "", func(r *ratelimit.Rule, v value) { r.Note = v.quoted() }},
}

// banFields are those of a Ban.
var banFields = []field[ratelimit.Ban]{
	{"after", "how many strikes lead to a ban", func(b *ratelimit.Ban, v value) { b.After = v.count() }},
	{"within", "", func(b *ratelimit.Ban, v value) { b.Within = v.duration() }},
	{"for", "how long the ban lasts, as in 15m", func(b *ratelimit.Ban, v value) { b.For = v.duration() }},
}

var overrideFields = []field[ratelimit.Override]{
	{"client", "the client, by a value for each part of key", func(o *ratelimit.Override, v value) {
		o.Client = oneOrMore(v, "values, one for each part of key", func(v value) (string, bool) { return v.text("put it in quotes") })
	}},
	{"limit", "the client's limit, or unlimited", func(o *ratelimit.Override, v value) { o.Limits = v.exempting() }},
	{"until", "", func(o *ratelimit.Override, v value) { o.Until = v.until() }},
	{"note", "", func(o *ratelimit.Override, v value) { o.Note = v.quoted() }},
}

func (v value) rules() []ratelimit.Rule {
	rules := list(v, "rules, each starting with -", value.rule)
	if rules != nil && v.d.more == 0 {
		v.d.validate(rules)
	}
	return rules
}

// rule also returns one with a mistake, so that the others keep their numbers.
func (v value) rule() (r ratelimit.Rule, ok bool) {
	if v.Kind == yaml.MappingNode || v.is(false, "must be a rule with the fields name, key and limit,", "") {
		record(v, &r, fields)
	}
	return r, true
}

// override also returns one with a mistake, so that the others keep their numbers.
func (v value) override() (o ratelimit.Override, ok bool) {
	if v.mapping("as in {client: acme, limit: 1000/1m, until: 2026-12-31@Europe/Berlin, note: ticket 4711}") {
		record(v, &o, overrideFields)
	}
	return o, true
}

func (v value) tiers() map[string][]algorithms.Limit {
	if !v.mapping("tiers, as in {pro: 1000/1m, internal: unlimited}") {
		return nil
	}
	limits := make(map[string][]algorithms.Limit)
	v.members(func(name, of value) {
		tier, ok := name.text("put the name in quotes")
		if !ok {
			return
		}
		if known := v.d.tiers; known != nil && !slices.Contains(known, tier) {
			name.bad("no such tier%s; this program has %s", meant(tier, known), listed(known))
		}
		if all := of.exempting(); all != nil {
			limits[tier] = all
		}
	})
	return limits
}

func (v value) costs() map[string]int64 {
	if !v.mapping("patterns and their costs, as in {POST /reports: 10}") {
		return nil
	}
	costs := make(map[string]int64)
	v.members(func(name, of value) {
		pattern, ok := name.text(`write a pattern such as "POST /reports"`)
		if cost := of.count(); ok && cost > 0 {
			costs[pattern] = cost
		}
	})
	return costs
}

// A statusRange is an entry of charge_on.
type statusRange struct {
	spot
	not       bool // all but these
	low, high int
}

// statusForms are the forms of an entry of charge_on that is no number, as in rules.schema.json.
var statusForms = regexp.MustCompile(`^(!?)([2-5](?:xx|[0-9]{2}))(?:-([2-5](?:xx|[0-9]{2})))?$`)

// statuses reads statuses and ranges. Those with ! are taken from the others or, if all have
// it, from all.
func (v value) statuses() (charged []int) {
	entries := list(v, `statuses, as in [401, 5xx] or ["!304"]`, value.statusRange)
	if len(entries) > 0 && !slices.ContainsFunc(entries, func(r statusRange) bool { return !r.not }) {
		entries = append(entries, statusRange{low: 200, high: 599})
	}
	var single []statusRange
	for _, r := range entries {
		if r.not {
			continue
		}
		before := len(single)
		for i := range r.high - r.low + 1 {
			again := func(s statusRange) bool { return s.low == r.low+i }
			if r.low == r.high || !slices.ContainsFunc(single, again) { // ValidateRules looks at single ones
				single = append(single, statusRange{spot: r.spot, low: r.low + i})
			}
		}
		if len(single) == before {
			v.d.bad(r.spot, "statuses %d to %d: listed already; leave them out", r.low, r.high)
		}
	}
	for _, r := range entries {
		before, has := len(single), func(s statusRange) bool { return r.low <= s.low && s.low <= r.high }
		if !r.not {
			continue
		}
		if single = slices.DeleteFunc(single, has); len(single) == before {
			v.d.bad(r.spot, "status %d is not charged anyway; leave the exception out, or write the statuses that it is one of", r.low)
		}
	}
	if entries != nil {
		charged = []int{} // which is not all
	}
	for i, s := range single {
		charged, v.d.spots[view.Path(v.path, i)] = append(charged, s.low), s.spot
	}
	return charged
}

func (v value) statusRange() (r statusRange, ok bool) {
	r.spot = v.spot()
	if v.Tag != "!!str" {
		status, ok := v.integer()
		r.low, r.high = int(status), int(status)
		return r, ok
	}
	text, ok := v.text("write a status such as 401")
	if !ok {
		return r, false
	}
	form := statusForms.FindStringSubmatch(text)
	if form == nil {
		v.bad(`%q is no status from 200 to 599; write 401, 4xx, 400-499 or, in quotes, "!304" for all but 304`, cut(text))
		return r, false
	}
	r.not = form[1] != ""
	r.low, _ = strconv.Atoi(strings.ReplaceAll(form[2], "x", "0")) // they are digits
	r.high, _ = strconv.Atoi(strings.ReplaceAll(cmp.Or(form[3], form[2]), "x", "9"))
	if r.high < r.low {
		v.bad("%q ends before it begins; write %s%s-%s", text, form[1], form[3], form[2])
	}
	return r, r.low <= r.high
}

// until reads an instant, or the end of a day in a time zone.
func (v value) until() time.Time {
	const mend = "write an instant such as 2026-12-31T23:00:00Z, or 2026-12-31@Europe/Berlin for the end of that day there"
	if v.Kind != yaml.ScalarNode || v.Tag != "!!timestamp" {
		if _, ok := v.text(mend); !ok {
			return time.Time{}
		}
	}
	text, zone, zoned := strings.Cut(v.Value, "@")
	if day, err := time.Parse(time.DateOnly, text); zoned && err == nil {
		days, err := step.ParseCalendar("day@" + zone)
		if err != nil {
			v.bad(`no time zone %.64q; write one such as UTC or Europe/Berlin. If the zone is right, import _ "time/tzdata" in main`, zone)
			return time.Time{}
		}
		return notZero(days.DayAfter(day))
	}
	at, err := time.Parse(time.RFC3339, v.Value)
	if err != nil {
		v.bad("%.64q is neither an instant nor a day in a time zone; %s", v.Value, mend)
		return time.Time{}
	}
	return notZero(at)
}

// notZero keeps an instant from being the zero time, which is no end. It is too early in any case.
func notZero(at time.Time) time.Time {
	if at.IsZero() {
		at = at.Add(1)
	}
	return at.UTC()
}

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
	"github.com/seed75154129/ratelimit/internal/view"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// fields are all fields of a rule.
var fields = []field[ratelimit.Rule]{
	as("name", func(r *ratelimit.Rule) *string { return &r.Name }, (*decoder).quoted).orWrite("a name for headers, metrics and logs"),
	as("match", func(r *ratelimit.Rule) *[]string { return &r.Match }, (*decoder).patterns),
	{
		"key", "who is limited: ip, header:NAME, apikey:NAME, cookie:NAME, or a list",
		func(d *decoder, r *ratelimit.Rule, n *yaml.Node, path string) {
			if k := d.key(n, path); k != nil { // a Key with a nil *named is not nil
				r.Key = k
			}
		},
	},
	{
		"limit", `how much, as in "100/1m", "10/s burst 20" or "5/1m fixed_window"`,
		func(d *decoder, r *ratelimit.Rule, n *yaml.Node, path string) {
			if limits := d.limits(n, path); len(limits) == 1 {
				r.Limit = limits[0]
			} else {
				r.Limits = limits
			}
		},
	},
	as("tiers", func(r *ratelimit.Rule) *map[string][]algorithms.Limit { return &r.Tiers }, (*decoder).tierLimits),
	as("overrides", func(r *ratelimit.Rule) *[]ratelimit.Override { return &r.Overrides }, (*decoder).overrides),
	as("cost", func(r *ratelimit.Rule) *int64 { return &r.Cost }, (*decoder).count),
	as("costs", func(r *ratelimit.Rule) *map[string]int64 { return &r.Costs }, (*decoder).costs),
	as("charge_on", func(r *ratelimit.Rule) *[]int { return &r.ChargeOn }, (*decoder).statuses),
	as("ban", func(r *ratelimit.Rule) *algorithms.Ban { return &r.Ban }, (*decoder).ban),
	{
		"fail", "",
		func(d *decoder, r *ratelimit.Rule, n *yaml.Node, path string) {
			if text, ok := d.text(n, path, "write local, open or closed"); ok {
				if err := r.Fail.UnmarshalText([]byte(text)); err != nil {
					d.bad(placeOf(n), path, "%w", err)
				}
			}
		},
	},
	as("shadow", func(r *ratelimit.Rule) *bool { return &r.Shadow }, (*decoder).boolean),
	as("enforce", func(r *ratelimit.Rule) *float64 { return &r.Enforce }, (*decoder).fraction),
	as("retry_after", func(r *ratelimit.Rule) *time.Duration { return &r.RetryAfter }, (*decoder).duration),
	as("hidden", func(r *ratelimit.Rule) *bool { return &r.Hidden }, (*decoder).boolean),
	as("lease", func(r *ratelimit.Rule) *bool { return &r.Lease }, (*decoder).boolean),
}

// banFields are those of a Ban.
var banFields = []field[algorithms.Ban]{
	as("after", func(b *algorithms.Ban) *int64 { return &b.After }, (*decoder).count).orWrite("how many denials lead to a ban"),
	as("within", func(b *algorithms.Ban) *time.Duration { return &b.Within }, (*decoder).duration),
	as("for", func(b *algorithms.Ban) *time.Duration { return &b.For }, (*decoder).duration).orWrite("how long the ban lasts, as in 15m"),
}

func (d *decoder) patterns(n *yaml.Node, path string) []string {
	return items(d, n, path, "patterns, as in [POST /auth/login, /files/{path...}]", func(n *yaml.Node, path string) (string, bool) {
		return d.text(n, path, `write a pattern such as "POST /auth/login"`)
	})
}

func (d *decoder) tierLimits(n *yaml.Node, path string) map[string][]algorithms.Limit {
	if !d.mapping(n, path, "tiers, as in {pro: 1000/1m, internal: unlimited}") {
		return nil
	}
	limits := make(map[string][]algorithms.Limit)
	d.fields(n, path, func(key, value *yaml.Node, path string) {
		tier, ok := d.text(key, path, `put the name in quotes`)
		if !ok {
			return
		}
		if d.tiers != nil && !slices.Contains(d.tiers, tier) {
			d.bad(placeOf(key), path, "no such tier%s; this program has %s", meant(tier, d.tiers), listed(d.tiers))
		}
		if of := d.exempting(value, path); of != nil {
			limits[tier] = of
		}
	})
	return limits
}

func (d *decoder) costs(n *yaml.Node, path string) map[string]int64 {
	if !d.mapping(n, path, "patterns and their costs, as in {POST /reports: 10}") {
		return nil
	}
	costs := make(map[string]int64)
	d.fields(n, path, func(key, value *yaml.Node, path string) {
		pattern, ok := d.text(key, path, `write a pattern such as "POST /reports"`)
		if cost := d.count(value, path); ok && cost > 0 {
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
func (d *decoder) statuses(n *yaml.Node, path string) (charged []int) {
	entries := items(d, n, path, `statuses, as in [401, 5xx] or ["!304"]`, d.statusRange)
	if len(entries) > 0 && !slices.ContainsFunc(entries, func(r statusRange) bool { return !r.not }) {
		entries = append(entries, statusRange{low: 200, high: 599})
	}
	var single []statusRange
	for _, r := range entries {
		before := len(single)
		for i := range r.high - r.low + 1 {
			status := r.low + i
			if r.not {
				break
			}
			if r.low == r.high || !slices.ContainsFunc(single, func(s statusRange) bool { return s.low == status }) { // ValidateRules looks at single ones
				single = append(single, statusRange{spot: r.spot, low: status})
			}
		}
		if !r.not && len(single) == before {
			d.bad(r.place, r.path, "statuses %d to %d: listed already; leave them out", r.low, r.high)
		}
	}
	for _, r := range entries {
		if before := len(single); r.not {
			if single = slices.DeleteFunc(single, func(s statusRange) bool { return r.low <= s.low && s.low <= r.high }); len(single) == before {
				d.bad(r.place, r.path, "status %d is not charged anyway; leave the exception out, or write the statuses that it is one of", r.low)
			}
		}
	}
	if entries != nil {
		charged = []int{} // which is not all
	}
	for i, s := range single {
		charged, d.spots[view.Path(path, i)] = append(charged, s.low), s.spot
	}
	return charged
}

func (d *decoder) statusRange(n *yaml.Node, path string) (r statusRange, ok bool) {
	r.spot = spot{placeOf(n), path}
	if n.Tag != "!!str" {
		status, ok := d.integer(n, path)
		r.low, r.high = int(status), int(status)
		return r, ok
	}
	text, ok := d.text(n, path, "write a status such as 401")
	if !ok {
		return r, false
	}
	form := statusForms.FindStringSubmatch(text)
	if form == nil {
		d.bad(r.place, path, `%q is no status from 200 to 599; write 401, 4xx, 400-499 or, in quotes, "!304" for all but 304`, cut(text))
		return r, false
	}
	r.not = form[1] != ""
	r.low, _ = strconv.Atoi(strings.ReplaceAll(form[2], "x", "0")) // they are digits
	r.high, _ = strconv.Atoi(strings.ReplaceAll(cmp.Or(form[3], form[2]), "x", "9"))
	if r.high < r.low {
		d.bad(r.place, path, "%q ends before it begins; write %s%s-%s", text, form[1], form[3], form[2])
	}
	return r, r.low <= r.high
}

func (d *decoder) ban(n *yaml.Node, path string) (b algorithms.Ban) {
	if d.mapping(n, path, "as in {after: 10, within: 1m, for: 15m}") {
		record(d, &b, n, path, banFields)
	}
	return b
}

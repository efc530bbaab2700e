package middleware

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/layers"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// An overview is what [Middleware.Admin] shows of a Middleware. Fields that are
// those of a rule file have the same names and forms.
type overview struct {
	Generation int          `json:"generation"` // 1 for the first rules
	Version    int64        `json:"version,omitempty"`
	RulesError string       `json:"rules_error,omitempty"`
	Share      string       `json:"share,omitempty"`
	Down       []string     `json:"down,omitempty"` // servers whose circuit is open
	Rules      []ruleView   `json:"rules"`
	TopDenied  []deniedView `json:"top_denied"`
	Bans       []bannedView `json:"bans"`
}

// overviewTop is how many of the keys that were denied most an overview has.
const overviewTop = 50

// overview is what operators see first.
func (m *Middleware) overview(ctx context.Context) *overview {
	set := m.rules.Load()
	o := &overview{Generation: set.generation, Version: set.version, Share: m.share.text, Rules: make([]ruleView, len(set.rules)), TopDenied: []deniedView{}, Bans: m.bansInForce(ctx, set)}
	if err := m.failures.current(); err != nil {
		o.RulesError = err.Error()
	}
	for inner := range layers.Of(m.limiter) {
		if guard, ok := inner.(interface{ Down() []string }); ok {
			o.Down = guard.Down()
			break
		}
	}
	for i := range set.rules {
		o.Rules[i] = viewOf(&set.rules[i].source)
	}
	top := m.top.List(time.Since(m.start))
	for _, d := range top[:min(overviewTop, len(top))] {
		_, known := set.find(d.Rule, 0)
		o.TopDenied = append(o.TopDenied, deniedView{Rule: d.Rule, Key: m.shown(d.Key), ID: m.keyID(d.Key), Count: d.Count, Error: d.Error, known: known && !isBounded(d.Key)})
	}
	slices.Sort(o.Down)
	return o
}

// A ruleView is a [Rule]: its data, and whether it has functions.
type ruleView struct {
	Name       string           `json:"name"`
	Match      []string         `json:"match,omitempty"`
	Key        string           `json:"key"`
	Limit      texts            `json:"limit"`
	Tiers      map[string]texts `json:"tiers,omitempty"`
	LimitsFor  bool             `json:"limits_for,omitempty"`
	TierBy     string           `json:"tier_by,omitempty"`
	Overrides  int              `json:"overrides,omitempty"` // how many
	Cost       int64            `json:"cost"`
	Costs      map[string]int64 `json:"costs,omitempty"`
	CostFor    bool             `json:"cost_for,omitempty"`
	MaxReserve float64          `json:"max_reserve,omitempty"`
	ChargeOn   []int            `json:"charge_on,omitempty"`
	Ban        *banView         `json:"ban,omitempty"`
	Fail       string           `json:"fail"`
	Shadow     bool             `json:"shadow,omitempty"`
	Enforce    float64          `json:"enforce,omitempty"`
	Disabled   bool             `json:"disabled,omitempty"`
	Hidden     bool             `json:"hidden,omitempty"`
	Lease      bool             `json:"lease,omitempty"`

	values int // that Checks takes
}

// differences are the fields in which the data of two rules differ, from what to what.
func differences(was, now *Rule) string {
	fieldsOf := func(r *Rule) map[string]json.RawMessage {
		var fields map[string]json.RawMessage
		text, _ := json.Marshal(viewOf(r)) // texts and numbers
		_ = json.Unmarshal(text, &fields)
		return fields
	}
	shown := func(value, other json.RawMessage) string {
		text := string(value)
		switch {
		case value == nil && string(other) == "true":
			return "false"
		case value == nil:
			return "none"
		}
		_ = json.Unmarshal(value, &text) // without quotes, if it is a text
		return text
	}
	before, after := fieldsOf(was), fieldsOf(now)
	names := maps.Clone(before)
	maps.Copy(names, after)
	var all []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !bytes.Equal(before[name], after[name]) {
			all = append(all, fmt.Sprintf("%s %.128s → %.128s", name, shown(before[name], after[name]), shown(after[name], before[name])))
		}
	}
	if len(was.Overrides) == len(now.Overrides) && !reflect.DeepEqual(was.Overrides, now.Overrides) {
		all = append(all, "overrides differ") // which are of clients that no log names
	}
	return strings.Join(all, ", ")
}

type banView struct {
	After  int64  `json:"after"`
	Within string `json:"within"`
	For    string `json:"for"`
}

func viewOf(r *Rule) ruleView {
	key := keyfunc.Describe(r.Key)
	v := ruleView{
		Name: r.Name, Match: r.Match, Key: key.String(), Limit: textsOf(r.own()), LimitsFor: r.LimitsFor != nil, TierBy: tierName(r.TierBy), Overrides: len(r.Overrides),
		Cost: max(r.Cost, 1), Costs: r.Costs, CostFor: r.CostFor != nil, MaxReserve: r.MaxReserve, ChargeOn: r.ChargeOn, Fail: r.Fail.String(),
		Shadow: r.Shadow, Enforce: r.Enforce, Disabled: r.Disabled, Hidden: r.Hidden, Lease: r.Lease, values: key.Values(),
	}
	if len(r.Tiers) > 0 {
		v.Tiers = make(map[string]texts, len(r.Tiers))
	}
	for tier, l := range r.Tiers {
		v.Tiers[tier] = textsOf(l)
	}
	if r.Ban != (algorithms.Ban{}) {
		v.Ban = &banView{r.Ban.After, span(cmp.Or(r.Ban.Within, r.own()[0].Period)), span(r.Ban.For)}
	}
	return v
}

// texts are the limits of a rule or a tier: in JSON a text, or a list of several, as in a
// rule file.
type texts []string

func textsOf(limits []algorithms.Limit) (all texts) {
	for _, l := range limits {
		all = append(all, filled(l))
	}
	return all
}

func (t texts) MarshalJSON() ([]byte, error) {
	if len(t) == 1 {
		return json.Marshal(t[0])
	}
	return json.Marshal([]string(t))
}

func (t texts) String() string { return strings.Join(t, ", ") }

// filled is the text of a limit, its algorithm included.
func filled(l algorithms.Limit) string {
	if l == unlimited {
		return "unlimited"
	}
	l.Algorithm = algorithms.Algorithm(algorithmOf(l))
	return l.String()
}

// A deniedView is a [DeniedKey].
type deniedView struct {
	Rule  string `json:"rule"`
	Key   string `json:"key"`
	ID    string `json:"id"` // names the key in this list
	Count int64  `json:"count"`
	Error int64  `json:"error"`

	known bool // it can be looked up
}

// A bannedView is a ban that this process knows of.
type bannedView struct {
	Rule   string    `json:"rule"`
	Key    string    `json:"key"`
	ID     string    `json:"id"`           // names the key in this list
	By     string    `json:"by,omitempty"` // "" for a ban that another process began
	Since  time.Time `json:"since"`        // when this process has learned of it
	EndsIn seconds   `json:"ends_in"`

	known bool // it can be looked up
}

// clientViews are how a client stands by the rules that count by its values.
type clientViews struct {
	Clients []*clientView `json:"clients"`
}

// A clientView is how a client stands by one rule, after what was done to it.
type clientView struct {
	Action string      `json:"action"`
	Rule   string      `json:"rule"`
	Keys   []string    `json:"keys"`
	Counts []countView `json:"counts"`

	order  order
	secret bool // the values are not shown
}

// counted reports whether anything is counted for the client, unless that is unknown.
func (c *clientView) counted() bool {
	return slices.ContainsFunc(c.Counts, func(c countView) bool {
		known := c.Source == string(algorithms.SourceRedis) || c.Source == string(algorithms.SourceMemory)
		return !known || c.Error != "" || c.Banned || c.Remaining != c.quota || c.ResetAfter != 0
	})
}

// A countView is how a key stands by one limit.
type countView struct {
	Key        string  `json:"key"`
	Tier       string  `json:"tier,omitempty"` // "" is the rule's own limit
	Override   string  `json:"override,omitempty"`
	Limit      string  `json:"limit"`
	Cost       int64   `json:"cost"`
	Shadow     bool    `json:"shadow,omitempty"`
	Source     string  `json:"source"`
	Allowed    bool    `json:"allowed"`
	Banned     bool    `json:"banned,omitempty"`
	Remaining  int64   `json:"remaining"`
	RetryAfter seconds `json:"retry_after"`
	ResetAfter seconds `json:"reset_after"`
	Error      string  `json:"error,omitempty"`

	quota int64
	held  bool // what is used is in flight
}

// counts are how keys stand by each limit that a rule may have for them.
func (m *Middleware) counts(ctx context.Context, r *rule, keys []string) (counts []countView) {
	for _, l := range r.limits() {
		counts = append(counts, m.countsBy(ctx, r, l, keys, countView{Tier: l.tier})...)
	}
	for _, key := range keys {
		o := r.terms.overrides[key]
		if o == nil {
			continue
		}
		view := countView{Override: o.String()}
		if o.windows == nil {
			view.Key, view.Limit, view.Allowed = m.shown(key), filled(unlimited), true
			counts = append(counts, view)
		}
		for _, l := range o.windows {
			counts = append(counts, m.countsBy(ctx, r, ruleLimit{Limit: l}, []string{key}, view)...)
		}
	}
	return counts
}

// countsBy are how keys stand by one limit of a rule, as which it is named in the view.
func (m *Middleware) countsBy(ctx context.Context, r *rule, l ruleLimit, keys []string, c countView) (counts []countView) {
	d, err := m.callLimiter(ctx, m.limiter.Peek, true, r.checksOf(l, keys))
	if err != nil {
		c.Limit, c.Error = filled(l.Limit), err.Error()
		return []countView{c}
	}
	for i := range d.Results {
		res := &d.Results[i]
		c.Key, c.Limit, c.Cost, c.Shadow = m.shown(res.Check.Key), filled(res.Check.Limit), res.Check.Cost, res.Check.Shadow
		c.Source, c.Allowed, c.Banned, c.Remaining = string(res.Source), res.HasRoom, res.BannedFor > 0, res.Remaining
		c.RetryAfter, c.ResetAfter, c.quota, c.held, c.Error = seconds(res.RetryAfter), seconds(res.ResetAfter), res.Check.Limit.Quota(), isHeld(res.Check.Limit), ""
		if res.Err != nil {
			c.Error = res.Err.Error()
		}
		counts = append(counts, c)
	}
	return counts
}

// seconds is a duration as a number; null where it never ends.
type seconds time.Duration

func (s seconds) MarshalJSON() ([]byte, error) {
	if time.Duration(s) == algorithms.Never {
		return []byte("null"), nil
	}
	return json.Marshal(time.Duration(s).Seconds())
}

// String is the duration for people.
func (s seconds) String() string {
	d := time.Duration(s)
	switch {
	case d == algorithms.Never:
		return "never"
	case d >= 10*time.Second:
		d = d.Round(time.Second)
	case d >= 10*time.Millisecond:
		d = d.Round(time.Millisecond)
	}
	return d.String()
}

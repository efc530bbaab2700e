package middleware

import (
	"encoding/json"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// An overview is what [Middleware.Admin] shows of a Middleware. Fields that are
// those of a rule file have the same names and forms.
type overview struct {
	Generation int          `json:"generation"` // 1 for the first rules
	RulesError string       `json:"rules_error,omitempty"`
	Share      string       `json:"share,omitempty"`
	Down       []string     `json:"down,omitempty"` // servers whose circuit is open
	Rules      []ruleView   `json:"rules"`
	TopDenied  []deniedView `json:"top_denied"`
}

// A ruleView is a [Rule]: its data, and whether it has functions.
type ruleView struct {
	Name     string            `json:"name"`
	Match    []string          `json:"match,omitempty"`
	Key      string            `json:"key"`
	Limit    string            `json:"limit"`
	Tiers    map[string]string `json:"tiers,omitempty"`
	LimitFor bool              `json:"limit_for,omitempty"`
	Cost     int64             `json:"cost"`
	Costs    map[string]int64  `json:"costs,omitempty"`
	CostFor  bool              `json:"cost_for,omitempty"`
	ChargeOn []int             `json:"charge_on,omitempty"`
	Ban      *banView          `json:"ban,omitempty"`
	Fail     string            `json:"fail"`
	Shadow   float64           `json:"shadow"`
	Disabled bool              `json:"disabled,omitempty"`
	Hidden   bool              `json:"hidden,omitempty"`
	Lease    bool              `json:"lease,omitempty"`

	values int // that Checks takes
}

type banView struct {
	After  int64  `json:"after"`
	Within string `json:"within"`
	For    string `json:"for"`
}

func viewOf(r *Rule) ruleView {
	v := ruleView{
		Name: r.Name, Match: r.Match, Key: keyName(r.Key), Limit: filled(r.Limit), LimitFor: r.LimitFor != nil,
		Cost: max(r.Cost, 1), Costs: r.Costs, CostFor: r.CostFor != nil, ChargeOn: r.ChargeOn, Fail: r.Fail.String(),
		Shadow: r.Shadow, Disabled: r.Disabled, Hidden: r.Hidden, Lease: r.Lease, values: valuesOf(r.Key),
	}
	if len(r.Tiers) > 0 {
		v.Tiers = make(map[string]string, len(r.Tiers))
	}
	for tier, l := range r.Tiers {
		v.Tiers[tier] = filled(l)
	}
	if r.Ban != (algorithms.Ban{}) {
		within := r.Ban.Within
		if within == 0 {
			within = r.Limit.Period
		}
		v.Ban = &banView{r.Ban.After, span(within), span(r.Ban.For)}
	}
	return v
}

// filled is the text of a limit, its algorithm included.
func filled(l algorithms.Limit) string {
	if l == Unlimited {
		return "unlimited"
	}
	l.Algorithm = algorithms.Algorithm(lent.AlgorithmOf(l))
	return l.String()
}

// A deniedView is a [DeniedKey].
type deniedView struct {
	Rule  string `json:"rule"`
	Key   string `json:"key"`
	ID    string `json:"id"` // names the key in this process
	Count int64  `json:"count"`
	Error int64  `json:"error"`

	known bool // it can be looked up
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

// A countView is how a key stands by one limit.
type countView struct {
	Key        string  `json:"key"`
	Tier       string  `json:"tier,omitempty"` // "" is the rule's own limit
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

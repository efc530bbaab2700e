package middleware

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/hint"
	"github.com/seed75154129/ratelimit/internal/pattern"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// A rule is a Rule made ready for requests.
type rule struct {
	source    Rule              // a copy of it
	patterns  []pattern.Pattern // none matches every request
	readsBody bool              // to find its key
	reused    int               // number of the key's answer among those that other rules reuse; 0 if no other rule has this key
	traits    hint.Traits       // of the key
	check     algorithms.Check  // by the first of the own limits, without the key
	own       limits            // the check's limit, and others beside it
	terms     terms
	costSaid  sync.Once // that CostFor returns more than a limit can hold
}

// spares reports whether a denial that may come of charges which are given back
// later does not count towards the rule's ban.
func (r *rule) spares() bool { return r.source.ChargeOn != nil && r.check.Ban != (algorithms.Ban{}) }

// applies reports whether the rule matches a request.
func (r *rule) applies(t *pattern.Target) bool {
	for i := range r.patterns {
		if r.patterns[i].Match(t) {
			return true
		}
	}
	return len(r.patterns) == 0
}

// terms are what a rule asks of requests by more than one limit and one cost, made ready
// for requests. The zero value asks nothing special.
type terms struct {
	tiers     map[string]limits
	overrides map[string]*override // by key
	costs     pattern.Values
	shadow    float64 // the fraction of keys that are not enforced
}

// limits are those that a request has by a rule, made ready for requests.
type limits struct {
	windows []algorithms.Limit // none exempts
	queue   bool               // requests may have to wait
}

// An override is an Override made ready for requests.
type override struct {
	limits
	source *Override
	name   string    // for logs
	said   sync.Once // that it has ended
}

// String says of which client's limits it is, for operators.
func (o *override) String() string {
	if o.source.Until.IsZero() {
		return o.name
	}
	is := "until"
	if o.source.ended() {
		is = "ended"
	}
	return fmt.Sprintf("%s, %s %s", o.name, is, o.source.Until.UTC().Format(time.RFC3339))
}

// nameOfOverride does not name the client, which logs keep as a hash.
func nameOfOverride(i int, o *Override) string {
	if o.Note == "" {
		return fmt.Sprintf("overrides[%d]", i)
	}
	return fmt.Sprintf("overrides[%d]: %.128s", i, o.Note)
}

// keyOfOverride returns the one key of a client. The error has no secret of it.
func keyOfOverride(key keyfunc.Key, client []string) (string, error) {
	described := keyfunc.Describe(key)
	text, err := hint.Exact(described, client)
	shown := func(value string) bool { // or the beginning of it: errors quote and cut values
		quoted := strconv.Quote(value)
		return strings.Contains(err.Error(), value) || strings.Contains(err.Error(), quoted[1:min(len(quoted)-1, 17)])
	}
	switch {
	case err != nil && described.Secret() && slices.ContainsFunc(client, shown):
		return "", errors.New("the client is a secret: write the key as it is stored, as operators see it with Config.LogKeys")
	case err == nil && text == "":
		return "", errors.New("the value is empty")
	}
	return text, err
}

// fitOverrides makes the overrides of a valid rule ready for requests.
func (t *terms) fitOverrides(r *Rule, s share) {
	t.overrides = make(map[string]*override, len(r.Overrides))
	for i := range r.Overrides {
		o := &r.Overrides[i]
		key, _ := keyOfOverride(r.Key, o.Client) // they are valid
		fit, _ := r.fit(o.Limits, s)
		t.overrides[key] = &override{limits: fit, source: o, name: nameOfOverride(i, o)}
	}
}

// fit makes limits of the rule ready for requests. LimitsFor may return some that do not
// fit.
func (r *Rule) fit(all []algorithms.Limit, s share) (limits, error) {
	if exempts(all) {
		return limits{}, nil
	}
	set := &limitSet{all: all, valid: all, share: s}
	for i := range table {
		if row := &table[i]; row.limits != nil && !row.warn {
			if mistakes := row.look(r, []*limitSet{set}); mistakes != nil {
				mistakes[0].Rule = r.Name
				return limits{}, mistakes[0]
			}
		}
	}
	fit := limits{windows: all}
	if s.part != nil {
		fit.windows = slices.Clone(all)
	}
	for i, l := range all {
		fit.queue = fit.queue || l.Algorithm == algorithms.LeakyBucket
		if s.part != nil {
			fit.windows[i], _ = s.limit(l) // it is large enough
		}
	}
	return fit, nil
}

// A share is a part of each limit, as the decimal fraction that the program has
// written: floating-point numbers would make 28 of 100 × 0.29. The zero value is
// all of it.
type share struct {
	part *big.Rat
	text string
}

// parseShare reads Config.Share.
func parseShare(f float64) (share, error) {
	if f == 0 || f == 1 {
		return share{}, nil
	}
	if !(f > 0 && f < 1) { // NaN is neither
		return share{}, fmt.Errorf("middleware: share: must be above 0 and at most 1, this region's part of each limit; got %v", f)
	}
	text := strconv.FormatFloat(f, 'f', -1, 64)
	part, _ := new(big.Rat).SetString(text) // it is a number
	return share{part, text}, nil
}

// units is the share of so many, rounded down.
func (s share) units(n int64) int64 {
	all := new(big.Rat).Mul(s.part, new(big.Rat).SetInt64(n))
	return new(big.Int).Quo(all.Num(), all.Denom()).Int64()
}

// limit is the share of a valid limit. The error says that it is too small.
func (s share) limit(l algorithms.Limit) (algorithms.Limit, error) {
	if s.part == nil {
		return l, nil
	}
	part := l
	part.Rate, part.Burst = s.units(l.Rate), s.units(l.Burst)
	if part.Rate < 1 || l.Burst > 0 && part.Burst < 1 {
		return part, fmt.Errorf("the share %s of %s is less than one unit", s.text, l)
	}
	if err := part.Validate(); err != nil {
		return part, fmt.Errorf("the share %s of %s: %w", s.text, l, err)
	}
	return part, nil
}

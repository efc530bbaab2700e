package middleware

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/hint"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// An Override is the limits of one client, in place of all others of its rule.
type Override struct {
	// Client names the client as for [Middleware.Checks], by one plain value for each
	// part of the rule's Key. It must stand for one key. So for [keyfunc.First] the value
	// begins with the number of the key that has it, as in "2:192.0.2.1". For a Key
	// that is Secret write the key as it is stored, such as "apikey:" and 22 letters: the
	// error for a plain value shows it.
	Client []string
	// Limits are those of the client, all windows of them; [Unlimited] exempts it. The
	// counts of windows that the client had before go on.
	Limits []algorithms.Limit
	// Until ends the override, by the clock of this process; the zero time means never.
	// The first request of the client after that logs it.
	Until time.Time
	// Note is for operators, such as a ticket.
	Note string
}

// clone copies an override.
func (o Override) clone() Override {
	o.Client, o.Limits = slices.Clone(o.Client), slices.Clone(o.Limits)
	return o
}

// An override is an Override made ready for requests.
type override struct {
	limits
	until time.Time
	name  string // for logs
	ended atomic.Bool
}

// inForce reports whether the override has not ended, and whether that is new.
func (o *override) inForce() (is, justEnded bool) {
	if o.until.IsZero() || time.Now().Before(o.until) {
		return true, false
	}
	return false, !o.ended.Load() && o.ended.CompareAndSwap(false, true)
}

// String says of which client's limits it is, for operators.
func (o *override) String() string {
	if o.until.IsZero() {
		return o.name
	}
	is := "until"
	if !time.Now().Before(o.until) {
		is = "ended"
	}
	return fmt.Sprintf("%s, %s %s", o.name, is, o.until.UTC().Format(time.RFC3339))
}

// overrideOf returns the override in force for a key; nil if there is none.
func (e *evaluation) overrideOf(rule *rule, key string) *override {
	o := rule.terms.overrides[key]
	if o == nil {
		return nil
	}
	is, justEnded := o.inForce()
	if justEnded {
		e.m.logger.Warn("ratelimit: an override has ended; the rule's other limits apply", "rule", rule.check.Rule, "override", o.name, "until", o.until)
	}
	if !is {
		return nil
	}
	return o
}

// fitOverrides makes the overrides of a valid rule ready for requests.
func (t *terms) fitOverrides(r *Rule, s share) {
	if len(r.Overrides) > 0 {
		t.overrides = make(map[string]*override, len(r.Overrides))
	}
	for i := range r.Overrides {
		o := &r.Overrides[i]
		ready := &override{until: o.Until, name: nameOfOverride(i, o)}
		ready.limits, _ = t.fit(o.Limits, s) // they are valid
		key, _ := keyOfOverride(r.Key, o.Client)
		t.overrides[key] = ready
	}
}

// nameOfOverride does not name the client, which logs keep as a hash.
func nameOfOverride(i int, o *Override) string {
	if o.Note == "" {
		return fmt.Sprintf("overrides[%d]", i)
	}
	return fmt.Sprintf("overrides[%d]: %s", i, bounded(o.Note))
}

var errSecretClient = errors.New("the client is a secret: write the key as it is stored, as operators see it with Config.LogKeys")

// keyOfOverride returns the one key of a client. The error has no secret of it.
func keyOfOverride(key keyfunc.Key, client []string) (string, error) {
	described := keyfunc.Describe(key)
	text, err := hint.Exact(described, client)
	switch {
	case err != nil && described.Secret() && slices.ContainsFunc(client, func(value string) bool { return strings.Contains(err.Error(), value) }):
		return "", errSecretClient
	case err == nil && text == "":
		return "", errors.New("the value is empty")
	}
	return text, err
}

// validateOverrides reports what is wrong with overrides, but for their limits.
func (r *Rule) validateOverrides(bad func(string, error)) {
	if len(r.Overrides) > maxEntries {
		bad("Overrides", fmt.Errorf("%d overrides; at most %d: give many clients a tier by Config.TierFor", len(r.Overrides), maxEntries))
		return
	}
	first := make(map[string]int, len(r.Overrides))
	for i := range r.Overrides {
		o := &r.Overrides[i]
		if validateKey(r.Key) == nil { // or else it is reported
			key, err := keyOfOverride(r.Key, o.Client)
			other, taken := first[key]
			switch {
			case err != nil:
				bad("Overrides", fmt.Errorf("[%d]: client: %w", i, err))
			case taken:
				bad("Overrides", fmt.Errorf("[%d]: client: the same as of overrides[%d]: keep one of them", i, other))
			default:
				first[key] = i
			}
		}
	}
}

// oddOverrides are hints about overrides that are valid but probably mistakes.
func (r *rule) oddOverrides() (odd []string) {
	if len(r.source.Overrides) == 0 {
		return nil
	}
	if chosen := r.traits.Chosen; chosen != "" && chosen != "an API key" {
		odd = append(odd, fmt.Sprintf(": its Key is %s, so any client can have the limits of its Overrides; "+
			"use a Key that the program or a proxy has verified, such as keyfunc.Context or keyfunc.Proxies.UserID", chosen))
	}
	counts := make(map[window]bool)
	for _, l := range r.limits() {
		counts[windowOf(l.Limit)] = true
	}
	for i := range r.source.Overrides {
		o := &r.source.Overrides[i]
		if !o.Until.IsZero() && !time.Now().Before(o.Until) {
			odd = append(odd, fmt.Sprintf(": %s ended at %s; remove it", nameOfOverride(i, o), o.Until.UTC().Format(time.RFC3339)))
			continue
		}
		for _, l := range o.Limits {
			if l != unlimited && !counts[windowOf(l)] {
				odd = append(odd, fmt.Sprintf(": %s counts by %s, so its client begins at 0 there, and windows that the override leaves out count nothing meanwhile; "+
					"to keep the counts, use the same algorithms and periods", nameOfOverride(i, o), l))
			}
		}
	}
	return odd
}

package middleware

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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
	// Limits are all limits of the client, so list every window. [Unlimited] exempts it. The
	// counts of windows that the client had before go on; others begin at 0.
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

// ended reports whether the override has ended.
func (o *Override) ended() bool { return !o.Until.IsZero() && !time.Now().Before(o.Until) }

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

// overrideOf returns the override in force for a key; nil if there is none.
func (e *evaluation) overrideOf(rule *rule, key string) *override {
	o := rule.terms.overrides[key]
	if o == nil || !o.source.ended() {
		return o
	}
	o.said.Do(func() {
		e.m.logger.Warn("ratelimit: an override has ended; the rule's other limits apply", "rule", rule.check.Rule, "override", o.name, "until", o.source.Until)
	})
	return nil
}

// fitOverrides makes the overrides of a valid rule ready for requests.
func (t *terms) fitOverrides(r *Rule, s share) {
	if len(r.Overrides) > 0 {
		t.overrides = make(map[string]*override, len(r.Overrides))
	}
	for i := range r.Overrides {
		o := &r.Overrides[i]
		key, _ := keyOfOverride(r.Key, o.Client) // they are valid
		fit, _ := r.fit(o.Limits, s)
		t.overrides[key] = &override{limits: fit, source: o, name: nameOfOverride(i, o)}
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
	if validateKey(r.Key) != nil {
		return // it is reported
	}
	first := make(map[string]int, len(r.Overrides))
	for i := range r.Overrides {
		key, err := keyOfOverride(r.Key, r.Overrides[i].Client)
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

// oddOverrides are hints about overrides that are valid but probably mistakes.
func (r *rule) oddOverrides() (odd []string) {
	if chosen := r.traits.Chosen; len(r.source.Overrides) > 0 && chosen != "" && chosen != "an API key" {
		odd = append(odd, fmt.Sprintf(": its Key is %s, so any client can have the limits of its Overrides; "+
			"use a Key that the program or a proxy has verified, such as keyfunc.Context or keyfunc.Proxies.UserID", chosen))
	}
	for i := range r.source.Overrides {
		if o := &r.source.Overrides[i]; o.ended() {
			odd = append(odd, fmt.Sprintf(": %s ended at %s; remove it", nameOfOverride(i, o), o.Until.UTC().Format(time.RFC3339)))
		}
	}
	return odd
}

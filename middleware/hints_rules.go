package middleware

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

const (
	fewUnits = 10             // fewer are better counted one by one
	longBan  = 365 * day      // longer ones are mostly a unit too large
	longFill = 30 * day       // to refill a bucket
	day      = 24 * time.Hour // without leap seconds
)

// oddities returns what looks like a mistake in rules as they are written, and may
// be meant.
func oddities(rules []rule, tierFor bool) (odd []string) {
	off := 0
	for i := range rules {
		r := &rules[i]
		if r.disabled || r.source.Shadow == 1 {
			off++
		}
		if r.disabled {
			continue
		}
		for _, text := range r.oddities(tierFor) {
			odd = append(odd, fmt.Sprintf("rule %q%s", r.check.Rule, text))
		}
	}
	if off == len(rules) {
		odd = append(odd, "every rule is disabled or in shadow for all keys, so no request is limited; take Disabled or Shadow away from those that are to limit")
	}
	return append(odd, heldOddities(rules)...)
}

func (r *rule) oddities(tierFor bool) (odd []string) {
	say := func(format string, args ...any) { odd = append(odd, fmt.Sprintf(format, args...)) }
	if r.terms.tiers != nil && !tierFor {
		say(" has Tiers, and Config.TierFor is nil: every request has the rule's own limit")
	}
	if r.readsBody && len(r.patterns) > 0 && !slices.ContainsFunc(r.patterns, func(p pattern) bool { return p.hasBodies() }) {
		say(": its Key reads the body, and requests that its Match takes mostly have none; add the method that sends one, such as POST")
	}
	for _, l := range r.source.limits() {
		bucket := !isWindow(l.Limit)
		if l.Algorithm == "" && !bucket && l.Rate < fewUnits && l.Period >= time.Minute {
			say(": %s is a sliding_window, which may deny for up to %s; for so few units write Algorithm: algorithms.SlidingLog, "+
				"in text %q, or name the sliding_window to keep it", l, l.Period+l.Period/time.Duration(l.Rate), l.Limit.String()+" sliding_log")
		}
		if quota := l.Quota(); bucket && quota/l.Rate > 1000 && float64(quota)/float64(l.Rate)*float64(l.Period) > float64(longFill) {
			say(": %s admits %d units at once, and needs more than %d days to refill; write a smaller burst or a higher rate", l, quota, longFill/day)
		}
	}
	odd = append(odd, r.source.oddBan()...)
	switch on := r.source.ChargeOn; {
	case len(on) == 1 && on[0] == http.StatusTooManyRequests:
		say(": ChargeOn has only 429, and the middleware's own denials are never charged; list what the handler answers, such as 401 for failed logins")
	case len(on) == 1 && on[0] == http.StatusOK:
		say(": ChargeOn has only 200, so every success is charged, and no failure; for failed logins write 401")
	}
	return odd
}

func (r *Rule) oddBan() (odd []string) {
	if r.Ban == (algorithms.Ban{}) {
		return nil
	}
	if r.Ban.For > longBan {
		odd = append(odd, fmt.Sprintf(": it bans for %d days, so whoever has the address next is denied, too; write less than a year", r.Ban.For/day))
	}
	for _, l := range r.limits() {
		free := l.Period // until a denied client has room
		if !isWindow(l.Limit) {
			free /= time.Duration(l.Rate)
		}
		if r.Ban.For < free {
			odd = append(odd, fmt.Sprintf(": it bans for %s, and %s denies for up to %s anyway; write a longer ban", r.Ban.For, l, free))
		}
	}
	return odd
}

// hasBodies reports whether requests that the pattern matches may well have a body.
func (p *pattern) hasBodies() bool {
	switch p.method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodConnect:
		return false
	}
	return true
}

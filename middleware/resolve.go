package middleware

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/replay"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// shareBody replaces the body of a request that a key may read by one that several
// readers can look at, and reports whether there is such a key. It does so before any key
// is resolved, so that concurrent Takes of one request do not change it.
func (e *evaluation) shareBody() bool {
	for i := e.first; i < len(e.set.rules); i++ {
		if rule := &e.set.rules[i]; rule.readsBody && rule.applies(&e.target) {
			replay.Of(e.request)
			return true
		}
	}
	return false
}

// leaveBody leaves the server's request its own body, if it is replaced by now, and goes on with
// a copy of the request: by the body's type, net/http knows that it need not read it before it
// answers.
func (e *evaluation) leaveBody(own io.ReadCloser) {
	_, replaced := e.request.Body.(*replay.Body)
	if _, before := own.(*replay.Body); replaced && !before {
		server := e.request
		e.request = server.WithContext(server.Context())
		server.Body = own
	}
}

// resolve appends the checks of a rule that matches the request, if its key makes the rule
// apply.
func (e *evaluation) resolve(i int, checks []algorithms.Check) []algorithms.Check {
	rule := &e.set.rules[i]
	check := rule.check
	key, err := e.keyOf(rule)
	if err == nil && key == "" {
		err = keyfunc.ErrNoKey
	}
	if e.seen != nil {
		e.seen[i] = seenKey{matched: true, key: key, err: err}
	}
	switch {
	case err == nil:
		check.Key = key
	case errors.Is(err, keyfunc.ErrNoKey): // these requests share one count
	case errors.Is(err, keyfunc.ErrSkip):
		e.count(i, outcomeSkipped)
		return checks
	default:
		e.count(i, outcomeError)
		if e.refusal == nil && !rule.shadows("") {
			e.refusal, e.refuser = fmt.Errorf("middleware: rule %q: key: %w", check.Rule, err), i
		}
		return checks
	}
	windows := e.limitsOf(i, check.Key)
	if windows == nil {
		if e.seen != nil {
			e.seen[i].exempt = true
		}
		e.count(i, outcomeSkipped)
		return checks
	}
	check.Cost = e.costOf(rule, windows)
	check.Shadow = rule.shadows(check.Key)
	if check.Cost == 0 {
		e.free = appendChecks(e.free, &check, windows)
		return checks
	}
	checks = appendChecks(checks, &check, windows)
	if e.seen != nil {
		e.seen[i].enforced, e.seen[i].limit = !check.Shadow, windows[0]
	}
	if !check.Shadow && slices.ContainsFunc(windows, func(l algorithms.Limit) bool { return l.Algorithm == algorithms.LeakyBucket }) {
		e.queues = append(e.queues, queueKey{Rule: check.Rule, Key: check.Key})
	}
	return checks
}

// A resolvedKey is what a key returned for the request.
type resolvedKey struct {
	key  string
	err  error
	done bool
}

func (e *evaluation) keyOf(rule *rule) (string, error) {
	if rule.reused == 0 {
		return rule.source.Key.Resolve(e.request)
	}
	k := &e.resolved[rule.reused-1]
	if !k.done {
		k.key, k.err = rule.source.Key.Resolve(e.request)
		k.done = true
	}
	return k.key, k.err
}

func (e *evaluation) count(i int, o outcome) {
	if !e.peeks {
		e.set.watches[i].series.counts[o][algorithms.SourceNone].Add(1)
	}
}

// costOf is what the request costs by a rule: CostFor, Costs, Cost. 0 is free.
func (e *evaluation) costOf(rule *rule, windows []algorithms.Limit) int64 {
	if f := rule.source.CostFor; f != nil {
		if n := f(e.request); n == 0 {
			return 0
		} else if n > 0 {
			for i := range windows {
				if quota := windows[i].Quota(); n > quota {
					rule.costSaid.Do(func() {
						e.m.config.Logger.Warn(fmt.Sprintf("ratelimit: rule %q: CostFor returned %d, and %s can hold %d units, so that such a request is always denied; "+
							"raise the limit, or return less and call Add for the rest", rule.check.Rule, n, windows[i], quota))
					})
				}
			}
			return n
		}
		if hints := e.set.hints; hints.watching() {
			hints.say("rule %q: CostFor returned a negative cost, so Costs and Cost apply, as to bodies of unknown length, whose ContentLength is -1; "+
				"return the most that such a request may cost", rule.check.Rule)
		}
	}
	if rule.costs != nil {
		return rule.costs.Of(&e.target, rule.check.Cost)
	}
	return rule.check.Cost
}

// shadows reports whether a key is one of those that are not enforced. Every
// instance has the same ones, and a smaller fraction has a part of them.
func (r *rule) shadows(key string) bool {
	if r.shadow == 0 || r.shadow == 1 {
		return r.shadow == 1
	}
	return float64(hash(r.check.Rule, key)>>11)*0x1p-53 < r.shadow
}

// hash is FNV-1a of the rule, a byte that no name has, and the key, mixed as
// MurmurHash3 does, since FNV leaves its upper bits much alike for similar keys.
func hash(rule, key string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(rule) {
		h = (h ^ uint64(rule[i])) * 1099511628211
	}
	h *= 1099511628211 // the byte is 0
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// appendChecks appends a check by each of the windows.
func appendChecks(all []algorithms.Check, check *algorithms.Check, windows []algorithms.Limit) []algorithms.Check {
	for _, l := range windows {
		all = append(all, *check)
		all[len(all)-1].Limit = l
	}
	return all
}

package middleware

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/pattern"
	"github.com/seed75154129/ratelimit/internal/refundable"
	"github.com/seed75154129/ratelimit/internal/replay"
	"github.com/seed75154129/ratelimit/internal/waitqueue"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// A match holds what is known of a request before any key is resolved.
type match struct {
	set    *ruleset
	target pattern.Target
	first  int // the first rule that matches; below 0 if none does, or the request is skipped

	skipped bool
}

// match finds the rules of a request. It charges nothing.
func (m *Middleware) match(r *http.Request) (found match) {
	found.set, found.target, found.first = m.rules.Load(), pattern.TargetOf(r), -1
	for i := range m.skip {
		if m.skip[i].MatchExactly(&found.target) {
			found.set.hints.skip()
			found.skipped = true
			return found
		}
	}
	if m.skipFor != nil && m.skipFor(r) {
		found.set.hints.skip()
		found.skipped = true
		return found
	}
	for i := range found.set.rules {
		if found.set.rules[i].applies(&found.target) {
			found.first = i
			return found
		}
	}
	if hints := found.set.hints; hints.watching() {
		hints.done(found.set.rules, limitedBy{})
	}
	return found
}

// An evaluation is one request on its way through a Middleware: first its checks, then
// the decision about them.
type evaluation struct {
	m *Middleware
	match
	request *http.Request
	writer  http.ResponseWriter // nil unless handles
	handles bool                // the request waits here if a leaky_bucket delays it
	peeks   bool                // nothing is charged or counted

	checks    []algorithms.Check // that were decided; nil if they are those of the results
	decided   int                // how many checks the decision is about
	resolved  [maxReused]resolvedKey
	tierName  string
	tierKnown bool // TierFor was called

	seen []seenKey // for each rule; nil once the hints have watched enough requests

	queues  []waitqueue.Key // of the checks by a leaky_bucket
	entered int             // how many of the queues the ticket is for
	ticket  *waitqueue.Ticket
	maxWait time.Duration // 0 means any

	decision algorithms.Decision
	refusal  error               // by a key, while the other rules were charged; nil if there is none
	pending  *refundable.Request // nil if no rule has ChargeOn and a Ban
	before   http.Header         // rate limit fields that the response had already; nil if none
	state    *requestState       // nil until the next handler is called
	held     *held               // nil if nothing is held while the request is in flight
	charged  bool                // Config.Settled is to be called

	slot   slot          // nil without a Shedder, or if it was not asked
	shed   bool          // by the Shedder
	waited time.Duration // for the slot
}

// decide resolves the keys of the rules that match, and has the limiter charge them. The
// error says that a check is invalid.
//
// A client that is over its limits must not make the process read bodies. So if one key
// is known to be over its limit, the limiter decides without the rules whose keys read
// the body. It decides these only if it admits the request.
func (e *evaluation) decide() error {
	e.decision.Allowed = true
	if e.first < 0 {
		return nil
	}
	begun, rules := time.Duration(0), e.set.rules
	if !e.peeks {
		begun = time.Since(e.m.start) // half as expensive as time.Now
	}
	if e.set.hints.watching() {
		e.seen = make([]seenKey, len(rules))
	}
	e.shareBody()
	var few [4]int
	readers := few[:0] // rules whose keys read the body
	var room [4]algorithms.Check
	checks := room[:0] // on the stack, if there are few
	for i := e.first; i < len(rules); i++ {
		if i > e.first && !rules[i].applies(&e.target) {
			continue
		}
		if rules[i].readsBody {
			readers = append(readers, i)
		} else {
			checks = e.resolve(i, checks)
		}
	}
	e.enterShedder(checks)
	var err error
	if !e.shed && len(readers) > 0 && e.anyKnownOver(checks) {
		err = e.charge(checks)
	}
	if !e.shed && err == nil && e.decision.Allowed {
		for _, i := range readers {
			checks = e.resolve(i, checks)
		}
		err = e.charge(checks)
	}
	for i := range e.decision.Results {
		if e.decision.Results[i].Source == algorithms.SourceFallback { // by a share of its limit
			e.checks = slices.Clone(checks)
			break
		}
	}
	if !e.peeks && (len(e.decision.Results) > 0 || err != nil) {
		e.m.decisions.Observe(time.Since(e.m.start) - begun - e.waited)
	}
	if e.seen != nil {
		e.set.hints.decided(e.request, rules, e.seen)
	}
	return err
}

// shareBody replaces the body of a request that a key may read by one that several
// readers can look at. It does so before any key is resolved, so that concurrent Takes of
// one request do not change it.
func (e *evaluation) shareBody() {
	for i := e.first; i < len(e.set.rules); i++ {
		if rule := &e.set.rules[i]; rule.readsBody && rule.applies(&e.target) {
			replay.Of(e.request)
			return
		}
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
	if rule.tierBy != nil && (err == nil || errors.Is(err, keyfunc.ErrNoKey)) {
		var tierErr error
		if check.Tier, tierErr = rule.tierBy.Resolve(e.request); errors.Is(tierErr, keyfunc.ErrNoKey) {
			check.Tier = ""
		} else if tierErr != nil {
			err = tierErr
		}
	}
	if e.seen != nil {
		e.seen[i] = seenKey{matched: true, key: key, err: err}
	}
	switch {
	case err == nil:
		check.Key = key
	case errors.Is(err, keyfunc.ErrNoKey): // these requests share one count, which one client must not have banned
		check.Ban = algorithms.Ban{}
	case errors.Is(err, keyfunc.ErrSkip):
		e.count(i, outcomeSkipped)
		return checks
	default:
		e.count(i, outcomeError)
		if e.refusal == nil && !rule.terms.shadows(check.Rule, "") {
			e.refusal = fmt.Errorf("middleware: rule %q: key: %w", check.Rule, err)
		}
		return checks
	}
	limited := rule.own
	if !rule.plain {
		if limited = e.applyTerms(i, rule, &check); limited.windows == nil {
			if e.seen != nil {
				e.seen[i].exempt = true
			}
			e.count(i, outcomeSkipped)
			return checks
		}
	}
	for j := range limited.windows {
		checks = append(checks, check)
		setLimit(&checks[len(checks)-1], limited.windows[j])
	}
	if e.seen != nil {
		e.seen[i].enforced = !check.Shadow
	}
	if limited.queue {
		e.queues = append(e.queues, waitqueue.Key{Rule: check.Rule, Key: check.Key})
	}
	return checks
}

// setLimit sets the limit of a check.
func setLimit(check *algorithms.Check, l algorithms.Limit) {
	if check.Limit = l; !leadsToBan(l) {
		check.Ban = algorithms.Ban{}
	}
}

// A resolvedKey is what a key returned for the request.
type resolvedKey struct {
	key  string
	err  error
	done bool
}

func (e *evaluation) keyOf(rule *rule) (string, error) {
	if rule.reused == 0 {
		return rule.key.Resolve(e.request)
	}
	k := &e.resolved[rule.reused-1]
	if !k.done {
		k.key, k.err = rule.key.Resolve(e.request)
		k.done = true
	}
	return k.key, k.err
}

func (e *evaluation) count(i int, o outcome) {
	if !e.peeks {
		e.set.watches[i].series.counts[o][originNone].Add(1)
	}
}

func (e *evaluation) anyKnownOver(checks []algorithms.Check) bool {
	for _, c := range checks {
		if !c.Shadow && e.m.knownOver(c) {
			return true
		}
	}
	return false
}

// charge has the limiter charge the checks that it has not decided yet. If it denies
// them, the checks that were charged before are refunded.
func (e *evaluation) charge(all []algorithms.Check) error {
	checks := all[e.decided:]
	if len(checks) == 0 {
		return nil
	}
	ctx := e.request.Context()
	if len(e.queues) > 0 {
		e.enterQueue(ctx, checks)
	}
	if e.set.spares && !e.peeks {
		if e.pending == nil {
			e.pending = e.m.refundable.NewRequest()
		}
		e.pending.Enter(checks, e.set.sparing, cmp.Or(e.m.budget, defaultBudget))
	}
	d, err := e.m.callLimiter(ctx, e.peeks, checks)
	e.pending.Decided(&d, e.handles)
	if err != nil && !e.peeks {
		e.set.failed(checks)
	}
	if e.decided > 0 {
		if !d.Allowed {
			e.m.refund(ctx, e.decision)
		}
		d.Results = append(e.decision.Results, d.Results...)
	}
	e.decision, e.decided = d, len(all)
	return err
}

package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
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
}

// match finds the rules of a request. It charges nothing.
func (m *Middleware) match(r *http.Request) (found match) {
	found.set, found.target, found.first = m.rules.Load(), pattern.TargetOf(r), -1
	for i := range m.skip {
		if m.skip[i].MatchExactly(&found.target) {
			found.set.hints.skip()
			return found
		}
	}
	if m.skipFor != nil && m.skipFor(r) {
		found.set.hints.skip()
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
	handles bool // the request waits here if a leaky_bucket delays it
	peeks   bool // nothing is charged or counted

	checks    []algorithms.Check
	decided   int // how many of the checks the decision is about
	resolved  [maxReused]resolvedKey
	tierName  string
	tierKnown bool // TierFor was called

	hints *hints    // nil once enough requests were watched
	by    limitedBy // for the hints

	queues  []waitqueue.Key // of the checks by a leaky_bucket
	entered int             // how many of the queues the ticket is for
	ticket  *waitqueue.Ticket
	maxWait time.Duration // 0 means any

	decision algorithms.Decision
	refusal  error               // by a key, while the other rules were charged; nil if there is none
	pending  *refundable.Request // nil if no rule has ChargeOn and a Ban
	before   http.Header         // rate limit fields that the response had already; nil if none
	state    *requestState       // nil until the next handler is called
}

// end releases what the request holds.
func (e *evaluation) end() {
	e.ticket.Leave()
	e.state.close()
	e.pending.End()
}

// unlimited reports whether no rule applies to the request.
func (e *evaluation) unlimited() bool {
	return e.refusal == nil && e.decision.Allowed && len(e.decision.Results) == 0
}

// outcome is what Take and Peek return. A denial takes precedence over a refusal.
func (e *evaluation) outcome() (algorithms.Decision, error) {
	if e.refusal != nil && e.decision.Allowed {
		return algorithms.Decision{}, e.refusal
	}
	return e.decision, nil
}

// decide resolves the keys of the rules that match, and has the limiter charge them. The
// error says that a check is invalid.
//
// A client that is over its limits must not make the process read bodies. So if one key
// is known to be over its limit, the limiter decides without the rules whose keys read
// the body. It decides these only if it admits the request.
func (e *evaluation) decide(call limiterCall) error {
	e.decision.Allowed = true
	if e.first < 0 {
		return nil
	}
	begun, rules := time.Duration(0), e.set.rules
	if !e.peeks {
		begun = time.Since(e.m.start) // half as expensive as time.Now
	}
	if hints := e.set.hints; hints.watching() {
		e.hints = hints
		hints.begin(e.request, e.m, e.handles)
	}
	e.shareBody()
	var few [4]int
	readers := few[:0] // rules whose keys read the body
	for i := e.first; i < len(rules); i++ {
		if i > e.first && !rules[i].applies(&e.target) {
			continue
		}
		if rules[i].readsBody {
			readers = append(readers, i)
		} else {
			e.resolve(i)
		}
	}
	var err error
	if len(readers) > 0 && e.anyKnownOver() {
		err = e.charge(call)
	}
	if err == nil && e.decision.Allowed {
		for _, i := range readers {
			e.resolve(i)
		}
		err = e.charge(call)
	}
	if !e.peeks && (len(e.decision.Results) > 0 || err != nil) {
		e.m.decisions.Observe(time.Since(e.m.start) - begun)
	}
	if e.hints != nil {
		e.hints.done(rules, e.by)
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

// resolve appends the check of a rule that matches the request, if its key makes the rule
// apply.
func (e *evaluation) resolve(i int) {
	rule := &e.set.rules[i]
	check := rule.check
	key, err := e.keyOf(rule)
	if err == nil && key == "" {
		err = keyfunc.ErrNoKey
	}
	if e.hints != nil {
		e.hints.looked(e.request, i, rule, key, err)
	}
	switch {
	case err == nil:
		check.Key = key
	case errors.Is(err, keyfunc.ErrNoKey): // these requests share one count, which one client must not have banned
		check.Ban = algorithms.Ban{}
	case errors.Is(err, keyfunc.ErrSkip):
		e.count(i, outcomeSkipped)
		return
	default:
		e.count(i, outcomeError)
		if e.refusal == nil && !rule.terms.shadows(check.Rule, "") {
			e.refusal = fmt.Errorf("middleware: rule %q: key: %w", check.Rule, err)
		}
		return
	}
	queue := rule.queue
	if !rule.plain {
		var applies bool
		if queue, applies = e.applyTerms(i, rule, &check); !applies {
			if e.hints != nil {
				e.hints.use[i].exempt.Add(1)
			}
			e.count(i, outcomeSkipped)
			return
		}
	}
	if e.checks == nil {
		e.checks = make([]algorithms.Check, 0, len(e.set.rules)-i)
	}
	e.checks = append(e.checks, check)
	if e.hints != nil {
		e.by.add(rule, &check)
	}
	if queue {
		e.queues = append(e.queues, waitqueue.Key{Rule: check.Rule, Key: check.Key})
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

func (e *evaluation) anyKnownOver() bool {
	for i := range e.checks {
		if c := &e.checks[i]; !c.Shadow && e.m.knownOver(c) {
			return true
		}
	}
	return false
}

// charge has the limiter charge the checks that it has not decided yet. If it denies
// them, the checks that were charged before are refunded.
func (e *evaluation) charge(call limiterCall) error {
	checks := e.checks[e.decided:]
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
	d, err := e.m.callLimiter(ctx, call, e.peeks, checks)
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
	e.decision, e.decided = d, len(e.checks)
	return err
}

// enterQueue takes a place in the wait queue before the limiter is asked, so that a
// request without one takes no slot of a leaky_bucket. The limiter is told how long the
// request can wait, so that a request which cannot wait long enough takes none either.
func (e *evaluation) enterQueue(ctx context.Context, checks []algorithms.Check) {
	if e.handles && e.entered < len(e.queues) {
		e.ticket.Leave()
		e.ticket, e.entered = e.m.queue.Enter(e.queues, hidesHangUp(e.request)), len(e.queues)
	}
	e.maxWait = e.m.maxWait(ctx, e.handles)
	if e.handles && e.ticket == nil {
		e.maxWait = noWait
	}
	for i := range checks {
		if checks[i].Limit.Algorithm == algorithms.LeakyBucket {
			checks[i].MaxDelay = e.maxWait
		}
	}
}

package middleware

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/replay"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// A match is what is known of a request before any key is resolved.
type match struct {
	set    *ruleset
	target target
	first  int // the first rule that matches; below 0 if none does, or the request is to be skipped
}

func (m *Middleware) match(r *http.Request) (found match) {
	found.set, found.target, found.first = m.rules.Load(), targetOf(r), -1
	for i := range m.skip {
		if m.skip[i].matchExactly(&found.target) {
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

// A verdict is what became of a request.
type verdict struct {
	set      *ruleset
	decision algorithms.Decision
	refusal  error         // by a key, while the other rules were charged; nil if by none
	turn     *turn         // nil where no rule is a queue
	patience time.Duration // for a turn; 0 means any
	found    http.Header   // fields of rate limits that others have set before
	passage  *passage      // nil until the next handler is called
	crossing *crossing     // nil where no rule has ChargeOn and a Ban
	held     *held         // nil where nothing is held while it is in flight
}

// unlimited reports whether no rule applies to the request.
func (v *verdict) unlimited() bool {
	return v.refusal == nil && v.decision.Allowed && len(v.decision.Results) == 0
}

// outcome is what Take and Peek return. A denial comes before a refusal.
func (v *verdict) outcome() (algorithms.Decision, error) {
	if v.refusal != nil && v.decision.Allowed {
		return algorithms.Decision{}, v.refusal
	}
	return v.decision, nil
}

// A question is a request on its way to the limiter, and the verdict.
type question struct {
	*Middleware
	request *http.Request
	handles bool      // the request waits for its turn here
	peeks   bool      // nothing is charged or counted
	hints   *hints    // nil once there were enough requests
	by      limitedBy // for them
	target  target
	shared  [maxShared]resolved
	checks  []algorithms.Check
	queues  []place
	entered int // queues that the turn is for

	tierName  string
	tierKnown bool // it was asked for

	verdict
}

// decide has the limiter decide by the rules that match. The error says that a
// rule's check is invalid.
func (q *question) decide(found *match, take asker) error {
	q.set, q.target, q.decision.Allowed = found.set, found.target, true
	if found.first < 0 {
		return nil
	}
	begun, rules := q.clock(), found.set.rules
	if hints := found.set.hints; hints.watching() {
		q.hints = hints
		hints.begin(q.request, q.Middleware, q.handles)
	}
	found.shareBody(q.request)
	var room [4]int
	readers := room[:0] // rules whose keys read the body
	for i := found.first; i < len(rules); i++ {
		if i > found.first && !rules[i].applies(&found.target) {
			continue
		}
		if rules[i].readsBody {
			readers = append(readers, i)
		} else {
			q.resolve(i)
		}
	}
	err := q.decideOnce(take, readers)
	if len(q.decision.Results) > 0 || err != nil {
		q.took(begun)
	}
	if q.hints != nil {
		q.hints.done(rules, q.by)
	}
	return err
}

// shareBody replaces the body of a request that a key may read by one that several
// readers can look at. It does so before any key is resolved, so that goroutines
// that take one request find it done and change nothing.
func (found *match) shareBody(r *http.Request) {
	for i := found.first; i < len(found.set.rules); i++ {
		if rule := &found.set.rules[i]; rule.readsBody && rule.applies(&found.target) {
			replay.Of(r)
			return
		}
	}
}

// resolve appends the check of a rule that matches the request, if its key makes
// it apply.
func (q *question) resolve(i int) {
	rule := &q.set.rules[i]
	check := rule.check
	key, err := q.keyOf(rule)
	if err == nil && key == "" {
		err = keyfunc.ErrNoKey
	}
	if q.hints != nil {
		q.hints.looked(q.request, i, rule, key, err)
	}
	switch {
	case err == nil:
		check.Key = key
	case errors.Is(err, keyfunc.ErrNoKey): // those without a key share one count, but one of them cannot ban all
		check.Ban = algorithms.Ban{}
	case errors.Is(err, keyfunc.ErrSkip):
		q.count(i, outcomeSkipped)
		return
	default:
		q.count(i, outcomeError)
		if q.refusal == nil && !rule.terms.shadows(check.Rule, "") {
			q.refusal = fmt.Errorf("middleware: rule %q: key: %w", check.Rule, err)
		}
		return
	}
	queue := rule.queue
	if !rule.plain {
		var applies bool
		if queue, applies = q.agree(i, rule, &check); !applies {
			if q.hints != nil {
				q.hints.use[i].exempt.Add(1)
			}
			q.count(i, outcomeSkipped)
			return
		}
	}
	if q.checks == nil {
		q.checks = make([]algorithms.Check, 0, len(q.set.rules)-i)
	}
	q.checks = append(q.checks, check)
	if q.hints != nil {
		q.by.add(rule, &check)
	}
	if queue {
		q.queues = append(q.queues, place{rule: check.Rule, key: check.Key})
	}
}

// A resolved is what a key returned for the request.
type resolved struct {
	key  string
	err  error
	done bool
}

func (q *question) keyOf(rule *rule) (string, error) {
	if rule.shared == 0 {
		return rule.key.Resolve(q.request)
	}
	k := &q.shared[rule.shared-1]
	if !k.done {
		k.key, k.err = rule.key.Resolve(q.request)
		k.done = true
	}
	return k.key, k.err
}

func (q *question) count(i int, o outcome) {
	if !q.peeks {
		q.set.watches[i].series.counts[o][originNone].Add(1)
	}
}

// decideOnce asks the limiter once: about the checks that there are, and those of
// the readers.
//
// A client that is over its limits must not make the process read bodies. So if
// one is known to be over, the limiter is asked without the readers, and about
// them only if it admits after all.
func (q *question) decideOnce(take asker, readers []int) (err error) {
	charged := 0
	if len(readers) > 0 && q.anyKnownOver() {
		q.enter()
		q.decision, err = q.ask(take, q.checks)
		if err != nil || !q.decision.Allowed {
			return err
		}
		charged = len(q.checks)
	}
	for _, i := range readers {
		q.resolve(i)
	}
	checks := q.checks[charged:]
	if len(checks) == 0 {
		return nil
	}
	q.enter()
	rest, err := q.ask(take, checks)
	if charged > 0 {
		q.join(&rest)
	}
	q.decision = rest
	return err
}

// enter takes a place for the request in the queues that are known so far. It does
// so before the limiter is asked: who has none takes no slot.
func (q *question) enter() {
	if len(q.queues) == 0 || !q.handles || q.turn != nil && q.entered == len(q.queues) {
		return
	}
	q.turn.leave()
	q.turn, q.entered = q.room.enter(q.queues, hidesHangUp(q.request)), len(q.queues)
}

func (q *question) anyKnownOver() bool {
	for i := range q.checks {
		if c := &q.checks[i]; !c.Shadow && q.knownOver(c) {
			return true
		}
	}
	return false
}

// join makes rest the decision on all checks, those that were charged before
// included: they are given back if it is not admitted.
func (q *question) join(rest *algorithms.Decision) {
	if !rest.Allowed {
		_ = algorithms.Refund(q.request.Context(), q.limiter, q.decision) // what stays charged errs towards denying
	}
	rest.Results = append(q.decision.Results, rest.Results...)
}

// ask has the limiter decide. Queues are told how long the request can wait, so
// that one that cannot takes no slot.
func (q *question) ask(take asker, checks []algorithms.Check) (algorithms.Decision, error) {
	ctx := q.request.Context()
	if len(q.queues) > 0 {
		q.patience = q.patienceOf(ctx, q.handles)
		if q.turn != nil && !q.turn.has() {
			q.patience = time.Microsecond
		}
		for i := range checks {
			if checks[i].Limit.Algorithm == algorithms.LeakyBucket {
				checks[i].MaxDelay = q.patience
			}
		}
	}
	if q.set.spares && !q.peeks {
		if q.crossing == nil {
			q.crossing = &crossing{of: &q.unsettled}
		}
		q.crossing.enter(checks, q.set.sparing, cmp.Or(q.budget, defaultBudget))
	}
	d, err := q.Middleware.ask(ctx, take, checks)
	q.crossing.decided(&d, q.handles)
	if err != nil && !q.peeks {
		q.set.failed(checks)
	}
	return d, err
}

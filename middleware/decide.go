package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// A verdict is what became of a request.
type verdict struct {
	set      *ruleset
	decision algorithms.Decision
	refused  error         // by a key, while the other rules were charged; nil if by none
	turn     *turn         // nil where no rule is a queue
	patience time.Duration // for a turn; 0 means any
	found    http.Header   // fields of rate limits that others have set before
	passage  *passage      // nil until the next handler is called
}

// unlimited reports whether no rule applies to the request.
func (v *verdict) unlimited() bool {
	return v.refused == nil && v.decision.Allowed && len(v.decision.Results) == 0
}

// answer is what Take and Peek return. A denial comes before a refusal.
func (v *verdict) answer() (algorithms.Decision, error) {
	if v.refused != nil && v.decision.Allowed {
		return algorithms.Decision{}, v.refused
	}
	return v.decision, nil
}

// A question is what a request is asked about, on its way to the limiter.
type question struct {
	*Middleware
	request *http.Request
	set     *ruleset
	metrics *metrics // nil counts nothing
	hints   *hints   // nil once there were enough requests
	handles bool
	target  target
	checks  []algorithms.Check
	queues  []place

	tierName  string
	tierKnown bool // it was asked for
}

// decide has the limiter decide by the rules that apply to a request, and counts
// in mt what needs no limiter, unless mt is nil. The error says that a rule's
// check is invalid.
func (m *Middleware) decide(r *http.Request, mt *metrics, take asker, handles bool) (verdict, error) {
	v := verdict{set: m.rules.Load(), decision: algorithms.Decision{Allowed: true}}
	t := targetOf(r)
	for i := range m.skip {
		if m.skip[i].matchExactly(&t) {
			return v, nil
		}
	}
	if m.skipFor != nil && m.skipFor(r) {
		return v, nil
	}
	v.set.shareBody(r, &t)
	q := question{Middleware: m, request: r, set: v.set, metrics: mt, handles: handles, target: t}
	if hints := v.set.hints; hints.watching() {
		q.hints = hints
		hints.begin(r, m, handles)
	}
	var room [4]int
	readers := room[:0] // rules whose keys read the body
	var begun time.Duration
	for i := range v.set.rules {
		rule := &v.set.rules[i]
		if !rule.applies(&t) {
			continue
		}
		if begun == 0 {
			begun = mt.now()
		}
		if rule.readsBody {
			readers = append(readers, i)
		} else {
			q.resolve(i, &v)
		}
	}
	err := q.decide(&v, take, readers)
	if len(v.decision.Results) > 0 || err != nil {
		mt.decided(begun)
	}
	if q.hints != nil {
		q.hints.done(v.set.rules, q.checks)
	}
	return v, err
}

// resolve appends the check of a rule that matches the request, if its key makes
// it apply.
func (q *question) resolve(i int, v *verdict) {
	rule := &q.set.rules[i]
	check := rule.check
	key, err := rule.key.Resolve(q.request)
	if q.hints != nil {
		q.hints.looked(q.request, i, rule, key, err)
	}
	switch {
	case err == nil:
		check.Key = key
	case errors.Is(err, keyfunc.ErrNoKey): // those without a key share one count
	case errors.Is(err, keyfunc.ErrSkip):
		q.count(i, outcomeSkipped)
		return
	default:
		q.count(i, outcomeError)
		if v.refused == nil && !rule.terms.shadows(check.Rule, "") {
			v.refused = fmt.Errorf("middleware: rule %q: key: %w", check.Rule, err)
		}
		return
	}
	queue := rule.queue
	if !rule.plain {
		var applies bool
		if queue, applies = q.agree(i, rule, &check); !applies {
			q.count(i, outcomeSkipped)
			return
		}
	}
	if q.checks == nil {
		q.checks = make([]algorithms.Check, 0, len(q.set.rules)-i)
	}
	q.checks = append(q.checks, check)
	if queue {
		q.queues = append(q.queues, place{rule: check.Rule, key: check.Key})
	}
}

func (q *question) count(i int, o outcome) {
	if q.metrics != nil {
		q.set.watches[i].series.add(o, originNone)
	}
}

// decide asks the limiter once: about the checks that there are, and those of
// the readers.
//
// A client that is over its limits must not make the process read bodies. So if
// one is known to be over, the limiter is asked without the readers, and about
// them only if it admits after all.
func (q *question) decide(v *verdict, take asker, readers []int) (err error) {
	ctx, charged := q.request.Context(), 0
	if len(readers) > 0 && q.anyKnownOver() {
		v.decision, err = q.ask(v, take, q.checks)
		if err != nil || !v.decision.Allowed {
			return err
		}
		charged = len(q.checks)
	}
	for _, i := range readers {
		q.resolve(i, v)
	}
	checks := q.checks[charged:]
	if len(checks) == 0 {
		return nil
	}
	if len(q.queues) > 0 && q.handles {
		v.turn = q.room.enter(q.queues, hidesHangUp(q.request))
	}
	rest, err := q.ask(v, take, checks)
	if charged > 0 {
		q.join(ctx, &v.decision, &rest)
	}
	v.decision = rest
	return err
}

func (q *question) anyKnownOver() bool {
	for i := range q.checks {
		if c := &q.checks[i]; !c.Shadow && q.knownOver(c) {
			return true
		}
	}
	return false
}

// join makes rest the decision on both: if it is not admitted, what the first
// was charged is given back.
func (q *question) join(ctx context.Context, first, rest *algorithms.Decision) {
	if !rest.Allowed {
		_ = algorithms.GiveBack(ctx, q.limiter, *first) // what stays charged errs towards denying
	}
	rest.Results = append(first.Results, rest.Results...)
}

// ask has the limiter decide. Queues are told how long the request can wait, so
// that one that cannot takes no slot.
func (q *question) ask(v *verdict, take asker, checks []algorithms.Check) (algorithms.Decision, error) {
	ctx := q.request.Context()
	if len(q.queues) > 0 {
		v.patience = q.patience(ctx, q.handles)
		if v.turn != nil && !v.turn.has() {
			v.patience = time.Microsecond
		}
		for i := range checks {
			if lent.IsQueue(checks[i].Limit) {
				checks[i].MaxDelay = v.patience
			}
		}
	}
	d, err := q.Middleware.ask(ctx, take, checks)
	if err != nil && q.metrics != nil {
		q.set.failed(checks)
	}
	return d, err
}

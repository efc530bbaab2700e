package failmode

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// decide asks the store about the checks whose circuit is not open, and decides
// the others here. It decides the others first: if they deny the request, nothing
// is sent.
func (g *Guard) decide(ctx context.Context, charge bool, checks []algorithms.Check) (algorithms.Decision, error) {
	// Each circuit is looked up once, because a check's shard may change meanwhile.
	var room [4]*circuit
	circuits := room[:0]
	var refused []int
	for i := range checks {
		c := g.breaker.circuit(g.store.Shard(&checks[i]))
		if circuits = append(circuits, c); c.isOpen() {
			refused = append(refused, i)
		}
	}
	if len(refused) == 0 {
		return g.ask(ctx, charge, checks, circuits)
	}
	_, rest := split(len(checks), func(i int) bool { return slices.Contains(refused, i) })
	here, err := g.standIn(ctx, charge, undecided(pick(checks, refused), ErrOpen))
	if err != nil || !here.Allowed || len(rest) == 0 {
		return here, err
	}
	there, err := g.ask(ctx, charge, pick(checks, rest), pick(circuits, rest))
	if err != nil || !there.Allowed {
		g.giveBackLocal(ctx, here)
	}
	if err != nil {
		return algorithms.Decision{}, err
	}
	d := algorithms.Decision{Allowed: there.Allowed, Results: make([]algorithms.Result, len(checks))}
	place(d.Results, refused, here.Results)
	place(d.Results, rest, there.Results)
	return d, nil
}

// ask lets the store decide, and decides here what the store did not.
func (g *Guard) ask(ctx context.Context, charge bool, checks []algorithms.Check, circuits []*circuit) (algorithms.Decision, error) {
	begun := time.Now()
	var d algorithms.Decision
	var err error
	within, cancel := g.store.Within(ctx)
	defer cancel()
	if charge {
		d, err = g.Limiter.Take(within, checks...)
	} else {
		d, err = g.Limiter.Peek(within, checks...)
	}
	if errors.Is(err, algorithms.ErrInvalidCheck) {
		return algorithms.Decision{}, err // the caller's mistake, not the store's
	}
	results := align(checks, d, err)
	g.breaker.report(ctx, begun, circuits, results)
	g.breaker.calls.count(begun, d, err)
	if !slices.ContainsFunc(results, func(r algorithms.Result) bool { return r.Err != nil }) {
		if !d.Allowed {
			g.giveBackStore(ctx, results) // charges that the store had no time to give back
		}
		return d, nil
	}
	lost, _ := split(len(results), func(i int) bool { return results[i].Err != nil })
	denied := false
	for i := range results {
		denied = denied || results[i].Err == nil && results[i].Denies()
	}
	g.inFlight.lost(results)
	undecided := pick(results, lost)
	here, err := g.standIn(ctx, charge && !denied, slices.Clone(undecided))
	if err != nil {
		return algorithms.Decision{}, err
	}
	place(results, lost, here.Results)
	d = algorithms.Decision{Allowed: here.Allowed && !denied, Results: results}
	if !d.Allowed {
		for i := range undecided { // charged all the same, if only the answer about a ban is lost
			undecided[i].Err = nil
		}
		g.giveBackStore(ctx, undecided)
		g.giveBackStore(ctx, results)
	}
	return d, nil
}

// retryClosed is the RetryAfter of a check that fails closed. Nobody knows when
// the store will be back, so clients are asked to try again soon.
const retryClosed = time.Second

// standIn decides results with an Err, which the store did not decide. In an
// outage, each check follows its mode. Otherwise it is counted locally in every
// mode: a client that keeps this process busy must neither pass the rules that
// fail open nor close the others for everybody. A key that the store last denied
// stays denied in every mode until it has room: an outage is no amnesty.
func (g *Guard) standIn(ctx context.Context, charge bool, results []algorithms.Result) (algorithms.Decision, error) {
	g.logFallback(results[0].Err)
	d := algorithms.Decision{Allowed: true, Results: results}
	counted, uncounted := split(len(results), func(i int) bool {
		r := &results[i]
		if over, known := g.stillOver(&r.Check); known {
			*r = over
			return false
		}
		return r.Check.Fail == Local || !outage(r.Err)
	})
	for _, i := range uncounted {
		r := &results[i]
		switch {
		case r.Err == nil: // over
		case r.Check.Fail == Open:
			r.Source, r.HasRoom = algorithms.SourceFailOpen, true
		default:
			r.Source, r.RetryAfter = algorithms.SourceFailClosed, retryClosed
		}
		d.Allowed = d.Allowed && !r.Denies()
	}
	checks := make([]algorithms.Check, len(counted))
	for j, i := range counted {
		checks[j] = g.shareOfCheck(results[i].Check)
		checks[j].Ban = algorithms.Ban{} // what is denied here does not count; bans that are known hold all the same
	}
	take := g.local.Peek
	if charge && d.Allowed {
		take = g.local.Take
	}
	local, err := take(ctx, checks...)
	if err != nil {
		return algorithms.Decision{}, err
	}
	d.Allowed = d.Allowed && local.Allowed
	for j := range local.Results {
		local.Results[j].Source = algorithms.SourceFallback
		local.Results[j].Check.Ban = results[counted[j]].Check.Ban
	}
	place(results, counted, local.Results)
	return d, nil
}

// outage reports whether an error proves that the store is away or refuses to
// count. Otherwise the store may be well and this process busy, or a key has a
// foreign value.
func outage(err error) bool {
	if errors.Is(err, ErrOpen) {
		return true
	}
	switch transport.ClassOf(err) {
	case transport.ClassBusy, transport.ClassMoved, transport.ClassMisused:
		return false
	}
	return !isTimeout(err)
}

func (g *Guard) logFallback(err error) {
	if outage(err) || transport.ClassOf(err) == transport.ClassMisused {
		return // the breaker logs it
	}
	g.fellBack.Do(func() {
		g.logger.Warn("ratelimit: falling back to local counting", "class", string(transport.ClassOf(err)), "error", err)
	})
}

// split divides the numbers below n into the chosen ones and the rest.
func split(n int, chosen func(i int) bool) (in, out []int) {
	for i := range n {
		if chosen(i) {
			in = append(in, i)
		} else {
			out = append(out, i)
		}
	}
	return in, out
}

// pick returns the elements at these places.
func pick[T any](all []T, at []int) []T {
	picked := make([]T, len(at))
	for i, j := range at {
		picked[i] = all[j]
	}
	return picked
}

// place puts elements that pick took back into their places.
func place[T any](all []T, at []int, picked []T) {
	for i, j := range at {
		all[j] = picked[i]
	}
}

// undecided returns a result with this error for each check.
func undecided(checks []algorithms.Check, err error) []algorithms.Result {
	results := make([]algorithms.Result, len(checks))
	for i, c := range checks {
		results[i] = algorithms.Result{Check: c, Err: err}
	}
	return results
}

var errNoAnswer = errors.New("failmode: the limiter did not answer this check")

// align returns one result for each check, in their order. Results that the store
// did not decide have an Err.
func align(checks []algorithms.Check, d algorithms.Decision, err error) []algorithms.Result {
	if err != nil {
		return undecided(checks, err)
	}
	if len(d.Results) == len(checks) {
		return d.Results
	}
	results := undecided(checks, errNoAnswer)
	for i := range checks {
		if r := answerTo(&d, i, &checks[i]); r != nil {
			results[i] = *r
		}
	}
	return results
}

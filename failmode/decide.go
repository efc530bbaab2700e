package failmode

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/inflight"
	"github.com/seed75154129/ratelimit/internal/monitor"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// decide says who decides each check: a copy of its count, which only admits; its fail mode, if
// its circuit is open; or the store. What the store leaves undecided is decided here. If a fail
// mode denies the request, nothing is sent. If anything denies it, what other checks were
// charged is given back.
func (g *Guard) decide(ctx context.Context, charge bool, checks []algorithms.Check) (d algorithms.Decision, err error) {
	var few [4]int
	var fewCircuits [4]*monitor.Circuit
	sent, circuits := few[:0], fewCircuits[:0] // each is looked up once: a key's shard may change meanwhile
	var refused, lost []int
	var results []algorithms.Result // nil while the store decides all
	var tickets []inflight.Ticket
	if charge {
		tickets = g.inFlight.ask(checks)
	}
	defer func() {
		if !d.Allowed { // or a check is invalid, or the limiter has panicked
			g.giveBack(ctx, results)
		}
		g.inFlight.answered(tickets, d.Allowed, d.Results)
	}()
	for i := range checks {
		c := &checks[i]
		if charge && c.Sync > 0 && algorithms.Validate(checks...) == nil {
			if results = begin(results, checks); g.synced.Take(c, int64(g.instances()), &results[i]) {
				continue
			}
		}
		if by := g.monitor.Circuit(g.store.Shard(c.Key)); !by.IsOpen() {
			sent, circuits = append(sent, i), append(circuits, by)
			continue
		}
		results = begin(results, checks)
		results[i].Err, refused = ErrOpen, append(refused, i)
	}

	allowed, err := g.decideHere(ctx, charge, results, refused)
	if err != nil {
		return algorithms.Decision{}, err
	}
	if charge && !allowed || len(sent) == 0 && len(checks) > 0 { // a Peek tells what the store counts, too
		return algorithms.Decision{Allowed: allowed, Results: results}, nil
	}

	asked := pick(checks, sent) // which the limiter may keep; the checks stay on the caller's stack
	if tickets != nil {
		for j, i := range sent {
			asked[j].InFlight = tickets[i].Told
		}
	}
	there, err := g.call(ctx, charge, asked, circuits)
	if err != nil {
		return algorithms.Decision{}, err
	}
	if results == nil {
		results = there.Results
	} else {
		setAt(results, sent, there.Results)
	}

	fits := true
	for _, i := range sent {
		if r := &results[i]; r.Err == nil {
			fits = fits && !r.Denies()
		} else {
			g.inFlight.lost(r)
			lost = append(lost, i)
		}
	}
	if len(lost) == 0 {
		fits = there.Allowed
	}
	here, err := g.decideHere(ctx, charge && fits, results, lost)
	if err != nil {
		return algorithms.Decision{}, err
	}
	return algorithms.Decision{Allowed: allowed && fits && here, Results: results}, nil
}

// begin returns results of these checks, made if they are nil.
func begin(results []algorithms.Result, checks []algorithms.Check) []algorithms.Result {
	if results == nil {
		return undecided(checks, nil)
	}
	return results
}

// call has the store decide checks, and tells the breaker. An error is the caller's mistake,
// not a failure of the store: that is in the results.
func (g *Guard) call(ctx context.Context, charge bool, checks []algorithms.Check, circuits []*monitor.Circuit) (d algorithms.Decision, err error) {
	begun := time.Now()
	within, cancel := g.store.Within(ctx)
	defer cancel()
	if charge {
		d, err = g.Limiter.Take(within, checks...)
	} else {
		d, err = g.Limiter.Peek(within, checks...)
	}
	if errors.Is(err, algorithms.ErrInvalidCheck) || !charge && errors.Is(err, errors.ErrUnsupported) {
		return algorithms.Decision{}, err
	}
	d.Results, err = resultsOf(d, err, checks)
	g.monitor.Report(ctx, begun, circuits, d.Results, err)
	return d, nil
}

// askStore decides checks that the store counts or nobody does: an error in place of an answer
// of the store.
func (g *Guard) askStore(ctx context.Context, charge bool, checks []algorithms.Check) (algorithms.Decision, error) {
	circuits := make([]*monitor.Circuit, len(checks))
	for i := range checks {
		if circuits[i] = g.monitor.Circuit(g.store.Shard(checks[i].Key)); circuits[i].IsOpen() {
			return algorithms.Decision{}, ErrOpen
		}
	}
	d, err := g.call(ctx, charge, slices.Clone(checks), circuits)
	for i := range d.Results {
		err = errors.Join(err, d.Results[i].Err)
	}
	if err != nil || !d.Allowed {
		g.giveBack(ctx, d.Results)
	}
	return d, err
}

// retryClosed is the RetryAfter of a check that fails closed. When the store will be
// back is unknown, so clients are asked to try again soon.
const retryClosed = time.Second

// decideHere decides the results at these places, which have an Err: the store did not. In an
// outage, each check follows its mode. Otherwise it is counted and, if charge, charged
// locally in every mode: a client that keeps this process busy must neither pass the
// rules that fail open nor close the others for all clients. A key that the store last
// denied stays denied in every mode until a request fits.
func (g *Guard) decideHere(ctx context.Context, charge bool, results []algorithms.Result, at []int) (allowed bool, err error) {
	if len(at) == 0 {
		return true, nil
	}
	g.logFallback(results[at[0]].Err)
	allowed = true
	var counted []int
	var checks []algorithms.Check
	for _, i := range at {
		r := &results[i]
		denial, known := g.knownDenial(&r.Check)
		switch {
		case known:
			*r = denial
		case r.Check.Fail == Local, !outage(r.Err):
			counted, checks = append(counted, i), append(checks, g.shareOfCheck(r.Check))
			continue
		case r.Check.Fail == Open:
			r.Source, r.HasRoom = algorithms.SourceFailOpen, true
		default:
			r.Source, r.RetryAfter = algorithms.SourceFailClosed, retryClosed
		}
		allowed = allowed && !r.Denies()
	}
	take := g.local.Peek
	if charge && allowed {
		take = g.local.Take
	}
	local, err := take(ctx, checks...)
	if err != nil {
		return false, err
	}
	for j := range local.Results {
		local.Results[j].Source = algorithms.SourceFallback
	}
	setAt(results, counted, local.Results)
	return allowed && local.Allowed, nil
}

// knownDenial returns the store's last denial of a check, until the check would have fit: a
// denied client stays denied in an outage. Of a look, the local memory knows it, too.
func (g *Guard) knownDenial(c *algorithms.Check) (algorithms.Result, bool) {
	if r, known := g.denied.Find(c); known || !c.Look {
		return r, known
	}
	d, err := g.local.Peek(context.Background(), *c)
	if err != nil || d.Allowed {
		return algorithms.Result{}, false
	}
	d.Results[0].Source = algorithms.SourceFallback
	return d.Results[0], true
}

// outage reports whether the store is to blame for an error, as far as the monitor knows.
// Otherwise the store may be healthy and this process busy, or a key has a foreign value.
func outage(err error) bool { return errors.Is(err, ErrOpen) || monitor.IsOutage(err) }

func (g *Guard) logFallback(err error) {
	if outage(err) || transport.Answered(err) && transport.ClassOf(err) != transport.ClassBusy {
		return // the monitor logs it
	}
	g.fellBack.Do(func() {
		g.logger.Warn("ratelimit: falling back to local counting", "class", string(transport.ClassOf(err)), "error", err)
	})
}

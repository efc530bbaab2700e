package failmode

import (
	"context"
	"errors"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/monitor"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// route sends the checks whose circuit is not open to the store, and decides the
// others here. It decides the others first: if they deny the request, nothing is sent.
func (g *Guard) route(ctx context.Context, charge bool, checks []algorithms.Check) (algorithms.Decision, error) {
	// Each circuit is looked up once, because a check's shard may change meanwhile.
	var few [4]*monitor.Circuit
	var fewOf [4]int
	circuits, rest := few[:0], fewOf[:0]
	var refused []int
	for i := range checks {
		c := g.monitor.Circuit(g.store.Shard(&checks[i]))
		if circuits = append(circuits, c); c.IsOpen() {
			refused = append(refused, i)
		} else {
			rest = append(rest, i)
		}
	}
	if len(refused) == 0 {
		return g.send(ctx, charge, checks, circuits)
	}
	here, err := g.decideFallback(ctx, charge, undecided(pick(checks, refused), ErrOpen))
	if err != nil || len(rest) == 0 {
		return here, err
	}
	d := algorithms.Decision{Results: undecided(checks, nil)}
	if here.Allowed || !charge { // a Peek tells what the store counts even if the request would be denied
		returned := false
		defer func() {
			if !returned { // the limiter has panicked
				g.refundLocal(ctx, here)
			}
		}()
		there, err := g.send(ctx, charge, pick(checks, rest), pick(circuits, rest))
		if returned = true; err != nil || !there.Allowed {
			g.refundLocal(ctx, here)
		}
		if err != nil {
			return algorithms.Decision{}, err
		}
		d.Allowed = here.Allowed && there.Allowed
		setAt(d.Results, rest, there.Results)
	}
	setAt(d.Results, refused, here.Results)
	return d, nil
}

// send has the store decide checks and, if charge, charge them. It decides here what
// the store did not.
func (g *Guard) send(ctx context.Context, charge bool, checks []algorithms.Check, circuits []*monitor.Circuit) (algorithms.Decision, error) {
	d, results, err := g.call(ctx, charge, checks, circuits)
	if err != nil {
		return algorithms.Decision{}, err
	}
	var lost []int
	denied := false
	for i := range results {
		if results[i].Err != nil {
			lost = append(lost, i)
		} else {
			denied = denied || results[i].Denies()
		}
	}
	if len(lost) == 0 {
		if !d.Allowed {
			g.refundStore(ctx, results) // charges that the store had no time to refund
		}
		return d, nil
	}
	g.inFlight.lost(results)
	here, err := g.decideFallback(ctx, charge && !denied, pick(results, lost))
	if err != nil {
		return algorithms.Decision{}, err
	}
	setAt(results, lost, here.Results)
	d = algorithms.Decision{Allowed: here.Allowed && !denied, Results: results}
	if !d.Allowed {
		g.refundStore(ctx, results)
	}
	return d, nil
}

// call has the store decide checks, and tells the breaker. An error is the caller's mistake,
// not a failure of the store.
func (g *Guard) call(ctx context.Context, charge bool, checks []algorithms.Check, circuits []*monitor.Circuit) (d algorithms.Decision, results []algorithms.Result, err error) {
	begun := time.Now()
	within, cancel := g.store.Within(ctx)
	defer cancel()
	if charge {
		d, err = g.Limiter.Take(within, checks...)
	} else {
		d, err = g.Limiter.Peek(within, checks...)
	}
	if errors.Is(err, algorithms.ErrInvalidCheck) || !charge && errors.Is(err, errors.ErrUnsupported) {
		return d, nil, err
	}
	results, err = resultsOf(d, err, checks)
	g.monitor.Report(ctx, begun, circuits, results, err)
	return d, results, nil
}

// askStore decides checks that the store counts or nobody does: an error in place of an answer
// of the store.
func (g *Guard) askStore(ctx context.Context, charge bool, checks []algorithms.Check) (algorithms.Decision, error) {
	circuits := make([]*monitor.Circuit, len(checks))
	for i := range checks {
		if circuits[i] = g.monitor.Circuit(g.store.Shard(&checks[i])); circuits[i].IsOpen() {
			return algorithms.Decision{}, ErrOpen
		}
	}
	d, results, err := g.call(ctx, charge, checks, circuits)
	for i := range results {
		err = errors.Join(err, results[i].Err)
	}
	if err != nil || !d.Allowed {
		g.refundStore(ctx, results)
	}
	return d, err
}

// retryClosed is the RetryAfter of a check that fails closed. When the store will be
// back is unknown, so clients are asked to try again soon.
const retryClosed = time.Second

// decideFallback decides results with an Err, which the store did not decide. In an
// outage, each check follows its mode. Otherwise it is counted and, if charge, charged
// locally in every mode: a client that keeps this process busy must neither pass the
// rules that fail open nor close the others for all clients. A key that the store last
// denied stays denied in every mode until a request fits.
func (g *Guard) decideFallback(ctx context.Context, charge bool, results []algorithms.Result) (algorithms.Decision, error) {
	g.logFallback(results[0].Err)
	d := algorithms.Decision{Allowed: true, Results: results}
	var counted []int
	var checks []algorithms.Check
	for i := range results {
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
		d.Allowed = d.Allowed && !r.Denies()
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
	}
	setAt(results, counted, local.Results)
	return d, nil
}

// knownDenial returns the store's last denial of a check, until the check would have fit: a
// denied client stays denied in an outage. Of a look, the local memory knows it, too.
func (g *Guard) knownDenial(c *algorithms.Check) (algorithms.Result, bool) {
	if r, known := g.denied.Find(c); known || !c.Look || c.Shadow {
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

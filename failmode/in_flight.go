package failmode

import (
	"log/slog"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/background"
	"github.com/seed75154129/ratelimit/internal/inflight"
	"github.com/seed75154129/ratelimit/internal/memory"
	"github.com/seed75154129/ratelimit/internal/monitor"
	"github.com/seed75154129/ratelimit/internal/sampler"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// A holding store counts what each process has under way. Others settle requests as other
// charges.
type holding interface {
	inflight.Store
	KeyOf(c algorithms.Check) string
}

// inFlight is what runs in this process of which the store counts how much is under way.
// The zero value is of a store that does not.
type inFlight struct {
	inflight.Registry
	store holding
	late  sampler.Sampler // to log
}

func (f *inFlight) begin(st store, b *monitor.Monitor, work *background.Group, logger *slog.Logger) {
	s, ok := st.(holding)
	if !ok {
		return
	}
	f.store, f.Store, f.late.Every = s, s, sampler.LogInterval
	f.Open = func(shard int) bool { return b.Circuit(shard).IsOpen() }
	f.Begin, f.Safely = work.Begin, work.Safely
	f.Late = func(by time.Duration) {
		f.late.Do(func() {
			logger.Warn("ratelimit: this process stood still for longer than the lease of its requests in flight; others may have been admitted in their place", "for", by)
		})
	}
	b.Back = f.Tell
}

// holds reports whether a check is of a request under way of which the store is told.
func (f *inFlight) holds(c *algorithms.Check) bool {
	return f.store != nil && c.Limit.Algorithm == algorithms.InFlight
}

// ask returns a ticket for each check, or nil if none is of a request under way.
func (f *inFlight) ask(checks []algorithms.Check) (tickets []inflight.Ticket) {
	for i := range checks {
		c := &checks[i]
		if !f.holds(c) {
			continue
		}
		if tickets == nil {
			tickets = make([]inflight.Ticket, len(checks))
		}
		tickets[i] = f.Ask(f.store.KeyOf(*c), c.Limit.Period)
	}
	return tickets
}

// unheard is in place of what a check tells, if the store may have charged what does not run.
var unheard = new(string)

// lost notes of a result that the store did not decide whether it may have charged it.
func (*inFlight) lost(r *algorithms.Result) {
	if r.Check.InFlight != nil && !transport.NotExecuted(r.Err) {
		r.Check.InFlight = unheard
	}
}

// answered holds what an admitted request has. Without results, it is unknown what the store
// has charged.
func (f *inFlight) answered(tickets []inflight.Ticket, allowed bool, results []algorithms.Result) {
	for i, t := range tickets {
		if results == nil {
			f.Answered(t, inflight.Unknown, false)
			continue
		}
		if t == (inflight.Ticket{}) {
			continue
		}
		r, a := &results[i], inflight.Denied
		switch {
		case r.Check.InFlight == unheard:
			a = inflight.Unknown
		case ofStore(r) && r.Charged > 0:
			a = inflight.Granted
		}
		r.Check.InFlight = nil
		if allowed && r.Source == algorithms.SourceFailOpen { // nobody counts it, until the store is back
			r.Charged = 1
		}
		if id := f.Answered(t, a, allowed && r.Charged > 0); id != 0 {
			r.Trace.Charge.At = id
		}
	}
}

// fullHere denies a request of which as much runs in this process alone as may run in
// all. Nothing else about requests under way is remembered.
func (g *Guard) fullHere(checks []algorithms.Check) (d algorithms.Decision, full bool) {
	for i := range checks {
		c := &checks[i]
		var n [1]memory.Count
		if c.Shadow || !g.inFlight.holds(c) || !c.Count(&n[0]) {
			continue
		}
		if g.local.Store().Decide(false, n[:]); n[0].Room {
			continue
		}
		if !full {
			d.Results, full = undecided(checks, nil), true
		}
		r := &d.Results[i]
		r.Source, r.HasRoom, r.At = algorithms.SourceDenyCache, false, time.Now()
		r.Remaining, r.RetryAfter = min(n[0].Answer.Remaining, 0), n[0].Answer.RetryAfter
	}
	return d, full
}

// ended ends a request under way: here at once, and in the store soon. It reports false for
// what is to be settled as other charges are: a local count, and places of another Guard or
// of one that is closed.
func (g *Guard) ended(r *algorithms.Result) bool {
	if !g.inFlight.holds(&r.Check) {
		return false
	}
	known := g.inFlight.End(r.Trace.Charge.At)
	if r.Source == algorithms.SourceFallback || !known && r.Source != algorithms.SourceFailOpen {
		return false
	}
	charge := *r
	r.Charged = 0
	r.Remaining++
	unfollowIn(&g.local, &charge, r, g)
	g.denied.Forget(&r.Check)
	return true
}

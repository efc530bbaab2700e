package failmode

import (
	"context"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/background"
	"github.com/seed75154129/ratelimit/internal/inflight"
	"github.com/seed75154129/ratelimit/internal/monitor"
	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// A holding store counts requests under way in sets, so that they can be renewed and
// released by name. Others settle them as other charges.
type holding interface {
	inflight.Store
	PlaceOf(c *algorithms.Check) inflight.Place
}

// inFlight is what runs in this process of which the store counts how much is under way.
// The zero value is of a store that does not.
type inFlight struct {
	inflight.Registry
	store holding
}

func (f *inFlight) begin(st store, b *monitor.Monitor, work *background.Group) {
	s, ok := st.(holding)
	if !ok {
		return
	}
	f.store, f.Store, f.Patience = s, s, st.Budget()/2
	f.Open = func(shard int) bool { return b.Circuit(shard).IsOpen() }
	f.Begin, f.Safely = work.Begin, work.Safely
	b.Closing = f.Tell
}

// named returns the checks with a name for each request under way, made before anything
// is sent: so that what got no answer can be released. nil means that there is none.
func (f *inFlight) named(checks []algorithms.Check) (named []algorithms.Check) {
	for i := range checks {
		if !f.holds(&checks[i]) {
			continue
		}
		if named == nil {
			named = slices.Clone(checks)
		}
		named[i].Hold = step.NewHold()
	}
	return named
}

// holds reports whether a check is of a request under way that the store counts in a set.
func (f *inFlight) holds(c *algorithms.Check) bool {
	return f.store != nil && c.Limit.Algorithm == algorithms.InFlight
}

// decided holds what an admitted request has, and takes the names away.
func (f *inFlight) decided(d *algorithms.Decision) {
	for i := range d.Results {
		r := &d.Results[i]
		if !f.holds(&r.Check) {
			continue
		}
		p := f.store.PlaceOf(&r.Check)
		id := r.Check.Hold
		r.Check.Hold = 0
		if id == 0 {
			continue
		}
		if d.Allowed && r.Source == algorithms.SourceFailOpen { // nobody counts it, until the store is back
			r.Charged, r.Trace.Charge.At = 1, p.ID
		}
		switch {
		case d.Allowed && r.Charged > 0:
			f.Hold(p, ofStore(r), id < 0)
		case id < 0:
			f.Drop(p)
		}
	}
}

// freed reports whether a request may ask once more, which was denied only because the
// store had not heard yet that others have ended here. It has now, and there is time left:
// without an answer the request would be counted here, though the store has denied it.
func (f *inFlight) freed(ctx context.Context, d *algorithms.Decision, begun time.Time) bool {
	full := false
	for i := range d.Results {
		r := &d.Results[i]
		if !ofStore(r) || r.Denies() && !f.holds(&r.Check) {
			return false
		}
		full = full || r.Denies()
	}
	for i := range d.Results {
		if r := &d.Results[i]; r.Denies() && !f.Free(ctx, f.store.PlaceOf(&r.Check).Key, begun) {
			return false
		}
	}
	return full && time.Since(begun) < f.Patience
}

// lost notes of results that the store did not decide whether it may have charged them.
func (f *inFlight) lost(results []algorithms.Result) {
	for i := range results {
		if r := &results[i]; r.Err != nil && f.holds(&r.Check) && !transport.NotExecuted(r.Err) {
			r.Check.Hold = r.Check.Hold.Unsure()
		}
	}
}

package middleware

import (
	"context"
	"io"
	"net/http"
	"slices"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/alike"
)

// A charging is the ResponseWriter of a request that rules with ChargeOn have
// charged: they give back when the status is written, unless it is one of theirs.
// Until then, and where none is written, the charge stays.
type charging struct {
	http.ResponseWriter
	passage  *passage
	crossing *crossing
	ctx      context.Context
	begun    bool // the status is written, or the connection is the handler's
}

// charged returns the writer for a request that was admitted: w itself where no
// rule with ChargeOn has charged it.
func (v *verdict) charged(ctx context.Context, w http.ResponseWriter) http.ResponseWriter {
	if !v.set.charges(&v.decision) {
		return w
	}
	c := &charging{ResponseWriter: w, passage: v.passage, crossing: v.crossing, ctx: ctx}
	return c.alike()
}

// charges reports whether a rule with ChargeOn has charged the request.
func (set *ruleset) charges(d *algorithms.Decision) bool {
	if !set.chargesOn {
		return false
	}
	for i := range d.Results {
		if d.Results[i].Charged > 0 && set.chargeOn(d.Results[i].Check.Rule) != nil {
			return true
		}
	}
	return false
}

// chargeOn is the statuses that stay charged by a rule; nil means all.
func (set *ruleset) chargeOn(rule string) []int {
	if at, ok := set.find(rule, 0); ok {
		return set.rules[at].terms.chargeOn
	}
	return nil
}

// begin gives back what the status does not charge. A request that has ended
// stays charged: otherwise clients that hang up would not be counted.
func (c *charging) begin(status int) {
	if c.begun {
		return
	}
	c.begun = true
	defer c.crossing.settled()
	if status == http.StatusSwitchingProtocols || c.ctx.Err() != nil {
		return
	}
	p := c.passage
	var free []int
	for i, r := range p.decided().Results {
		if on := p.set.chargeOn(r.Check.Rule); on != nil && !slices.Contains(on, status) {
			free = append(free, i)
		}
	}
	claimed, _ := p.claim(free) // what the handler has settled stays so
	if len(claimed) == 0 {
		return
	}
	if err := p.settleAll(c.ctx, claimed, 0); err != nil {
		p.by.unreturned.Do(func() { p.by.logger.Error("ratelimit: charge not given back", "status", status, "error", err) })
	}
}

func (c *charging) WriteHeader(status int) {
	// Informational statuses are not the last, and net/http panics on those below 100
	// and above 999.
	if status == http.StatusSwitchingProtocols || 200 <= status && status <= 999 {
		c.begin(status)
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *charging) Write(p []byte) (int, error) {
	c.begin(http.StatusOK)
	return c.ResponseWriter.Write(p)
}

func (c *charging) WriteString(s string) (int, error) {
	c.begin(http.StatusOK)
	return io.WriteString(c.ResponseWriter, s)
}

// Unwrap is for [http.ResponseController].
func (c *charging) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// FlushError is what [http.ResponseController] calls. A flush writes the status.
func (c *charging) FlushError() error {
	if alike.Flushes(c.ResponseWriter) {
		c.begin(http.StatusOK)
	}
	return http.NewResponseController(c.ResponseWriter).Flush()
}

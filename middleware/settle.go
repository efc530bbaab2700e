package middleware

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/field"
)

var (
	errSettled  = errors.New("settled before; a rule's charge is settled once per request")
	errReturned = errors.New("the handler has returned; settle before that, since the response headers belong to the request")
)

// Settle makes the request behind ctx cost this many units by one rule: what a
// query, an upload or a language model has used in the end. 0 gives all back. More
// than was charged may go into debt, which a bucket pays off as it refills; a
// window forgets its debt when it ends. The response headers follow if they are
// not sent yet: a handler that sets such a header itself does so after Settle.
//
// Settle does nothing where the rule does not apply to the request, or where
// nothing was charged, and nothing to other rules. Among chained middlewares that
// have a rule of this name it is for the innermost. One settlement counts for each
// rule and request: the first Settle, or ChargeOn before that, when the status is
// written. Further calls return an error, and so do calls after the handler has
// returned. After an error of the limiter, the charge stays as it was, as far as
// is known.
//
// Call it on the goroutine that writes the response, as with
// [http.ResponseWriter.Header].
func Settle(ctx context.Context, rule string, cost int64) error {
	for p := passageOf(ctx); p != nil; p = p.outer {
		if at := p.find(rule); at >= 0 {
			if err := p.settle(ctx, at, cost); err != nil {
				return fmt.Errorf("middleware: settle: rule %q: %w", rule, err)
			}
			return nil
		}
	}
	return nil
}

// find returns the index of a rule's result, the last of several; -1 if there is none.
func (p *passage) find(rule string) int {
	results := p.decided().Results
	for i := len(results) - 1; i >= 0; i-- {
		if results[i].Check.Rule == rule {
			return i
		}
	}
	return -1
}

func (p *passage) settle(ctx context.Context, at int, cost int64) error {
	if cost < 0 {
		return fmt.Errorf("cost must not be negative, got %d", cost)
	}
	claimed, err := p.claim([]int{at})
	if err != nil || len(claimed) == 0 {
		return err
	}
	return p.settleAll(ctx, claimed, cost)
}

// claim returns those of the results that nobody has settled, and settles them for
// everybody else.
func (p *passage) claim(at []int) (claimed []int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.returned {
		return nil, errReturned
	}
	for _, i := range at {
		if slices.Contains(p.settled, i) {
			err = errSettled
			continue
		}
		p.settled = append(p.settled, i)
		claimed = append(claimed, i)
	}
	return claimed, err
}

// settleAll makes claimed results cost so much each, in one call, and rewrites
// the headers.
func (p *passage) settleAll(ctx context.Context, at []int, cost int64) error {
	d := p.decided()
	var charges []algorithms.Charge
	var charged []int
	for _, i := range at {
		if r := &d.Results[i]; r.Charged > 0 && r.Charged != cost {
			charges = append(charges, algorithms.Charge{Result: *r, Cost: cost})
			charged = append(charged, i)
		}
	}
	if len(charges) == 0 {
		return nil
	}
	results, err := p.by.limiter.Settle(ctx, charges...)
	if len(results) == len(charges) {
		p.mu.Lock()
		now := slices.Clone(p.decision.Results) // the old ones may be read
		for j, i := range charged {
			now[i] = results[j]
		}
		p.decision.Results = now
		p.mu.Unlock()
	}
	p.refresh(ctx)
	return err
}

// decided is what the middleware decided, as it has been settled since.
func (p *passage) decided() algorithms.Decision {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.decision
}

// end ends what handlers may do with the decision. It does nothing on nil.
func (p *passage) end() {
	if p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.returned = true
	}
}

// refresh writes the headers of all passages anew. It leaves them alone once
// somebody else may be writing the response, because time is up; and, on the way
// to a status, where a handler has replaced them.
func (p *passage) refresh(ctx context.Context) {
	for p.inner != nil {
		p = p.inner
	}
	if ctx.Err() != nil || p.wrote != nil && !sameFields(p.wrote, p.header) {
		return
	}
	first := p.first()
	for _, name := range field.Limits() {
		delete(p.header, name)
		if lines := first.found[name]; len(lines) > 0 {
			p.header[name] = slices.Clone(lines)
		}
	}
	for q := first; q != nil; q = q.inner {
		q.by.headers(q.header, q.set.shown(q.decided()))
	}
	p.remember()
}

// first is the outermost passage that writes the same header.
func (p *passage) first() *passage {
	for p.outer != nil && p.outer.inner == p {
		p = p.outer
	}
	return p
}

// remember keeps what the headers are now, where refresh looks at that.
func (p *passage) remember() {
	if p.wrote != nil {
		p.wrote = fieldsOf(p.header)
	}
}

// foundIn is fieldsOf, or nil if there are none.
func foundIn(h http.Header) http.Header {
	if len(h) == 0 {
		return nil
	}
	for _, name := range field.Limits() {
		if len(h[name]) > 0 {
			return fieldsOf(h)
		}
	}
	return nil
}

// fieldsOf is the fields of rate limits in a header, without Retry-After; not nil.
func fieldsOf(h http.Header) http.Header {
	fields := make(http.Header)
	for _, name := range field.Limits() {
		if lines := h[name]; len(lines) > 0 {
			fields[name] = slices.Clone(lines)
		}
	}
	return fields
}

func sameFields(fields, h http.Header) bool {
	for _, name := range field.Limits() {
		if !slices.Equal(fields[name], h[name]) {
			return false
		}
	}
	return true
}

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

// writer returns the writer for a request that was admitted: w itself where no
// rule with ChargeOn has charged it.
func (v *verdict) writer(ctx context.Context, w http.ResponseWriter) http.ResponseWriter {
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
	if canFlush(c.ResponseWriter) {
		c.begin(http.StatusOK)
	}
	return http.NewResponseController(c.ResponseWriter).Flush()
}

func canFlush(w http.ResponseWriter) bool {
	for {
		switch inner := w.(type) {
		case interface{ FlushError() error }, http.Flusher:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = inner.Unwrap()
		default:
			return false
		}
	}
}

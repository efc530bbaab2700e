package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/field"
)

var (
	errSettled  = errors.New("settled before; a rule's charge is settled once per request")
	errReturned = errors.New("the handler has returned; settle before that, or call Hold first")
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
// returned, unless [Hold] keeps the request. After an error of the limiter, the charge stays as it was, as far as
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
	if p.returned && p.holds == 0 {
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
	if !p.hasReturned() {
		p.refresh(ctx)
	}
	return err
}

// decided is what the middleware decided, as it has been settled since.
func (p *passage) decided() algorithms.Decision {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.decision
}

// end ends what handlers may do with the decision, unless Hold was called. It does
// nothing on nil.
func (p *passage) end() {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.returned = true
	over := p.holds == 0
	p.mu.Unlock()
	if over {
		p.held.release()
	}
}

// hasReturned reports whether the handler has: the header is not its any more.
func (p *passage) hasReturned() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.returned
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

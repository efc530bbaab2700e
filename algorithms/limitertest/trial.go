package limitertest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

const µs = time.Microsecond

// A trial is a case under way.
type trial struct {
	*testing.T
	limiter algorithms.Limiter
	advance func(time.Duration)
	begin   time.Time     // At of the first result
	elapsed time.Duration // by how much the clock was moved since
	where   string        // the step of a vector, for messages
}

// A testCase is one sentence of the contract.
type testCase struct {
	name string
	run  func(*trial)
}

// wait moves the limiter's clock.
func (c *trial) wait(d time.Duration) {
	if d > 0 {
		c.advance(d)
		c.elapsed += d
	}
}

// untilNext is how long it is until the next window of this period begins.
func (c *trial) untilNext(period time.Duration) time.Duration {
	now := c.begin.Add(c.elapsed).UnixMicro()
	return period - time.Duration(now%period.Microseconds())*µs
}

// align waits for the next window and then for this much of it to pass.
func (c *trial) align(period, phase time.Duration) {
	c.wait(c.untilNext(period) + phase)
}

// take takes one check.
func (c *trial) take(check algorithms.Check, want outcome) algorithms.Result {
	c.Helper()
	return c.takeAll(expectation{check, want})[0]
}

// takeAll takes the checks in one call. The decision has to have one result for each
// check, in their order, and has to be allowed unless a check that is no shadow
// is denied.
func (c *trial) takeAll(want ...expectation) []algorithms.Result {
	c.Helper()
	return c.decide(c.Context(), "Take", c.limiter.Take, want)
}

// peek is take with Peek.
func (c *trial) peek(check algorithms.Check, want outcome) {
	c.Helper()
	c.peekAll(expectation{check, want})
}

// peekAll is takeAll with Peek.
func (c *trial) peekAll(want ...expectation) {
	c.Helper()
	c.decide(c.Context(), "Peek", c.limiter.Peek, want)
}

// holds looks at a count without charging it, as any limiter allows: no limit
// has room for that many.
func (c *trial) holds(check algorithms.Check, remaining int64, resetAfter time.Duration) {
	c.Helper()
	c.take(costing(check, math.MaxInt64), denied(remaining, algorithms.Never, resetAfter))
}

// settle corrects a charge, and returns it.
func (c *trial) settle(cost int64, charged algorithms.Result, want outcome) algorithms.Result {
	c.Helper()
	same := charged.Charged == cost || charged.Charged == 0
	settled := c.settleAll(cost, charged)[0]
	if !same && (settled.Remaining != want.remaining || settled.ResetAfter != want.resetAfter) {
		c.Fatalf("%sSettle at %d: Remaining = %d, ResetAfter = %v; want %d, %v",
			c.where, cost, settled.Remaining, settled.ResetAfter, want.remaining, want.resetAfter)
	}
	return settled
}

// settleAll corrects charges, and wants the results as Peek sees them now.
func (c *trial) settleAll(cost int64, charged ...algorithms.Result) []algorithms.Result {
	c.Helper()
	results, err := c.limiter.Settle(c.Context(), charges(cost, charged...)...)
	if err != nil || len(results) != len(charged) {
		c.Fatalf("%sSettle at %d: %d results, %v; want %d", c.where, cost, len(results), err, len(charged))
	}
	for i, want := range charged {
		r := results[i]
		if want.Charged == 0 || want.Charged == cost {
			continue // there was nothing to settle
		}
		now, err := c.limiter.Peek(c.Context(), want.Check)
		if err != nil {
			c.Fatal(err)
		}
		want.Charged, want.At = cost, now.Results[0].At
		want.Remaining, want.ResetAfter = now.Results[0].Remaining, now.Results[0].ResetAfter
		if r.Check != want.Check || r.Charged != cost || r.At != want.At || r.Remaining != want.Remaining || r.ResetAfter != want.ResetAfter {
			c.Errorf("%sSettle at %d returned\n\t%+v, want\n\t%+v", c.where, cost, r, want)
		}
	}
	return results
}

// settleCopy settles a copy of a result whose charge costs so much already, or has
// ended: nothing changes.
func (c *trial) settleCopy(cost, now int64, settled algorithms.Result) {
	c.Helper()
	results, err := c.limiter.Settle(c.Context(), charges(cost, settled)...)
	if err != nil || len(results) != 1 || results[0].Charged != now {
		c.Errorf("Settle of a copy at %d: %+v, %v; want that it costs %d", cost, results, err, now)
	}
}

// charges makes each of the results cost this much.
func charges(cost int64, charged ...algorithms.Result) []algorithms.Charge {
	all := make([]algorithms.Charge, len(charged))
	for i := range charged {
		all[i] = algorithms.Charge{Result: charged[i], Cost: cost}
	}
	return all
}

func (c *trial) reset(checks ...algorithms.Check) {
	c.Helper()
	if err := c.limiter.Reset(c.Context(), checks...); err != nil {
		c.Fatalf("Reset%v: %v", names(checks), err)
	}
}

func (c *trial) ban(d time.Duration, checks ...algorithms.Check) {
	c.Helper()
	if err := c.limiter.Ban(c.Context(), d, checks...); err != nil {
		c.Fatalf("Ban(%s)%v: %v", d, names(checks), err)
	}
}

type decider = func(context.Context, ...algorithms.Check) (algorithms.Decision, error)

func (c *trial) decide(ctx context.Context, method string, f decider, want []expectation) []algorithms.Result {
	c.Helper()
	checks := make([]algorithms.Check, len(want))
	allowed := true
	for i, w := range want {
		checks[i] = w.Check
		allowed = allowed && (w.allowed || w.Shadow)
	}
	d, err := f(ctx, checks...)
	if err != nil {
		c.Fatalf("%s%s%v: %v", c.where, method, names(checks), err)
	}
	if len(d.Results) != len(want) {
		c.Fatalf("%s%v: %d results, want one for each check: %+v", method, names(checks), len(d.Results), d.Results)
	}
	var wrong []string
	if d.Allowed != allowed {
		wrong = append(wrong, fmt.Sprintf("Allowed = %t, want %t", d.Allowed, allowed))
	}
	for i, w := range want {
		if skipped(d, i) && d.Results[i].Check == w.Check {
			continue
		}
		for _, difference := range compare(d.Results[i], w, c.begin.Add(c.elapsed)) {
			wrong = append(wrong, fmt.Sprintf("check %d %s: %s", i, name(w.Check), difference))
		}
	}
	if len(wrong) > 0 {
		c.Fatalf("%s%s of %d, %s after the first:\n\t%s", c.where, method, len(checks), c.elapsed, strings.Join(wrong, "\n\t"))
	}
	return d.Results
}

// skipped reports whether a limiter left a check undecided, because it knew
// that another one denies the request.
func skipped(d algorithms.Decision, i int) bool {
	r := d.Results[i]
	return !d.Allowed && !r.HasRoom && r.Source == algorithms.SourceNone && r.Err == nil &&
		r.Charged == 0 && r.Remaining == 0 && r.RetryAfter == 0 && r.ResetAfter == 0 && r.Delay == 0 && r.At.IsZero()
}

// wantError wants an error about the checks.
func (c *trial) wantError(what string, err error) {
	c.Helper()
	if !errors.Is(err, algorithms.ErrInvalidCheck) {
		c.Errorf("%s: error %v, want one that wraps %q", what, err, algorithms.ErrInvalidCheck)
	}
}

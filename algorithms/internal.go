package algorithms

import (
	"github.com/seed75154129/ratelimit/internal/inside"
	"github.com/seed75154129/ratelimit/internal/memory"
	"github.com/seed75154129/ratelimit/internal/step"
)

// Internal is for the packages of this module, and no part of the API: what opens it is in
// package internal/inside, which only they can import.
var Internal inside.Door[opened]

// opened is what the other packages of this module need of the types of this one.
type opened struct{}

// Store is what a failmode.Guard needs of a Redis beside its decisions.
func (opened) Store(r *Redis) store {
	t, _ := r.ready()
	return store{r, t}
}

// Memory is the store in which a Memory counts.
func (opened) Memory(m *Memory) *memory.Store { return m.ready() }

// Valid reports whether a limiter can decide the checks of a call.
func (opened) Valid(checks []Check) bool {
	var room [4]step.Params
	_, err := prepare(checks, &room)
	return err == nil
}

// Invalid is why charges cannot be settled, or nil.
func (opened) Invalid(charges []Charge) error { return invalidCharges(charges) }

// Check gives access to what a check hides.
func (opened) Check(c *Check) hiddenCheck { return hiddenCheck{c} }

// Result gives access to what a result hides.
func (opened) Result(r *Result) hiddenResult { return hiddenResult{r} }

type hiddenCheck struct{ c *Check }

// Count converts the check to a count, and reports whether the check is valid.
func (h hiddenCheck) Count(to *memory.Count) bool { return h.c.count(to) }

// LeastCost is the number of units without which the check is denied; 0 for a look.
func (h hiddenCheck) LeastCost() int64 { return h.c.leastCost() }

// Exactly has the store count the check, or nobody: no memory of a denial, fail mode or local
// counting decides it, and a Memory without a free entry does not count it.
func (h hiddenCheck) Exactly() { h.c.exact = true }

// Exact reports whether Exactly was called.
func (h hiddenCheck) Exact() bool { return h.c.exact }

// Holds reports whether a check is of requests under way.
func (h hiddenCheck) Holds() bool { return h.c.Limit.held() }

// Name gives a check of a request under way a name, which is never used twice.
func (h hiddenCheck) Name() { h.c.hold = newID() }

// Unsure says that it is unknown whether the store knows the request of a check.
func (h hiddenCheck) Unsure() { h.c.hold = -max(h.c.hold, -h.c.hold) }

type hiddenResult struct{ r *Result }

// Trace is what the result remembers of its count.
func (h hiddenResult) Trace() *step.Trace { return &h.r.trace }

// Known reports whether the Trace has the state of the count.
func (h hiddenResult) Known() bool { return h.r.known }

// Unname takes the name of a result's check away, and returns it: negative if it is
// unknown whether the store knows the request.
func (h hiddenResult) Unname() (id int64) {
	id, h.r.Check.hold = h.r.Check.hold, 0
	return id
}

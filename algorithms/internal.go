package algorithms

import (
	"github.com/seed75154129/ratelimit/internal/inside"
	"github.com/seed75154129/ratelimit/internal/memory"
	"github.com/seed75154129/ratelimit/internal/step"
)

// Internal is for the packages of this module, and no part of the API.
var Internal internals

type internals struct{}

// Open returns what the siblings of this package need of it.
func (internals) Open(k *inside.Key) opened {
	if k != &inside.Allow {
		panic("Internal is for the packages of this module")
	}
	return opened{}
}

type opened struct{}

// Store is a Redis beside its decisions.
func (opened) Store(r *Redis) store { return store{r} }

// Memory is where a Memory counts.
func (opened) Memory(m *Memory) *memory.Store { return m.ready() }

// Count makes a check a count, and reports whether it is valid.
func (opened) Count(c *Check, to *memory.Count) bool { return c.count(to) }

// Trace is what a result remembers of its count.
func (opened) Trace(r *Result) *step.Trace { return &r.trace }

// Spare makes a check whose denial does not count towards its ban.
func (opened) Spare(c *Check) { c.spared = true }

// NewResults makes results whose copies know what they are settled at.
func (opened) NewResults(n int) []Result { return newResults(n) }

// Update makes a copy of a result say what its charge costs now.
func (opened) Update(r *Result) { r.update() }

// SettleBy settles a result by what change does with how many units more it is to
// cost, unless it reports that this failed.
func (opened) SettleBy(r *Result, cost int64, change func(units int64) (ok bool)) {
	r.settleBy(cost, change)
}

package breaker

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/histogram"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// errorClasses are the values of the label class. All are there from the start.
var errorClasses = [...]transport.ErrorClass{
	transport.ClassUnreachable, transport.ClassBusy, transport.ClassUnavailable,
	transport.ClassMoved, transport.ClassRefused, transport.ClassMisused, transport.ClassUnknown,
}

// calls counts the calls to a store, and the probes that failed.
type calls struct {
	took   *histogram.Histogram
	failed [len(errorClasses)]atomic.Uint64
}

// count counts a call that has just returned.
func (c *calls) count(begun time.Time, results []algorithms.Result, err error) {
	c.took.Observe(time.Since(begun))
	if err != nil {
		c.fail(err)
		return
	}
	for i := range results {
		if results[i].Err != nil {
			c.fail(results[i].Err)
		}
	}
}

func (c *calls) fail(err error) {
	if i := slices.Index(errorClasses[:], transport.ClassOf(err)); i >= 0 {
		c.failed[i].Add(1)
	}
}

package limitertest

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// A Subject is a limiter under test and its clock. The clock must stand still between calls
// of Advance: a limiter on a running clock, such as a server's, cannot pass.
type Subject struct {
	// Limiter is the limiter, with nothing counted for any rule or key.
	// Required.
	Limiter algorithms.Limiter

	// Advance moves the limiter's clock ahead by d, which is in whole microseconds.
	// nil means [time.Sleep], for a limiter that uses time.Now: Run has a fake clock.
	Advance func(d time.Duration)
}

// Run tests that a limiter keeps the contract of package algorithms. Each subtest is one
// sentence of the contract.
//
// Every field of every result but Source must be exact, to the microsecond. The expected
// values were not computed by package algorithms. All algorithms are tested.
//
// setup is called for each case, inside a bubble of [testing/synctest]. It must make anew
// whatever starts goroutines, such as a client of a server, and close it in t.Cleanup, so
// that the bubble can end. One server outside the process may serve all cases if the test
// sets its clock and gives each case its own namespace. Fake time stands still while a
// request is on the network. The deadlines of connections are in real time: make them long.
func Run(t *testing.T, setup func(t *testing.T) Subject) {
	t.Helper()
	for _, c := range allCases() {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.run(newTrial(t, setup(t))) })
		})
	}
}

// newTrial asks the limiter for the time, and leaves the round one at which a
// bubble begins.
func newTrial(t *testing.T, s Subject) *trial {
	t.Helper()
	if s.Limiter == nil {
		t.Fatal("limitertest: the Subject has no Limiter")
	}
	c := &trial{T: t, limiter: s.Limiter, advance: s.Advance}
	if c.advance == nil {
		c.advance = time.Sleep
	}
	d, err := c.limiter.Take(t.Context(), algorithms.Check{Rule: "what time is it", Limit: algorithms.PerSecond(1)})
	if err != nil || len(d.Results) != 1 || d.Results[0].At.IsZero() {
		t.Fatalf("the first Take of all: %+v, %v; want a result with At", d, err)
	}
	c.begin = d.Results[0].At
	c.wait(1_234_567 * µs)
	return c
}

func allCases() []testCase {
	return slices.Concat(vectorCases(), chargingCases, shadowCases, keyCases, errorCases, raceCases, settleCases, banCases)
}

package limitertest

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// A Subject is a limiter under test and the clock it decides by.
//
// That clock must stand still between calls of Advance: a limiter on a running
// clock, such as a server's, cannot pass.
type Subject struct {
	// Limiter is the limiter, with nothing counted for any rule or key.
	// Required.
	Limiter algorithms.Limiter

	// Advance moves the limiter's clock ahead by d, whole microseconds. nil
	// means [time.Sleep], which is right for a limiter that decides by
	// time.Now: all of Run is on a fake clock.
	Advance func(d time.Duration)
}

// Run tests that a limiter keeps the contract that package algorithms
// documents, each sentence of it as a subtest.
//
// What is expected is exact, and was not computed by package algorithms: every
// field of every result, to the microsecond. Only the Source is the limiter's own
// to name. All algorithms are tested.
//
// setup is called for each case, inside a bubble of [testing/synctest]. What
// starts goroutines, such as a client of a server, it has to make afresh and
// end in t.Cleanup, or the bubble cannot end. A server outside the process may
// serve all cases, each with rules and keys of its own (a namespace, a
// database): fake time stands still while a request is on the network. Only a
// connection's deadlines are in real time, so such a limiter needs ample ones.
func Run(t *testing.T, setup func(t *testing.T) Subject) {
	t.Helper()
	for _, c := range allCases() {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.run(newTrial(t, setup(t))) })
		})
	}
}

// A testCase is one sentence of the contract.
type testCase struct {
	name string
	run  func(*trial)
}

func allCases() []testCase {
	return slices.Concat(vectorCases(), chargingCases, shadowCases, keyCases, errorCases, raceCases,
		peekCases, settleCases, resetCases, banCases, banByHandCases)
}

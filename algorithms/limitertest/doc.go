// Package limitertest tests rate limiters, and applications that use them. It has
// [Redis] for applications, and [Run] with its [Subject] for authors of limiters.
//
// # For authors of limiters
//
// [Run] is the contract that any [algorithms.Limiter] has to keep, decorators
// and other stores included. What it expects is exact in every field, so two
// limiters that pass decide alike: see the example of [Run].
//
// A limiter that decides by time.Now needs no more: each case runs in a bubble
// of [testing/synctest], where time is fake. One that decides by another clock,
// such as a server's, also says how to move it; see [Subject].
//
// # For authors of applications
//
// [Redis] is a Redis for tests of your own limits: inside the process, on the
// same fake clock, so that a test can wait out a minute, or a day, in no time.
// Use it where main uses the real one, as its example does, which is also a test in
// example_test.go.
package limitertest

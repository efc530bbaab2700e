// Package limitertest tests rate limiters, and applications that use them.
//
// # For authors of limiters
//
// The function [Run] tests the contract that every [algorithms.Limiter] must keep,
// decorators and other stores included. It compares every field but Source exactly, so two
// limiters that pass make the same decisions.
//
// Each case runs in a bubble of [testing/synctest], where time is fake. A limiter that uses
// time.Now needs no more. For a limiter with another clock that tests can set, set Advance
// of the [Subject] to a function that moves the clock.
//
// # For authors of applications
//
// [Allow], [Deny] and [Fail] are limiters with one answer each, for tests of a handler or
// of what clients see.
//
// [Redis] is a Redis for tests of your own limits. It is inside the process and on the same
// fake clock, so a test can wait for a day in no time. Use it in place of your
// program's client, as the example of Redis does.
package limitertest

// Package limitertest helps to test applications that use limiters.
//
// [Allow], [Deny] and [Fail] are limiters with one answer each, for tests of a handler or
// of what clients see.
//
// [Redis] is a Redis for tests of your own limits. It is inside the process and on the same
// fake clock, so a test can wait for a day in no time. Use it in place of your
// program's client, as the example of Redis does.
package limitertest

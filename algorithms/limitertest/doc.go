// Package limitertest tests rate limiters, and applications that use them. It has
// [Redis] for applications, and [Run] with its [Subject] for authors of limiters.
//
// # For authors of limiters
//
// [Run] is the contract that any [algorithms.Limiter] has to keep, decorators
// and other stores included. What it expects is exact in every field, so two
// limiters that pass decide alike:
//
//	func TestMyLimiter(t *testing.T) {
//		limitertest.Run(t, func(t *testing.T) limitertest.Subject {
//			return limitertest.Subject{Limiter: mylimiter.New()}
//		})
//	}
//
// A limiter that decides by time.Now needs no more: each case runs in a bubble
// of [testing/synctest], where time is fake. One that decides by another clock,
// such as a server's, also says how to move it; see [Subject].
//
// # For authors of applications
//
// [Redis] is a Redis for tests of your own limits: inside the process, on the
// same fake clock, so that a test can wait out a minute, or a day, in no time.
// Use it where main uses the real one:
//
//	func TestLoginLimit(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			app := newApp(limitertest.Redis(t))
//			for range 5 {
//				wantLogin(t, app, http.StatusOK)
//			}
//			wantLogin(t, app, http.StatusTooManyRequests)
//			time.Sleep(time.Minute) // takes no time: the clock is fake
//			wantLogin(t, app, http.StatusOK)
//		})
//	}
//
// The whole test is in example_test.go.
package limitertest

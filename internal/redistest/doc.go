// Package redistest starts real servers for tests: one ([Start]), one whose
// clock the test sets ([StartWithClock]), one that speaks TLS ([StartTLS]), a
// cluster of three masters and three replicas ([StartCluster]), or a master and
// a replica watched by three sentinels ([StartSentinel]). [StartProxy] puts a
// network that misbehaves in front of a server.
//
//	srv := redistest.Start(t)
//	rdb := srv.Client(t)
//	srv.Pause(t) // rdb now runs into its timeouts
//
// The server is the redis-server on the PATH, or the Redis or Valkey that
// REDIS_SERVER names, by its absolute path or by a name on the PATH. One
// binary plays all roles. Tested: Redis 7.0 and 8.0, Valkey 8.0 and 9.1.
//
// Every server listens on a free port of 127.0.0.1, keeps its files in the
// test's TempDir, persists nothing, and is killed in the test's Cleanup by its
// process id. Servers also die with the test binary, however it ends: panic,
// os.Exit, kill -9 (Linux only).
//
// Without redis-server the test is skipped. REQUIRE_REDIS=1 makes that a
// failure, for CI, where a skip would hide that nothing was tested. A server
// that REDIS_SERVER names and that cannot be found is always a failure.
// REDIS_SERVER=none is as if there were no redis-server.
//
// # testing/synctest
//
// Start servers outside the bubble, where their TB may serve several bubbles,
// and use them inside. No goroutine or channel of this package belongs to a
// bubble, and its polling is in real time, so a server can be controlled inside,
// which takes no fake time. Make the client inside, with the bubble's T, because
// go-redis does start goroutines. Waiting for a socket is not durably blocking:
// fake time stands still while a command is under way.
//
// # Process-wide effects
//
// Importing the package silences go-redis's logger, which would print every
// failed dial to stderr, and starts one goroutine that lives as long as the
// process, so it is in the baseline of every goroutine leak check.
package redistest

import "github.com/redis/go-redis/v9/logging"

func init() { logging.Disable() }

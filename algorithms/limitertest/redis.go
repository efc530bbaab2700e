package limitertest

import (
	"context"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Redis returns a client of a new, empty Redis inside the process. In a bubble of
// [testing/synctest] it uses the bubble's clock, for TIME and for the expiry of keys.
// Outside of a bubble it uses the real clock.
//
// The server is a [miniredis.Miniredis], which runs the same scripts as Redis. With the
// limiters of this module it makes the same decisions. It hides one kind of mistake in
// scripts of your own: a number that becomes a string without string.format keeps 14 digits
// in Redis, but all digits in miniredis.
//
// Client and server are closed in tb.Cleanup, so that the bubble can end. Close a Guard
// there, too: with an open Guard, the bubble ends in a panic, "deadlock: main bubble
// goroutine has exited but blocked goroutines remain".
func Redis(tb testing.TB) *redis.Client {
	client, _ := RedisServer(tb)
	return client
}

// RedisServer is [Redis] for tests that also need the server, to make it fail (SetError
// for a while, Close for good) or to read its keys. The server has no address. For more
// clients, copy the client's options, and pass them to [algorithms.FailFast]:
//
//	options := *client.Options()
//	another := redis.NewClient(algorithms.FailFast(&options))
func RedisServer(tb testing.TB) (*redis.Client, *miniredis.Miniredis) {
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	var dialing sync.RWMutex // a pool that is closed may still dial; miniredis must not be closed meanwhile
	tb.Cleanup(func() {
		dialing.Lock()
		defer dialing.Unlock()
		server.Close()
	})
	client := redis.NewClient(&redis.Options{
		// Not dialled, but looked up when it is a name, by a goroutine that
		// outlives a bubble.
		Addr: "127.0.0.1:6379",
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			dialing.RLock()
			defer dialing.RUnlock()
			if server.Ctx.Err() != nil { // closed; Dial would start it again
				return nil, syscall.ECONNREFUSED
			}
			pipe, err := server.Dial()
			if err != nil {
				return nil, err
			}
			return newConn(pipe), nil
		},

		// As many as a test may want at once: whoever waits for a connection
		// does so with a timer that go-redis shares with other bubbles, and the
		// runtime ends the process.
		PoolSize: 1 << 12,

		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		DisableIdentity:          true,
		ContextTimeoutEnabled:    true,
		MaxRetries:               -1, // 0 would mean 3
		DialerRetries:            1,
		DialTimeout:              time.Second, // as algorithms.FailFast has it, so that nothing warns of a test's client
	})
	tb.Cleanup(func() { _ = client.Close() })
	return client, server
}

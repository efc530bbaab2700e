package limitertest

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Redis returns a client of a new, empty Redis inside the process. In a bubble
// of [testing/synctest] it lives on the bubble's clock: what it answers to TIME
// and when its keys expire follow time.Sleep, which takes no time there.
// Outside it is on the real clock.
//
// It is a [miniredis.Miniredis], which runs the same scripts as Redis, and on
// the limiters of this module decides the same; but it hides one kind of
// mistake in scripts of your own: to make a number a string without
// string.format, which in Redis keeps 14 digits, in miniredis all.
//
// Both ends are closed in tb.Cleanup, so that the bubble can end.
func Redis(tb testing.TB) *redis.Client {
	client, _ := RedisServer(tb)
	return client
}

// RedisServer is [Redis] for tests that also want the server: to make it fail
// (SetError, Close), or to look into it. It has no address; a copy of the client's
// options makes more clients of it, with [algorithms.FailFast], since go-redis
// reads the MaxRetries of a client as the default:
//
//	options := *client.Options()
//	another := redis.NewClient(algorithms.FailFast(&options))
func RedisServer(tb testing.TB) (*redis.Client, *miniredis.Miniredis) {
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	tb.Cleanup(server.Close)
	client := redis.NewClient(&redis.Options{
		// Not dialled, but looked up when it is a name, by a goroutine that
		// outlives a bubble.
		Addr: "127.0.0.1:6379",
		Dialer: func(context.Context, string, string) (net.Conn, error) {
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
		DialTimeout:              100 * time.Millisecond, // as algorithms.FailFast has it, so that nothing warns of a test's client
	})
	tb.Cleanup(func() { _ = client.Close() })
	return client, server
}

package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Dial opens a connection of its own to a shard, by the options of the client:
// authenticated, encrypted if the client's are, and used by nobody else. It
// returns [errors.ErrUnsupported] for clients whose options are unknown.
func (t *Transport) Dial(ctx context.Context, shard int) (net.Conn, error) {
	options, err := t.nodeOptions(shard)
	if err != nil {
		return nil, err
	}
	o := *options
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = 1, 0, 0, 0
	o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled = -1, 1, true
	o.Protocol, o.DisableIdentity, o.Limiter = 2, true, nil
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	var last atomic.Pointer[net.Conn]
	dialer := o.Dialer // of a client's options always set
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dialer(ctx, network, addr)
		if err == nil {
			last.Store(&conn)
		}
		return conn, err
	}
	client := redis.NewClient(&o) // for the handshake; nobody else uses it
	if err := client.Ping(ctx).Err(); err != nil {
		if _, answered := errors.AsType[redis.Error](err); !answered || last.Load() == nil {
			_ = client.Close()
			return nil, fmt.Errorf("dial: %w", err)
		}
	}
	return &ownConn{*last.Load(), client}, nil
}

// An ownConn closes the client that has made it.
type ownConn struct {
	net.Conn
	client *redis.Client
}

func (c *ownConn) Close() error { return errors.Join(c.Conn.Close(), c.client.Close()) }

// nodeOptions returns the options of the client that sends to a shard.
func (t *Transport) nodeOptions(shard int) (*redis.Options, error) {
	if t.own && !t.Sharded {
		return &t.options, nil
	}
	if t.node == nil || shard == 0 {
		return nil, errors.ErrUnsupported
	}
	key, err := t.KeyOn(shard)
	if err != nil {
		return nil, err
	}
	if node := t.nodeOf(key); node != nil {
		return node.Options(), nil
	}
	return nil, errors.ErrUnsupported
}

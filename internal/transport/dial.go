package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
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

// Redial closes the idle connections to a shard, so that commands open new ones. Those in
// use stay. It does nothing for clients whose connections are unknown.
func (t *Transport) Redial(ctx context.Context, shard int) {
	node := t.only
	if key, err := t.KeyOn(shard); node == nil && err == nil {
		node = t.nodeOf(key)
	}
	if node == nil {
		return
	}
	for _, pipelines := range t.pools() {
		stats := node.PoolStats()
		idle := stats.IdleConns
		if pipelines && stats.PipelineStats != nil { // a pool of their own
			idle = stats.PipelineStats.IdleConns
		}
		within, end := context.WithTimeout(ctx, t.limit)
		taken := make(chan struct{}, idle)
		var all sync.WaitGroup
		for range idle {
			all.Go(func() {
				_ = recovered(func() error {
					return t.processOn(within, node, pipelines, redis.NewCmd(within, "ping", unsendable{taken, within.Done()}))
				})
			})
		}
		for range idle { // at once, or the pool would give out those that replace the first
			select {
			case <-taken:
			case <-within.Done():
			}
		}
		end()
		all.Wait()
	}
}

// An unsendable argument makes go-redis close the connection that a command has taken from
// the pool, before anything is sent. go-redis has no function that does so.
type unsendable struct {
	taken chan<- struct{}
	close <-chan struct{}
}

// MarshalBinary implements [encoding.BinaryMarshaler].
func (u unsendable) MarshalBinary() ([]byte, error) {
	select {
	case u.taken <- struct{}{}:
	case <-u.close: // a hook has called this, too
	}
	<-u.close
	return nil, errUnsendable
}

var errUnsendable = errors.New("closed to connect anew")

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

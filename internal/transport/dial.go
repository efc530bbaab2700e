package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/seed75154129/ratelimit/internal/wait"
)

const (
	// noticedLate bounds the delay with which a timeout may be noticed. If it is
	// longer, this process is too busy to blame the server.
	noticedLate = 2 * time.Millisecond
	// rereadTime is how long to read again for an answer that may have come in time.
	rereadTime = time.Millisecond
	// maxWaits bounds how often a busy process waits for one answer.
	maxWaits = 10
	// ownDial is how long a server may take to accept a connection for probes. A busy
	// process needs much of it, because it notices each step late.
	ownDial = time.Second
	// dialPause comes before another try.
	dialPause = 10 * time.Millisecond
)

// errBusyProcess is why it is unknown whether an answer came in time.
var errBusyProcess = fmt.Errorf("%w: this process noticed the timeout too late to blame the server", errBusy)

// ownConns are connections that only probes use, by shard.
type ownConns struct {
	mu    sync.Mutex
	all   map[int]*ownConn
	ended bool
}

// An ownConn is a connection to one shard.
type ownConn struct {
	mu     sync.Mutex // one probe at a time
	client *redis.Client
	own    *Transport // of client; nil if there is no connection
}

// Ask makes the calls of a probe on a connection to a shard that nothing else uses: on
// the one that is kept, or on a new one, which is kept then. It waits four fifths of the
// budget for an answer, and up to a second for a new connection. A timeout that this
// process notices late is no timeout, but fails as busy. The error is
// [errors.ErrUnsupported] for clients whose options are unknown.
func (t *Transport) Ask(ctx context.Context, shard int, anew bool, calls []*Call) error {
	node, err := t.clientOf(shard)
	switch {
	case err != nil:
		return err
	case node == t.only && t.Sharded: // what is behind one address is several servers
		return errors.ErrUnsupported
	}
	l, err := t.owns.find(shard)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if anew || l.own == nil {
		l.close()
		client, err := dial(ctx, node.Options(), t.limit*4/5)
		if err != nil {
			return err
		}
		l.client, l.own = client, New(client, t.Sharded, t.limit, t.scripts...)
	}
	ctx, cancel := context.WithTimeout(ctx, t.limit*4/5)
	defer cancel()
	return l.own.makeAll(ctx, calls)
}

// makeAll makes calls as a batch does, and returns the first error.
func (t *Transport) makeAll(ctx context.Context, calls []*Call) error {
	p := &pending{}
	p.begin(ctx, calls)
	f := &batch{first: [1]*pending{p}, calls: calls, deadline: p.deadline, ended: make(chan struct{})}
	f.members = f.first[:]
	if err := recovered(func() error { t.flush(f, t.batcher(0)); return nil }); err != nil {
		return err
	}
	for _, c := range calls {
		if r := c.answer(); r.Err != nil {
			return r.Err
		}
	}
	return nil
}

// HangUp closes the connections of Ask. There are no further ones.
func (t *Transport) HangUp() {
	t.owns.mu.Lock()
	defer t.owns.mu.Unlock()
	t.owns.ended = true
	for _, l := range t.owns.all {
		l.mu.Lock()
		l.close()
		l.mu.Unlock()
	}
}

func (l *ownConns) find(shard int) (*ownConn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nil, errBusy
	}
	if l.all == nil {
		l.all = map[int]*ownConn{}
	}
	if l.all[shard] == nil {
		l.all[shard] = new(ownConn)
	}
	return l.all[shard], nil
}

// close requires mu.
func (l *ownConn) close() {
	if l.client != nil {
		_ = l.client.Close()
		l.client, l.own = nil, nil
	}
}

// dial returns a client with one connection, by the options of another client:
// authenticated, and encrypted if that one's are. For patience, see patientConn.
func dial(ctx context.Context, options *redis.Options, patience time.Duration) (*redis.Client, error) {
	o := *options
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = 1, 0, 0, 0
	o.ConnMaxIdleTime, o.ConnMaxLifetime = -1, -1 // it is there when it is needed
	o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled = -1, 1, true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = ownDial, ownDial, ownDial, ownDial
	o.Protocol, o.DisableIdentity, o.Limiter = 2, true, nil
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	dialer := o.Dialer // of a client's options always set
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dialer(ctx, network, addr)
		if err != nil {
			return nil, unreachedError{err}
		}
		return &patientConn{Conn: conn, patience: patience}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, ownDial)
	defer cancel()
	deadline, _ := ctx.Deadline()
	for {
		client := redis.NewClient(&o)
		pipe := client.Pipeline() // the calls of a probe are one, too
		pipe.Ping(ctx)
		_, err := pipe.Exec(ctx)
		if err == nil || Answered(err) {
			return client, nil
		}
		_ = client.Close()
		_, unreached := errors.AsType[unreachedError](err)
		switch {
		case !IsTimeout(err) || !unreached && !errors.Is(err, context.DeadlineExceeded): // a read's is none
			return nil, fmt.Errorf("dial: %w", err)
		case wait.For(ctx, dialPause) == nil: // the client's options allow less
		case time.Since(deadline) > noticedLate:
			return nil, errBusyProcess
		default:
			return nil, fmt.Errorf("dial: %w", err)
		}
	}
}

// An unreachedError is that of a dialer. What a client waits for later is the server's to answer.
type unreachedError struct{ error }

func (e unreachedError) Unwrap() error { return e.error }

// A patientConn blames the server only for a timeout of a read that it notices in time.
type patientConn struct {
	net.Conn
	patience time.Duration // how long to wait once more
	deadline time.Time     // of reads; zero means none
}

func (c *patientConn) SetDeadline(at time.Time) error {
	c.deadline = at
	return c.Conn.SetDeadline(at)
}

func (c *patientConn) SetReadDeadline(at time.Time) error {
	c.deadline = at
	return c.Conn.SetReadDeadline(at)
}

// Read waits once more if this process notices a timeout late, with errBusyProcess in
// the end. In a busy process timers fire before the network is read, so it looks once
// more for an answer that may have come in time.
func (c *patientConn) Read(p []byte) (n int, err error) {
	for range maxWaits {
		if n, err = c.Conn.Read(p); !IsTimeout(err) {
			return n, err
		}
		late := time.Since(c.deadline)
		_ = c.SetReadDeadline(time.Now().Add(rereadTime))
		if n, err = c.Conn.Read(p); !IsTimeout(err) || max(late, time.Since(c.deadline)) <= noticedLate {
			return n, err
		}
		_ = c.SetReadDeadline(time.Now().Add(c.patience))
	}
	return 0, errBusyProcess
}

// Redial closes the idle connections to a shard, so that commands open new ones. Those in
// use stay. It does nothing for clients whose connections are unknown.
func (t *Transport) Redial(ctx context.Context, shard int) {
	node, err := t.clientOf(shard)
	if err != nil {
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

// clientOf returns the client that sends to a shard.
func (t *Transport) clientOf(shard int) (*redis.Client, error) {
	if t.only != nil {
		return t.only, nil
	}
	if t.node == nil || shard == 0 {
		return nil, errors.ErrUnsupported
	}
	key, err := t.KeyOn(shard)
	if err != nil {
		return nil, err
	}
	if node := t.nodeOf(key); node != nil {
		return node, nil
	}
	return nil, errors.ErrUnsupported
}

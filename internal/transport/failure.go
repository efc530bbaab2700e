package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/redis/go-redis/v9"
)

// setSharded is what to do if a client that should have one server has several.
const setSharded = "the client spreads keys over servers: set Redis.Sharded"

// busy is why a decision was not sent that has waited too long, or would have to.
func (t *Transport) busy() error {
	return fmt.Errorf("%w: no turn within the budget of %s", errBusy, t.limit)
}

// reloadEvery is the shortest time between two requests to a client to look at its
// cluster again. go-redis looks again when a node redirects it, but not when one is dead
// or hangs: with its own interval, a minute of errors would follow a failover of two
// seconds.
const reloadEvery = 250 * time.Millisecond

// failed does what a failure calls for, and returns its error for the caller:
// what came because the budget is over says so.
func (t *Transport) failed(ctx context.Context, key string, err error) error {
	t.connect(key, err)
	switch ClassOf(err) {
	case ClassUnreachable, ClassUnavailable, ClassUnknown, ClassMoved: // maybe of a node that is gone
		if t.reload != nil {
			t.reloads.Do(func() { t.reload(ctx) })
		}
	}
	switch {
	case !t.Sharded && redis.HasErrorPrefix(err, "CROSSSLOT"):
		return fmt.Errorf("%w; %s", err, setSharded)
	case !over(ctx), errors.Is(err, errBusy), isUnsent(err), Answered(err):
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within the budget of %s: %w", t.limit, err)
	}
	return fmt.Errorf("no answer within the budget of %s: %w: %w", t.limit, context.DeadlineExceeded, err)
}

// unsent recognises the error of a command that has got no connection: go-redis
// waits for one with the command's context, and for answers with the deadline
// of the connection. That all connections were in use is no failure of Redis.
func (t *Transport) unsent(key string, err error) error {
	if !t.own || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	node := cmp.Or(t.only, t.nodeOf(key))
	if node != nil {
		pool, size := node.PoolStats(), node.Options().PoolSize
		if int(pool.TotalConns) >= size+int(pool.IdleConns) {
			return fmt.Errorf("%w: all %d connections are in use: %w", errBusy, size, err)
		}
	}
	return unsentError{fmt.Errorf("no connection within the budget of %s: %w", t.limit, err)}
}

// recovered calls f on a goroutine that is not its caller's. What f panics with
// becomes an error that says where: it must not end the process.
func recovered(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%v\n\nthe Redis client panicked:\n%s", v, debug.Stack())
		}
	}()
	return f()
}

// over reports that the budget is over. The deadline of a connection may be
// noticed before that of its context.
func over(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

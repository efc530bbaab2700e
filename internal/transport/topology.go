package transport

import (
	"context"
	"sync/atomic"
	"time"
)

// reloadEvery is the shortest time between two requests to a client to look at
// its cluster again.
const reloadEvery = 250 * time.Millisecond

// A topology makes a client notice that the nodes of its cluster have changed
// roles. go-redis looks again when a node redirects it, but not when one is
// dead or hangs: with its own interval, a minute of errors would follow a
// failover of two seconds.
type topology struct {
	start time.Time
	next  atomic.Int64 // since start
}

// failed makes the client look again if an error may come from a node that is
// gone. It does not wait.
func (t *topology) failed(ctx context.Context, reload func(context.Context), err error) {
	switch ClassOf(err) {
	case ClassUnreachable, ClassUnavailable, ClassUnknown, ClassMoved:
	default:
		return
	}
	now, next := int64(time.Since(t.start)), t.next.Load()
	if now >= next && t.next.CompareAndSwap(next, now+int64(reloadEvery)) {
		reload(ctx)
	}
}

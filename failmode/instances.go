package failmode

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/internal/background"
	"github.com/seed75154129/ratelimit/internal/monitor"
	"github.com/seed75154129/ratelimit/internal/transport"
)

const (
	heartbeatInterval = 5 * time.Second
	heartbeatLease    = 3 * heartbeatInterval // an instance that sent no beat for so long is gone
)

// A heartbeat counts the instances that share the limits. Each Guard is one, also
// beside others of its process. Requests trigger the heartbeat, at most every
// heartbeatInterval, because an instance without requests needs no share. Each beat
// runs in a goroutine of its own.
type heartbeat struct {
	store   store // nil where there is none
	monitor *monitor.Monitor
	work    *background.Group
	id      string // of this Guard
	logger  *slog.Logger
	start   time.Time
	next    atomic.Int64 // when the next beat is due, since start
	count   atomic.Int64 // of instances, by the last beat that was believed

	mu    sync.Mutex // over fewer: with a budget above heartbeatInterval beats may overlap
	fewer bool       // the last beat counted fewer

	forbidden sync.Once // to log
}

func (h *heartbeat) begin(s store, b *monitor.Monitor, work *background.Group, logger *slog.Logger) {
	h.id, h.store, h.monitor, h.work, h.logger = rand.Text(), s, b, work, logger
	h.start = time.Now()
}

// tick beats if it is time to. It does not wait.
func (h *heartbeat) tick(ctx context.Context) {
	if h.store == nil {
		return
	}
	now, next := int64(time.Since(h.start)), h.next.Load()
	if now < next || !h.next.CompareAndSwap(next, now+int64(heartbeatInterval)) || h.monitor.AllOpen() {
		return
	}
	ctx = context.WithoutCancel(ctx)
	h.work.Begin(func() { h.beat(ctx) })
}

func (h *heartbeat) beat(ctx context.Context) {
	instances, err := h.store.Beat(ctx, h.id, heartbeatLease)
	switch {
	case err == nil:
		h.counted(int64(instances))
	case transport.Answered(err) && !h.monitor.AllOpen():
		h.forbidden.Do(func() {
			h.logger.Warn("ratelimit: cannot count instances; set Instances, "+
				"or permit the heartbeat (HGETALL, HMGET, HSET, HDEL, PEXPIRE)", "error", err)
		})
	}
}

// counted accepts a lower number only the second time: after an outage, the
// first beats find no other instances.
func (h *heartbeat) counted(instances int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if fewer := instances < h.count.Load(); fewer && !h.fewer {
		h.fewer = true
		return
	}
	h.fewer = false
	h.count.Store(instances)
}

// end takes the instance out of the count. The last beat must be over.
func (h *heartbeat) end() {
	if h.store != nil && h.count.Load() > 0 {
		_, _ = h.store.Beat(context.Background(), h.id, 0) // if it fails, the lease expires
	}
}

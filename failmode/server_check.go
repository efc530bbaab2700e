package failmode

import (
	"context"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/internal/background"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// A serverCheck warns of servers that may evict limiter keys. It asks in the
// background, so that no request waits for it, and repeats every minute until a
// server has answered.
type serverCheck struct {
	ctx    context.Context // ends with the Guard
	store  store
	work   *background.Group
	logger *slog.Logger
	start  time.Time
	next   atomic.Int64 // when to ask next, since start
}

func (s *serverCheck) begin(ctx context.Context, st store, work *background.Group, logger *slog.Logger) {
	s.ctx, s.store, s.work, s.logger, s.start = ctx, st, work, logger, time.Now()
	if warned := st.Warnings(); len(warned) > 0 {
		logger.Warn("ratelimit: Redis client options make outages worse; use algorithms.FailFast", "options", strings.Join(warned, "; "))
	}
}

// tick asks if it is time to. It does not wait.
func (s *serverCheck) tick() {
	next := s.next.Load()
	if next == math.MaxInt64 { // answered; the usual case
		return
	}
	now := int64(time.Since(s.start))
	if now < next || !s.next.CompareAndSwap(next, now+int64(time.Minute)) {
		return
	}
	s.work.Begin(func() {
		ctx, cancel := context.WithTimeout(s.ctx, time.Second)
		defer cancel()
		warned, err := s.store.ServerWarnings(ctx)
		switch transport.ClassOf(err) {
		case "", transport.ClassRefused: // INFO may be forbidden, which is no mistake
			s.next.Store(math.MaxInt64)
		}
		if len(warned) > 0 {
			s.logger.Warn("ratelimit: Redis may evict limiter keys", "servers", strings.Join(warned, "; "))
		}
	})
}

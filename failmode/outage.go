package failmode

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// quiet is how long nothing must have failed for an outage to be over: part of a
// cluster may be away while the rest answers.
const quiet = 5 * time.Second

// An outage is logged once when it begins and once when it is over, if there is
// a logger.
type outage struct {
	logger *slog.Logger
	start  time.Time
	on     atomic.Bool
	failed atomic.Int64 // when a decision last failed, since start
}

func (o *outage) begun(err error) {
	if o.logger == nil {
		return
	}
	o.failed.Store(int64(time.Since(o.start)))
	if !o.on.Load() && o.on.CompareAndSwap(false, true) {
		o.logger.Warn("ratelimit: the store does not answer; each rule follows its fail mode", "error", err)
	}
}

func (o *outage) over() {
	if o.on.Load() && int64(time.Since(o.start))-o.failed.Load() >= int64(quiet) && o.on.CompareAndSwap(true, false) {
		o.logger.Info("ratelimit: the store answers again")
	}
}

package failmode

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// An outage is logged once when it begins and once when it is over, and not
// more often than every second in case it flaps.
type outage struct {
	logger *slog.Logger
	on     atomic.Bool
	logged atomic.Int64 // Unix ns
}

func (o *outage) begun(err error) {
	if !o.on.Load() && o.due() && o.on.CompareAndSwap(false, true) {
		o.logger.Warn("ratelimit: the store does not answer; each rule follows its fail mode", "error", err)
	}
}

func (o *outage) over() {
	if o.on.Load() && o.due() && o.on.CompareAndSwap(true, false) {
		o.logger.Info("ratelimit: the store answers again")
	}
}

func (o *outage) due() bool {
	now, last := time.Now().UnixNano(), o.logged.Load()
	return now-last >= int64(time.Second) && o.logged.CompareAndSwap(last, now)
}

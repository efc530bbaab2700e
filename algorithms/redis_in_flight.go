package algorithms

import (
	"context"
	"errors"
	"slices"

	"github.com/seed75154129/ratelimit/internal/inflight"
	"github.com/seed75154129/ratelimit/internal/script"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// KeyOf is the Redis key that counts a check.
func (s store) KeyOf(c Check) string { return s.key(&c, c.Limit.row()) }

// Tell tells Redis what runs, in one call or, where keys are sharded, in one for each key. It
// returns what failed.
func (s store) Tell(ctx context.Context, news []inflight.News) (failed []inflight.News, err error) {
	size := max(len(news), 1)
	if s.Transport.Sharded {
		size = 1
	}
	pieces := slices.Collect(slices.Chunk(news, size))
	calls := make([]*transport.Call, len(pieces))
	for i, piece := range pieces {
		c := &transport.Call{Script: script.Pulse}
		for _, n := range piece {
			c.Keys, c.Args = append(c.Keys, n.Key), append(c.Args, n.Lease.Microseconds(), n.Told)
		}
		calls[i] = c
	}
	var errs []error
	for i, r := range s.SendAll(s.Transport.Within(ctx), calls) {
		if r.Err != nil {
			failed, errs = append(failed, pieces[i]...), append(errs, r.Err)
		}
	}
	return failed, redisError(errors.Join(errs...))
}

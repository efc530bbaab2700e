package algorithms

import (
	"context"
	"fmt"
	"time"

	"github.com/seed75154129/ratelimit/internal/script"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// Beat says that the instance id uses the namespace, and returns how many
// instances do: those whose last beat was less than their lease ago. A lease of
// 0 takes the instance out; others are rounded up to the millisecond. The key is
// "namespace:instances".
//
// All instances should use the same lease: a shorter one cuts off what longer
// ones have left.
func (s store) Beat(ctx context.Context, id string, lease time.Duration) (instances int, err error) {
	ms := (max(lease, 0) + time.Millisecond - 1).Milliseconds()
	c := &transport.Call{Script: script.Instances, Keys: []any{s.Namespace + ":instances"}, Args: []any{id, ms}}
	reply, err := s.Send(s.Transport.Within(ctx), c) // one key goes through every client alike
	if err == nil && len(reply) != 1 {
		err = fmt.Errorf("%w: %d numbers, want 1", transport.ErrReply, len(reply))
	}
	if err != nil {
		return 0, redisError(err)
	}
	return int(reply[0]), nil
}

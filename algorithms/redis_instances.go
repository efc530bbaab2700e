package algorithms

import (
	"context"
	_ "embed"
	"fmt"
	"time"
)

//go:embed lua/instances.lua
var instancesLua string

var instancesScript = newScript(instancesLua)

// beat says that the instance id uses the namespace, and returns how many do: those
// whose last beat was less than their lease ago. A lease of 0 takes the process
// out; others are rounded up to the millisecond. The key is
// "namespace:instances".
//
// Leases of all instances should be alike: a shorter one cuts off what longer
// ones have left.
func (r *Redis) beat(ctx context.Context, id string, lease time.Duration) (instances int, err error) {
	t, err := r.ready()
	if err != nil {
		return 0, err
	}
	ctx, cancel := t.within(ctx)
	defer cancel()
	ms := (max(lease, 0) + time.Millisecond - 1).Milliseconds()
	c := &call{instancesScript, []any{nil, nil, 1, r.Namespace + ":instances", id, ms}}
	reply, err := t.send(ctx, c) // one key goes through every client alike
	if err == nil && len(reply) != 1 {
		err = fmt.Errorf("%w: %d numbers, want 1", errReply, len(reply))
	}
	if err != nil {
		return 0, redisError(err)
	}
	return int(reply[0]), nil
}

package failmode

import "time"

// A ShardState is what a circuit was last seen to do.
type ShardState struct {
	Open   bool
	Since  time.Time // of the last opening or closing; zero if there was none
	Opened int64     // how often it has opened
	Err    error     // the last failure; nil if there was none
}

// States returns the states of the circuits that were needed so far, by shard.
func (b *Breaker) States() []ShardState {
	b.ready()
	all := *b.circuits.Load()
	states := make([]ShardState, len(all))
	for i, c := range all {
		states[i] = c.state()
	}
	return states
}

// Down names the shards whose circuit is open; empty when all is well. For
// readiness checks it is the wrong thing to ask: the service is up, and its
// limits follow their modes.
func (b *Breaker) Down() []string {
	b.ready()
	var shards []int
	for shard, c := range *b.circuits.Load() {
		if c.isOpen.Load() {
			shards = append(shards, shard)
		}
	}
	return b.Next.Names(shards...)
}

func (c *circuit) state() ShardState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return ShardState{Open: c.isOpen.Load(), Since: c.since, Opened: c.opened, Err: c.err}
}

package failmode

import (
	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/inside"
)

// Internal is for the packages of this module, and no part of the API.
var Internal inside.Door[opened]

// opened is what package middleware needs of a Guard.
type opened struct{}

// KnownOver reports whether the store would deny a check, as far as is known here.
func (opened) KnownOver(g *Guard, c *algorithms.Check) bool {
	if g.ready(); g.invalid != nil {
		return false
	}
	_, over := g.knownDenial(c)
	return over
}

// Down returns the servers whose circuit is open.
func (opened) Down(g *Guard) []string {
	if g.ready(); g.invalid != nil {
		return nil
	}
	var shards []int
	for _, s := range g.monitor.States() {
		if s.Open {
			shards = append(shards, s.Shard)
		}
	}
	return g.store.Names(shards...)
}

// Connect begins to connect a Guard that [Redis] has made, before its first use.
func (opened) Connect(g *Guard) {
	if g.client != nil {
		g.ready()
	}
}

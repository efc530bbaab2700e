package failmode

import (
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/inside"
)

// Internal is for the packages of this module, and no part of the API.
var Internal internals

type internals struct{}

// Open returns what package middleware needs of a Guard.
func (internals) Open(k *inside.Key) opened {
	if k != &inside.Allow {
		panic("Internal is for the packages of this module")
	}
	return opened{}
}

type opened struct{}

func (opened) Instances(g *Guard) int                       { g.ready(); return g.instances() }
func (opened) Circuits(g *Guard) []inside.CircuitState      { return g.states() }
func (opened) Memory(g *Guard) *algorithms.Memory           { return &g.local }
func (opened) KnownOver(g *Guard, c *algorithms.Check) bool { return g.knownOver(c) }
func (opened) Observe(g *Guard, f func(time.Duration, algorithms.Decision, error)) {
	if g.ready(); g.invalid == nil {
		g.breaker.observe(f)
	}
}

package failmode

import (
	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/bridge"
)

func init() {
	bridge.FromFailmode = bridge.Failmode[*Guard, *algorithms.Memory, algorithms.Check, algorithms.Decision]{
		Instances: func(g *Guard) int {
			g.ready()
			return g.instances()
		},
		Circuits:  (*Guard).states,
		Memory:    func(g *Guard) *algorithms.Memory { return &g.local },
		KnownOver: (*Guard).knownOver,
		Observe: func(g *Guard, f observer) {
			if g.ready(); g.invalid == nil {
				g.breaker.observe(f)
			}
		},
	}
}

package algorithms

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/internal/script"
	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// takeCall decides checks; see internal/script/take.lua, and joint.lua for several such
// calls.
func (r *Redis) takeCall(charge bool, checks []Check, ps []step.Params) *transport.Call {
	c := &transport.Call{Script: script.Take, Keys: r.keys(checks, ps), Joins: true}
	for i := range ps {
		p := &ps[i]
		c.Joins = c.Joins && !p.Log
		if p.Held {
			told := checks[i].InFlight
			if told == nil { // a request that no Guard knows is a process of its own
				told = new(fmt.Sprint(p.ID, 1, 0, 0))
			}
			c.Own = append(c.Own, *told)
		}
		r.tell(p)
	}
	c.Args = takeArguments(charge, checks, ps)
	return c
}

// tell tells a calendar's twin the windows around this process's time.
func (r *Redis) tell(p *step.Params) {
	if p.Calendar {
		p.Tell(r.time().UnixMicro())
	}
}

func (r *Redis) time() time.Time {
	if r.now != nil {
		return r.now()
	}
	return time.Now()
}

// A shape is what decides the arguments of takeCall, other than the keys.
type shape struct {
	charge bool
	checks int
	shadow [4]bool
	bounds [4]*step.Bound
}

// shapes caches the arguments that were used last, by hash. Calls share them: nobody
// writes them, and they have no room for more.
var shapes [256]atomic.Pointer[shaped]

type shaped struct {
	shape
	args []any
}

func takeArguments(charge bool, checks []Check, ps []step.Params) []any {
	s, slot := shape{charge: charge, checks: len(checks)}, uint64(0)
	for i := range checks {
		if i == len(s.bounds) || ps[i].Bound == nil || ps[i].Calendar {
			return newArguments(charge, checks, ps)
		}
		s.bounds[i], s.shadow[i] = ps[i].Bound, checks[i].Shadow
		slot = slot*31 + ps[i].Bound.Slot
	}
	cached := &shapes[slot%uint64(len(shapes))]
	if c := cached.Load(); c != nil && c.shape == s {
		return c.args
	}
	args := newArguments(charge, checks, ps)
	cached.Store(&shaped{s, args})
	return args
}

func newArguments(charge bool, checks []Check, ps []step.Params) []any {
	args := []any{"0"}
	if charge {
		args[0] = "1"
	}
	for i := range checks {
		code := ps[i].Code
		if checks[i].Shadow {
			code = -code
		}
		if args = ps[i].Arguments(append(args, code)); ps[i].Held {
			args[len(args)-1] = nil // the ID: see takeCall
		}
	}
	return slices.Clip(args)
}

// settleCall corrects charges; see internal/script/settle.lua.
func (r *Redis) settleCall(corrections []settlement) *transport.Call {
	keys, args := make([]any, len(corrections)), make([]any, 0, 13*len(corrections))
	for i := range corrections {
		c := &corrections[i]
		keys[i] = r.key(&c.result.Check, c.Row)
		begin := len(args)
		r.tell(&c.Params)
		args = c.Step.Corrections(c.Step.Arguments(append(args, 0, c.Code), c.Params), &c.Correction)
		args[begin] = len(args) - begin - 1
		if told := c.result.Check.InFlight; c.Held && told != nil {
			args[begin+4] = *told // in place of the ID
		}
	}
	return &transport.Call{Script: script.Settle, Keys: keys, Args: args}
}

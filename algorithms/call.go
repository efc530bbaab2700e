package algorithms

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/seed75154129/ratelimit/internal/script"
	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// takeCall decides checks; see internal/script/take.lua, and
// joint.lua for several such calls.
func (r *Redis) takeCall(charge bool, checks []Check, ps []step.Params) *transport.Call {
	c := &transport.Call{Script: script.Take, Keys: r.keys(checks, ps), Args: takeArguments(charge, checks, ps), Joins: true}
	for i := range ps {
		p := &ps[i]
		c.Joins = c.Joins && !p.Log
		if p.Held {
			c.Own = append(c.Own, p.ID)
		}
		if p.Calendar && c.Instead == nil {
			kept := slices.Clone(ps) // so that other calls' stay on the stack
			c.Instead = atItsTime(kept, func() *transport.Call { return r.takeCall(charge, checks, kept) })
		}
	}
	return c
}

// noWindow is how the scripts begin what they say if their clock is in none of the
// windows of a calendar that they were given. The time follows, in µs.
const noWindow = "none of the calendar windows holds "

// atItsTime makes a call again, once, with the windows around the server's time.
func atItsTime(ps []step.Params, again func() *transport.Call) func(error) *transport.Call {
	return func(err error) *transport.Call {
		var now int64
		_, rest, _ := strings.Cut(err.Error(), noWindow)
		if n, _ := fmt.Sscan(rest, &now); n == 0 || !transport.Answered(err) {
			return nil
		}
		for i := range ps {
			ps[i].Told(now)
		}
		c := again()
		c.Instead = nil
		return c
	}
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

func paramsIn(corrections []settlement) []step.Params {
	ps := make([]step.Params, len(corrections))
	for i := range corrections {
		ps[i] = corrections[i].Params
	}
	return ps
}

// settleCall corrects charges; see internal/script/settle.lua.
func (r *Redis) settleCall(corrections []settlement) *transport.Call {
	keys, args, timed := make([]any, len(corrections)), make([]any, 0, 13*len(corrections)), false
	for i := range corrections {
		c := &corrections[i]
		keys[i] = r.key(&c.result.Check, &c.Params)
		begin := len(args)
		timed = timed || c.Calendar
		args = c.Step.Corrections(c.Step.Arguments(append(args, 0, c.Code), c.Params), &c.Correction)
		args[begin] = len(args) - begin - 1
	}
	call := &transport.Call{Script: script.Settle, Keys: keys, Args: args}
	if timed {
		call.Instead = atItsTime(paramsIn(corrections), func() *transport.Call { return r.settleCall(corrections) })
	}
	return call
}

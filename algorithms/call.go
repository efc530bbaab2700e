package algorithms

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/seed75154129/ratelimit/internal/script"
	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// A banOp is what a call about bans does; see internal/script/bans.lua.
type banOp string

const (
	lookAtBan   banOp = "look"
	healBan     banOp = "heal" // a look that ends what a clock error left
	countDenial banOp = "deny"
	banByHand   banOp = "ban"
	liftBan     banOp = "lift"
)

// bansCall is about the bans of the checks. By hand, it needs their params, and how
// long the bans last in µs.
func (r *Redis) bansCall(op banOp, length int64, checks []Check, ps []step.Params) *transport.Call {
	c := &transport.Call{Script: script.Bans, Args: []any{string(op)}}
	for i := range checks {
		c.Keys = append(c.Keys, r.banKey(&checks[i]))
		if ps != nil {
			c.Keys = append(c.Keys, r.key(&checks[i], &ps[i]), r.keptKey(&checks[i], &ps[i]))
		}
		b := checks[i].banRule()
		c.Args = append(c.Args, b.After, b.Within, cmp.Or(length, b.Length))
	}
	return c
}

// takeBansCall decides checks some of which have a ban; see internal/script/take_bans.lua.
// met says that one of them has met a ban by hand or a foreign value: that takes all for
// checks with a ban.
func (r *Redis) takeBansCall(charge, met bool, checks []Check, ps []step.Params) *transport.Call {
	c := r.takeCall(charge, checks, ps)
	if c.Script = script.TakeBans; c.Instead != nil {
		kept := slices.Clone(ps)
		c.Instead = atItsTime(kept, func() *transport.Call { return r.takeBansCall(charge, met, checks, kept) })
	}
	bans := 0
	for i := range checks {
		if !checks[i].bans() && !met {
			continue
		}
		bans++
		c.Keys = append(c.Keys, r.banKey(&checks[i]), r.keptKey(&checks[i], &ps[i]))
		b := checks[i].banRule()
		if checks[i].Ban == (Ban{}) && !checks[i].Shadow {
			b.After = -2 // obeys bans by hand only
		}
		spareW, spareF := ps[i].Spare()
		c.Args = append(c.Args, i+1, b.After, b.Within, b.Length, spareW, spareF)
	}
	flag := 0
	if met {
		flag = 1
	}
	c.Args = append(c.Args, flag, bans)
	return c
}

// takeCall decides checks without a ban; see internal/script/take.lua, and joint.lua for
// several such calls.
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

// settleKeptCall corrects one charge, whose count may be kept elsewhere during a ban by
// hand; see internal/script/settle_kept.lua.
func (r *Redis) settleKeptCall(correction []settlement) *transport.Call {
	c := r.settleCall(correction)
	if c.Script = script.SettleKept; c.Instead != nil {
		c.Instead = atItsTime(paramsIn(correction), func() *transport.Call { return r.settleKeptCall(correction) })
	}
	c.Keys = append(c.Keys, r.keptKey(&correction[0].result.Check, &correction[0].Params))
	return c
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

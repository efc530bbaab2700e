package algorithms

import (
	"cmp"
	"slices"

	"github.com/seed75154129/ratelimit/internal/script"
	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// A banOp is what a call about bans does; see internal/script/bans.lua.
type banOp string

const (
	lookAtBan   banOp = "look"
	countDenial banOp = "deny"
	banByHand   banOp = "ban"
	liftBan     banOp = "lift"
)

// bansCall is about the bans of the checks. By hand, it needs their params, and how
// long the bans last in µs.
func (r *Redis) bansCall(op banOp, length int64, checks []Check, ps []step.Params) *transport.Call {
	args := make([]any, 3, 4+6*len(checks))
	for i := range checks {
		args = append(args, r.banKey(&checks[i]))
		if ps != nil {
			args = append(args, r.key(&checks[i], &ps[i]), r.keptKey(&checks[i], &ps[i]))
		}
	}
	args[2] = len(args) - 3
	args = append(args, string(op))
	for i := range checks {
		b := checks[i].banRule()
		args = append(args, b.After, b.Within, cmp.Or(length, b.Length))
	}
	return &transport.Call{Script: script.Bans, Args: args}
}

// takeBansCall decides checks some of which have a ban; see
// internal/script/take_bans.lua. met says that one of them has met a ban by hand or
// a foreign value: that takes all for checks with a ban.
func (r *Redis) takeBansCall(charge, met bool, checks []Check, ps []step.Params) *transport.Call {
	c := r.takeCall(charge, checks, ps)
	c.Script = script.TakeBans
	var keys []any
	bans := 0
	for i := range checks {
		if !checks[i].bans() && !met {
			continue
		}
		bans++
		keys = append(keys, r.banKey(&checks[i]), r.keptKey(&checks[i], &ps[i]))
		b := checks[i].banRule()
		spareW, spareF := ps[i].Spare()
		c.Args = append(c.Args, i+1, b.After, b.Within, b.Length, spareW, spareF)
	}
	flag := 0
	if met {
		flag = 1
	}
	c.Args[2] = len(checks) + len(keys)
	c.Args = append(slices.Insert(c.Args, 3+len(checks), keys...), flag, bans)
	return c
}

// takeCall decides checks without a ban; see internal/script/take.lua, and
// take_joint.lua for several such calls.
func (r *Redis) takeCall(charge bool, checks []Check, ps []step.Params) *transport.Call {
	args := make([]any, 3, 4+8*len(checks))
	args[2] = len(checks)
	for i := range checks {
		args = append(args, r.key(&checks[i], &ps[i]))
	}
	if charge {
		args = append(args, "1")
	} else {
		args = append(args, "0")
	}
	joins := true
	for i := range checks {
		joins = joins && !ps[i].Summary
		code := ps[i].Code
		if checks[i].Shadow {
			code = -code
		}
		args = ps[i].Arguments(append(args, code))
	}
	return &transport.Call{Script: script.Take, Args: args, Joins: joins}
}

// settleKeptCall corrects charges some of which are kept elsewhere during a ban by
// hand; see internal/script/settle_kept.lua.
func (r *Redis) settleKeptCall(corrections []settlement) *transport.Call {
	c := r.settleCall(corrections)
	c.Script = script.SettleKept
	var keys []any
	for i := range corrections {
		keys = append(keys, r.keptKey(&corrections[i].result.Check, &corrections[i].Params))
	}
	c.Args[2] = 2 * len(corrections)
	c.Args = slices.Insert(c.Args, 3+len(corrections), keys...)
	return c
}

// settleCall corrects charges; see internal/script/settle.lua.
func (r *Redis) settleCall(corrections []settlement) *transport.Call {
	args := make([]any, 3, 3+14*len(corrections))
	args[2] = len(corrections)
	for i := range corrections {
		args = append(args, r.key(&corrections[i].result.Check, &corrections[i].Params))
	}
	for i := range corrections {
		c := &corrections[i]
		begin := len(args)
		args = c.Step.Corrections(c.Step.Arguments(append(args, 0, c.Code), c.Params), &c.Correction)
		args[begin] = len(args) - begin - 1
	}
	return &transport.Call{Script: script.Settle, Args: args}
}

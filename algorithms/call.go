package algorithms

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// A call is one run of a script: its keys and arguments as EVALSHA takes them,
// without the command's and the script's name.
type call struct {
	script *script
	args   []any
}

// A banOp is what a call about bans does; see lua/bans.lua.
type banOp string

const (
	lookAtBan   banOp = "look"
	countDenial banOp = "deny"
	banByHand   banOp = "ban"
)

// bansCall is about the bans of the checks.
func (r *Redis) bansCall(op banOp, rules []banRule, checks ...Check) *call {
	args := make([]any, 3, 4+4*len(checks))
	args[2] = len(checks)
	for i := range checks {
		args = append(args, r.banKey(&checks[i]))
	}
	args = append(args, string(op))
	for _, b := range rules {
		args = append(args, b.after, b.within, b.length)
	}
	return &call{bansScript, args}
}

// takeBansCall decides checks some of which have a ban; see lua/take_bans.lua.
func (r *Redis) takeBansCall(charge bool, checks []Check, ps []params) *call {
	c := r.takeCall(charge, checks, ps)
	c.script = takeBansScript
	var keys []any
	for i := range checks {
		if !checks[i].bans() {
			continue
		}
		keys = append(keys, r.banKey(&checks[i]))
		b := checks[i].banRule()
		spareW, spareF := ps[i].spare()
		c.args = append(c.args, i+1, b.after, b.within, b.length, spareW, spareF)
	}
	c.args[2] = len(checks) + len(keys)
	c.args = append(slices.Insert(c.args, 3+len(checks), keys...), len(keys))
	return c
}

// takeCall decides the checks; see lua/take.lua.
func (r *Redis) takeCall(charge bool, checks []Check, ps []params) *call {
	args := make([]any, 3, 4+8*len(checks))
	args[2] = len(checks)
	for i := range checks {
		args = append(args, r.key(&checks[i], &ps[i]))
	}
	mode := "0"
	if charge {
		mode = "1"
	}
	args = append(args, mode)
	for i := range checks {
		code := ps[i].code
		if checks[i].Shadow {
			code = -code
		}
		args = ps[i].step.arguments(append(args, code), ps[i])
	}
	return &call{takeScript, args}
}

// settleCall corrects charges; see lua/settle.lua.
func (r *Redis) settleCall(corrections []correction) *call {
	args := make([]any, 3, 3+14*len(corrections))
	args[2] = len(corrections)
	for i := range corrections {
		args = append(args, r.key(&corrections[i].result.Check, &corrections[i].params))
	}
	for i := range corrections {
		c := &corrections[i]
		begin := len(args)
		args = c.step.corrections(c.step.arguments(append(args, 0, c.code), c.params), c)
		args[begin] = len(args) - begin - 1
	}
	return &call{settleScript, args}
}

// command builds what is sent: EVALSHA, or EVAL with the script's text.
func (c *call) command(ctx context.Context, text bool) *redis.IntSliceCmd {
	args := append([]any(nil), c.args...)
	args[0], args[1] = "evalsha", c.script.sha
	if text {
		args[0], args[1] = "eval", c.script.text
	}
	return redis.NewIntSliceCmd(ctx, args...)
}

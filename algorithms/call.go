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
	liftBan     banOp = "lift"
)

// bansCall is about the bans of the checks. By hand, it needs their params.
func (r *Redis) bansCall(op banOp, rules []banRule, checks []Check, ps []params) *call {
	args := make([]any, 3, 4+6*len(checks))
	for i := range checks {
		args = append(args, r.banKey(&checks[i]))
		if ps != nil {
			args = append(args, r.key(&checks[i], &ps[i]), r.keptKey(&checks[i], &ps[i]))
		}
	}
	args[2] = len(args) - 3
	args = append(args, string(op))
	for _, b := range rules {
		args = append(args, b.after, b.within, b.length)
	}
	return &call{bansScript, args}
}

// takeBansCall decides checks some of which have a ban; see lua/take_bans.lua. met
// says that one of them has met a ban by hand: that takes all for checks with one.
func (r *Redis) takeBansCall(charge, met bool, checks []Check, ps []params) *call {
	c := r.takeCall(charge, checks, ps)
	c.script = takeBansScript
	var keys []any
	bans := 0
	for i := range checks {
		if !checks[i].bans() && !met {
			continue
		}
		bans++
		keys = append(keys, r.banKey(&checks[i]), r.keptKey(&checks[i], &ps[i]))
		b := checks[i].banRule()
		spareW, spareF := ps[i].spare()
		c.args = append(c.args, i+1, b.after, b.within, b.length, spareW, spareF)
	}
	flag := 0
	if met {
		flag = 1
	}
	c.args[2] = len(checks) + len(keys)
	c.args = append(slices.Insert(c.args, 3+len(checks), keys...), flag, bans)
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

// settleKeptCall corrects charges some of which are kept elsewhere during a ban by
// hand; see lua/settle_kept.lua.
func (r *Redis) settleKeptCall(corrections []correction) *call {
	c := r.settleCall(corrections)
	c.script = settleKeptScript
	var keys []any
	for i := range corrections {
		keys = append(keys, r.keptKey(&corrections[i].result.Check, &corrections[i].params))
	}
	c.args[2] = 2 * len(corrections)
	c.args = slices.Insert(c.args, 3+len(corrections), keys...)
	return c
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

package algorithms

import (
	"cmp"
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// A call is one command: a script's run, or a command of its own.
type call struct {
	script *script // nil if args are the whole command
	args   []any   // of EVALSHA: with room for the name of the command and of the script

	// What was last sent, and what became of it. They are written by whoever
	// sends the call, until its caller gets the answer.
	cmd redis.Cmder
	err error
}

// A banOp is what a call about bans does; see lua/bans.lua.
type banOp string

const (
	lookAtBan   banOp = "look"
	countDenial banOp = "deny"
	banByHand   banOp = "ban"
	liftBan     banOp = "lift"
)

// bansCall is about the bans of the checks. By hand, it needs their params, and how
// long the bans last in µs.
func (r *Redis) bansCall(op banOp, length int64, checks []Check, ps []params) *call {
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
		args = append(args, b.after, b.within, cmp.Or(length, b.length))
	}
	return &call{script: bansScript, args: args}
}

// takeBansCall decides checks some of which have a ban; see lua/take_bans.lua. met
// says that one of them has met a ban by hand or a foreign value: that takes all for
// checks with a ban.
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
	if charge {
		args = append(args, "1")
	} else {
		args = append(args, "0")
	}
	for i := range checks {
		code := ps[i].code
		if checks[i].Shadow {
			code = -code
		}
		args = ps[i].arguments(append(args, code))
	}
	return &call{script: takeScript, args: args}
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
	return &call{script: settleScript, args: args}
}

// keys are the call's keys.
func (c *call) keys() []any {
	if c.script == nil {
		return c.args[1:]
	}
	return c.args[3 : 3+c.args[2].(int)]
}

// key is the first of them.
func (c *call) key() string { return c.keys()[0].(string) }

// make makes what is sent: EVALSHA, or EVAL with the script's text, after the
// server did not know the script.
func (c *call) make(ctx context.Context, text bool) redis.Cmder {
	args := c.args
	switch {
	case c.script == nil:
		c.cmd = noRetry{redis.NewIntCmd(ctx, args...)}
		return c.cmd
	case c.cmd != nil: // others may still look at what was sent, and a caller who has left at the keys
		args = slices.Clone(args)
	}
	args[0], args[1] = "evalsha", c.script.sha
	if text {
		args[0], args[1] = "eval", c.script.text
	}
	if c.script == takeScript {
		c.cmd = textCmd{redis.NewStringCmd(ctx, args...)}
	} else {
		c.cmd = numbersCmd{redis.NewIntSliceCmd(ctx, args...)}
	}
	return c.cmd
}

// answer is what the call returned.
func (c *call) answer() response {
	if c.err != nil {
		return response{err: c.err}
	}
	switch cmd := c.cmd.(type) {
	case textCmd:
		numbers, err := parseReply(cmd.Val())
		return response{numbers, err}
	case numbersCmd:
		return response{numbers: cmd.Val()}
	}
	return response{}
}

// A response is what a script call returned.
type response struct {
	numbers []int64
	err     error
}

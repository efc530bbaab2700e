package algorithms

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// A call is one run of a script: its keys and arguments as EVALSHA takes them,
// without the command's and the script's name.
type call struct {
	script *script
	args   []any
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

package transport

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// A Call is one command: a script's run, or a command of its own.
type Call struct {
	Script *Script // nil: the command is Args, which has the Keys
	Keys   []any   // strings
	Args   []any   // behind the keys; calls may share them, so they are never written
	Own    []any   // of this call alone: one in place of each nil in Args
	Joins  bool    // may be run with others by Script's joint script

	// Instead returns what to send in place of the call after an error; nil if nothing.
	// It may be nil itself.
	Instead func(error) *Call

	members []*Call // of a call that is sent in place of these; see join.go

	// What was last sent, and what became of it. They are written by whoever
	// sends the call, until its caller gets the answer.
	cmd   redis.Cmder
	err   error
	lines string // what a joint script returned for this call; "" if it was sent by itself
}

// instead is what to send in place of a call that has failed; nil if nothing.
func (c *Call) instead(err error) *Call {
	if err == nil || c.Instead == nil {
		return nil
	}
	return c.Instead(err)
}

// Key is the first of the call's keys.
func (c *Call) Key() string { return c.Keys[0].(string) }

// make makes what is sent: EVALSHA, or EVAL with the script's text, after the
// server did not know the script.
func (c *Call) make(ctx context.Context, text bool) redis.Cmder {
	if c.Script == nil {
		c.cmd = noRetry{redis.NewIntCmd(ctx, c.Args...)}
		return c.cmd
	}
	args := c.arguments()
	args[0], args[1] = "evalsha", c.Script.sha
	if text {
		args[0], args[1] = "eval", c.Script.text
	}
	if c.Script.decode != nil || c.members != nil {
		c.cmd = textCmd{redis.NewStringCmd(ctx, args...)}
	} else {
		c.cmd = numbersCmd{redis.NewIntSliceCmd(ctx, args...)}
	}
	return c.cmd
}

// arguments returns those of EVALSHA, without the first two. For a call in place of
// others see Script.JoinedBy.
func (c *Call) arguments() []any {
	calls := c.members
	if calls == nil {
		calls = []*Call{c}
	}
	first := calls[0]
	keys := len(calls) * len(first.Keys)
	args := make([]any, 3, 3+keys+len(first.Args)+len(calls)*len(first.Own)+1)
	args[2] = keys
	for _, call := range calls {
		args = append(args, call.Keys...)
	}
	args = append(args, first.Args...)
	if c.members == nil {
		for own, i := c.Own, 3+keys; len(own) > 0; i++ {
			if args[i] == nil {
				args[i], own = own[0], own[1:]
			}
		}
		return args
	}
	for _, call := range calls {
		args = append(args, call.Own...)
	}
	return append(args, len(first.Keys))
}

// answer is what the call returned.
func (c *Call) answer() Response {
	if c.err != nil {
		return Response{Err: c.err}
	}
	if c.lines != "" {
		numbers, err := c.Script.decode(c.lines)
		return Response{numbers, err}
	}
	switch cmd := c.cmd.(type) {
	case textCmd:
		numbers, err := c.Script.decode(cmd.Val())
		return Response{numbers, err}
	case numbersCmd:
		return Response{Numbers: cmd.Val()}
	}
	return Response{}
}

// A Response is what a script call returned.
type Response struct {
	Numbers []int64
	Err     error
}

// Request is the command as it is first sent.
func (c *Call) Request() []any { return c.make(context.Background(), false).Args() }

package transport

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// A Call is one command: a script's run, or a command of its own.
type Call struct {
	Script *Script // nil if args are the whole command
	Args   []any   // of EVALSHA: with room for the name of the command and of the script
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

// Keys are the call's keys.
func (c *Call) Keys() []any {
	if c.Script == nil {
		return c.Args[1:]
	}
	return c.Args[3 : 3+c.Args[2].(int)]
}

// Key is the first of them.
func (c *Call) Key() string { return c.Keys()[0].(string) }

// make makes what is sent: EVALSHA, or EVAL with the script's text, after the
// server did not know the script.
func (c *Call) make(ctx context.Context, text bool) redis.Cmder {
	args := c.Args
	switch {
	case c.Script == nil:
		c.cmd = noRetry{redis.NewIntCmd(ctx, args...)}
		return c.cmd
	case c.cmd != nil: // others may still look at what was sent, and a caller who has left at the keys
		args = slices.Clone(args)
	}
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

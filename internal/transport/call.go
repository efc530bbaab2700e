package transport

import (
	"context"
	"crypto/sha1"
	"encoding/hex"

	"github.com/redis/go-redis/v9"
)

// A Script declares its keys and uses nothing that Redis since 6, or miniredis,
// does not have.
type Script struct {
	text, sha string
	decode    func(reply string) ([]int64, error) // nil: the reply is numbers already
	joint     *Script                             // runs several calls of this one; nil if there is none
}

// NewScript returns a script that answers with numbers or, where decode is not
// nil, with a string that decode turns into numbers.
func NewScript(text string, decode func(string) ([]int64, error)) *Script {
	sum := sha1.Sum([]byte(text))
	return &Script{text: text, sha: hex.EncodeToString(sum[:]), decode: decode}
}

// JoinedBy names the script that runs several calls of this one that differ only in
// their keys and in what is Own to each. It gets the keys of all, one call's after the
// other's; their arguments, with an empty text in place of what is a call's own; what is
// each call's own; and how many keys each call has.
//
// It answers with a string. For each call this has as many lines as the call has
// keys and one more, which together are the call's reply. If a call could not be
// run, and has written nothing, its first line is "!", the numbers of the keys that
// delayed the other calls, each behind a space, another "!", and the error. An
// error that begins with ALONE says that no call was run.
func (s *Script) JoinedBy(joint *Script) *Script {
	s.joint = joint
	return s
}

// Text is the Lua of the script.
func (s *Script) Text() string { return s.text }

// SHA is the name of the script in EVALSHA.
func (s *Script) SHA() string { return s.sha }

// A Call is one command: a script's run, or a command of its own.
type Call struct {
	Script *Script // nil: the command is Args, which has the Keys
	Keys   []any   // strings
	Args   []any   // behind the keys; calls may share them, so they are never written
	Own    []any   // of this call alone: one in place of each nil in Args
	Joins  bool    // may be run with others by Script's joint script

	members []*Call // of a call that is sent in place of these; see join.go

	// What was last sent, and what became of it. They are written by whoever
	// sends the call, until its caller gets the answer.
	cmd   redis.Cmder
	err   error
	lines string // what a joint script returned for this call; "" if it was sent by itself
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

// A command wrapped in noRetry is never sent twice by go-redis: one whose reply was
// lost may have been executed, and what came after it would be charged or
// forgotten again.
type noRetry struct{ redis.Cmder }

// NoRetry overrides the client's MaxRetries.
func (noRetry) NoRetry() bool { return true }

// Clone keeps NoRetry in copies.
func (n noRetry) Clone() redis.Cmder { return noRetry{n.Cmder.Clone()} }

// A numbersCmd is noRetry for a script that returns numbers, without an
// allocation.
type numbersCmd struct{ *redis.IntSliceCmd }

func (numbersCmd) NoRetry() bool        { return true }
func (c numbersCmd) Clone() redis.Cmder { return noRetry{c.IntSliceCmd.Clone()} }

// A textCmd is the same for a script that returns a string.
type textCmd struct{ *redis.StringCmd }

func (textCmd) NoRetry() bool        { return true }
func (c textCmd) Clone() redis.Cmder { return noRetry{c.StringCmd.Clone()} }

// go-redis before 9.19 ignores NoRetry: it sends a command that timed out up to
// four times, and Redis executes each. go.mod rules that out; if a replace
// directive goes back behind it, this line does not compile.
var _ = redis.Cmder.NoRetry

package redistest

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// A Recorder is a go-redis hook that notes the names of commands. It is safe for
// concurrent use.
type Recorder struct {
	// Name names a command; "" is not noted. nil means the command's own name, except
	// that of HELLO, with which each new connection begins.
	Name func(cmd redis.Cmder) string

	mu    sync.Mutex
	names []string
}

// DialHook implements [redis.Hook].
func (r *Recorder) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements [redis.Hook].
func (r *Recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		r.note(cmd)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (r *Recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		r.note(cmds...)
		return next(ctx, cmds)
	}
}

func (r *Recorder) note(cmds ...redis.Cmder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, cmd := range cmds {
		name := cmd.Name()
		if r.Name != nil {
			name = r.Name(cmd)
		} else if name == "hello" {
			name = ""
		}
		if name != "" {
			r.names = append(r.names, name)
		}
	}
}

// Take returns the names noted since the last call.
func (r *Recorder) Take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := r.names
	r.names = nil
	return names
}

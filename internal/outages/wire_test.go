package outages

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/internal/script"
)

// A wire sees what a client sends for the limiter, and what becomes of it.
type wire struct {
	mu      sync.Mutex
	sent    int             // script calls that were no probes
	probes  int             // script calls that were
	lost    int             // requests, no probes, whose connection was reset before the answer
	charges map[counter]int // calls without an answer that may have charged
	returns map[counter]int // calls without an answer that may have given back
	errors  map[string]int  // by text
	dials   int
}

// A counter is what counts a client for a rule.
type counter struct{ rule, client string }

func newWire(c redis.UniversalClient) *wire {
	w := &wire{charges: map[counter]int{}, returns: map[counter]int{}, errors: map[string]int{}}
	c.AddHook(w)
	return w
}

func (w *wire) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		w.mu.Lock()
		w.dials++
		w.mu.Unlock()
		return next(ctx, network, addr)
	}
}

func (w *wire) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		w.note(ctx, cmd, err)
		return err
	}
}

func (w *wire) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			w.note(ctx, cmd, cmd.Err())
		}
		return err
	}
}

func (w *wire) note(ctx context.Context, cmd redis.Cmder, err error) {
	if cmd.Name() != "evalsha" && cmd.Name() != "eval" || redis.HasErrorPrefix(err, "NOSCRIPT") {
		return // which was not executed, and is sent again
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	args := cmd.Args()
	keys, _ := args[2].(int)
	unknown := w.returns
	requests := 1
	if args[1] == script.Joint.SHA() || args[1] == script.Joint.Text() {
		requests = keys / args[len(args)-1].(int)
	}
	_, takes := args[3+keys].(string)
	if takes { // whether to charge; settle.lua has no such argument
		unknown = w.charges
	}
	probe := false
	for _, key := range args[3 : 3+keys] {
		c := counterOf(key.(string))
		probe = probe || c.rule == "~probe"
		if maybeExecuted(err) || ctx.Err() != nil { // whoever asked has left
			unknown[c]++
		}
	}
	if probe {
		w.probes++
	} else {
		w.sent++
		if takes && errors.Is(err, syscall.ECONNRESET) {
			w.lost += requests
		}
	}
	if err != nil {
		text := err.Error()
		if op, ok := errors.AsType[*net.OpError](err); ok {
			text = op.Op + ": " + op.Err.Error() // without addresses
		}
		w.errors[text]++
	}
}

// failedWith is how many script calls failed with an error that contains text.
func (w *wire) failedWith(text string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for err, times := range w.errors {
		if strings.Contains(err, text) {
			n += times
		}
	}
	return n
}

func (w *wire) dialled() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dials
}

// maybeExecuted reports whether nobody knows if a command was executed: Redis
// did not answer, and the command may have reached it.
func maybeExecuted(err error) bool {
	if err == nil || errors.Is(err, redis.ErrPoolTimeout) {
		return false
	}
	if _, answered := errors.AsType[redis.Error](err); answered {
		return false
	}
	op, ok := errors.AsType[*net.OpError](err)
	return !ok || op.Op != "dial"
}

// counterOf reads "namespace:{client}:rule:algorithm:period".
func counterOf(key string) counter {
	_, rest, _ := strings.Cut(key, "{")
	client, rest, _ := strings.Cut(rest, "}:")
	rule, _, _ := strings.Cut(rest, ":")
	return counter{rule, client}
}

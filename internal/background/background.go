// Package background runs work that no request waits for.
package background

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"

	"github.com/seed75154129/ratelimit/internal/sampler"
)

// Max bounds the functions that a Group runs at a time.
const Max = 256

// A Group runs functions that End waits for. Each must return in bounded time.
type Group struct {
	logger   *slog.Logger
	panicked sampler.Sampler // to log

	mu      sync.Mutex // over the fields below, and over adding to all
	running int
	ended   bool

	all sync.WaitGroup
}

// Start sets what a Group needs before its first function.
func (g *Group) Start(logger *slog.Logger) {
	g.logger, g.panicked.Every = logger, sampler.LogInterval
}

// Begin runs f in a goroutine, unless Max functions run or End was called. It
// reports whether f runs. A panic of f ends f only.
func (g *Group) Begin(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended || g.running >= Max {
		return false
	}
	g.running++
	g.all.Go(func() {
		defer func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.running--
		}()
		_ = g.Safely(func() error {
			f()
			return nil
		})
	})
	return true
}

// Safely calls f and returns its error. A panic is logged and becomes an error: in a
// goroutine that no request waits for, a panic of a user's own limiter would end the
// process. Whether f had an effect is unknown then.
func (g *Group) Safely(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("failmode: panic in the background: %v", v)
			stack := string(debug.Stack())
			g.panicked.Do(func() { g.logger.Error("ratelimit: panic in the background", "panic", v, "stack", stack) })
		}
	}()
	return f()
}

// End waits until all functions have returned. None begins afterwards.
func (g *Group) End() {
	g.mu.Lock()
	g.ended = true
	g.mu.Unlock()
	g.all.Wait()
}

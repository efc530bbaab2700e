package background

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"

	"github.com/seed75154129/ratelimit/internal/sampler"
)

// maxBackground bounds the functions that run in the background at a time.
const maxBackground = 256

// A background runs functions that only end waits for. Each must return in
// bounded time.
type background struct {
	logger   *slog.Logger
	panicked sampler.Sampler // to log

	mu      sync.Mutex // over the fields below, and over adding to all
	running int
	ended   bool

	all sync.WaitGroup
}

// start sets what a background needs before its first function.
func (w *background) start(logger *slog.Logger) {
	w.logger, w.panicked.Every = logger, logInterval
}

// begin runs f in a goroutine, unless there are too many or end was called. It
// reports whether it did. A panic of f ends f only.
func (w *background) begin(f func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || w.running >= maxBackground {
		return false
	}
	w.running++
	w.all.Go(func() {
		defer func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.running--
		}()
		_ = w.safely(func() error {
			f()
			return nil
		})
	})
	return true
}

// safely calls f and returns its error. A panic becomes an error, of which nobody
// knows what it means for the store, and is logged: in a goroutine that no request
// waits for, a panic of a limiter of the user's own would end the process.
func (w *background) safely(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("failmode: panic in the background: %v", v)
			stack := string(debug.Stack())
			w.panicked.Do(func() { w.logger.Error("ratelimit: panic in the background", "panic", v, "stack", stack) })
		}
	}()
	return f()
}

// end waits until all functions have returned. None begins afterwards.
func (w *background) end() {
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	w.all.Wait()
}

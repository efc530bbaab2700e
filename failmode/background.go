package failmode

import "sync"

// maxBackground bounds the functions that run in the background at a time.
const maxBackground = 256

// A background runs functions that only end waits for. Each must return in
// bounded time.
type background struct {
	mu      sync.Mutex // over the fields below, and over adding to all
	running int
	ended   bool

	all sync.WaitGroup
}

// begin runs f in a goroutine, unless there are too many or end was called. It
// reports whether it did.
func (w *background) begin(f func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || w.running >= maxBackground {
		return false
	}
	w.running++
	w.all.Go(func() {
		f()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.running--
	})
	return true
}

// end waits until all functions have returned. None begins afterwards.
func (w *background) end() {
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	w.all.Wait()
}

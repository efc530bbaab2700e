package failmode

import "sync"

// maxBackground bounds what runs in the background at a time.
const maxBackground = 256

// A background is work that nobody waits for but end: so much at a time, and
// each in bounded time.
type background struct {
	mu      sync.Mutex // over the fields below, and over adding to all
	running int
	ended   bool

	all sync.WaitGroup
}

// begin runs f in a goroutine, unless there are too many or all is to end.
func (w *background) begin(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || w.running >= maxBackground {
		return
	}
	w.running++
	w.all.Go(func() {
		f()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.running--
	})
}

// end waits until all is done. Nothing begins afterwards.
func (w *background) end() {
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	w.all.Wait()
}

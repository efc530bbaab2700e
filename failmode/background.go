package failmode

import "sync"

// mostBackground bounds what runs in the background at a time.
const mostBackground = 256

// A background is work that nobody waits for but end: so much at a time, and
// each in bounded time.
type background struct {
	mu      sync.Mutex // over beginning and ending
	running int
	ended   bool
	all     sync.WaitGroup
}

// begin runs f in a goroutine, unless there are too many or all is to end.
func (g *background) begin(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended || g.running >= mostBackground {
		return
	}
	g.running++
	g.all.Go(func() {
		f()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.running--
	})
}

// end waits until all is done, and reports whether it is the first to. Nothing
// begins afterwards.
func (g *background) end() (first bool) {
	g.mu.Lock()
	first = !g.ended
	g.ended = true
	g.mu.Unlock()
	g.all.Wait()
	return first
}

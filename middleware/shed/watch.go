package shed

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// watch returns a response and a request that show when the handler waits for its client,
// streams, or takes the connection over.
func (p *slot) watch(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *http.Request) {
	r = r.WithContext(context.WithValue(r.Context(), p.shedder, p))
	if r.Body != nil && r.Body != http.NoBody {
		p.body = body{r.Body, p}
		r.Body = &p.body
	}
	return p.writer.Wrap(w, p), r
}

// Begin says that the handler waits for its client from now on. It returns false if another
// goroutine has said so.
func (p *slot) Begin() bool {
	return p.blocked.CompareAndSwap(0, int64(p.shedder.now())-p.waited.Load())
}

// End says that the handler goes on. If somebody else needed its place, End waits until it
// has one again.
func (p *slot) End(begun bool) { p.goesOn(begun) }

// goesOn is End. It returns false if the handler should not go on.
func (p *slot) goesOn(begun bool) bool {
	if !begun {
		return true
	}
	if since := p.blocked.Swap(0); since != isParked {
		p.waited.Store(int64(p.shedder.now()) - since)
		return true
	}
	return p.comeBack()
}

// Status notes the status of the response.
func (p *slot) Status(status int) {
	if p.status = status; status == http.StatusSwitchingProtocols {
		p.leave(false)
	}
}

// Flushes says that the response is a stream.
func (p *slot) Flushes() { p.leave(true) }

type body struct {
	io.ReadCloser
	slot *slot
}

func (b *body) Read(p []byte) (int, error) {
	begun := b.slot.Begin()
	n, err := b.ReadCloser.Read(p)
	if !b.slot.goesOn(begun) {
		err = errNoPlace
	}
	return n, err
}

var errNoPlace = fmt.Errorf("shed: no place to go on in %v", mostBack)

package shed

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/seed75154129/ratelimit/internal/alike"
	"github.com/seed75154129/ratelimit/internal/replay"
)

// Wrap returns a response and a request that show when the handler waits for its client,
// streams, or takes the connection over.
func (p *slot) Wrap(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *http.Request) {
	if p == nil {
		return w, r
	}
	p.ctx = slotContext{r.Context(), p}
	r = r.WithContext(&p.ctx)
	p.body.slot = p
	switch b := r.Body.(type) {
	case nil:
	case *replay.Body: // others have it too
		b.Wrap(p.body.around)
	default:
		if b != http.NoBody {
			r.Body = p.body.around(b)
		}
	}
	p.writer = writer{w, p}
	return alike.Of(&p.writer), r
}

// Block says that the request waits from now on. It returns false if another goroutine
// has said so for it.
func (p *slot) Block() bool {
	return p != nil && p.blocked.CompareAndSwap(0, int64(p.shedder.now()))
}

// Unblock says that it goes on. If somebody else needed its place, Unblock waits until it
// has one again.
func (p *slot) Unblock(blocked bool) {
	if blocked && p.blocked.Swap(0) == isParked {
		p.comeBack()
	}
}

type body struct {
	io.ReadCloser
	slot *slot
}

func (b *body) around(inner io.ReadCloser) io.ReadCloser {
	b.ReadCloser = inner
	return b
}

func (b *body) Read(p []byte) (int, error) {
	defer b.slot.Unblock(b.slot.Block())
	return b.ReadCloser.Read(p)
}

type writer struct {
	http.ResponseWriter
	slot *slot
}

func (w *writer) WriteHeader(status int) {
	if w.slot.status == 0 && status >= 200 {
		w.slot.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *writer) Write(p []byte) (int, error) {
	defer w.slot.Unblock(w.slot.Block())
	return w.ResponseWriter.Write(p)
}

func (w *writer) WriteString(text string) (int, error) {
	defer w.slot.Unblock(w.slot.Block())
	return io.WriteString(w.ResponseWriter, text)
}

// Unwrap is for [http.ResponseController].
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// FlushError is what [http.ResponseController] calls. What is flushed is a stream.
func (w *writer) FlushError() error {
	if alike.Flushes(w.ResponseWriter) {
		w.slot.Leave(true)
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Flush implements [http.Flusher].
func (w *writer) Flush() { _ = w.FlushError() }

// CloseNotify tells when the client has left.
func (w *writer) CloseNotify() <-chan bool { return alike.CloseNotify(w.ResponseWriter) }

// WriteHeaderNow writes the status, behind gin.
func (w *writer) WriteHeaderNow() {
	if gin, ok := alike.Gin(w.ResponseWriter); ok {
		gin.WriteHeaderNow()
	}
}

// Hijack implements [http.Hijacker].
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.slot.Leave(false)
	}
	return conn, buffered, err
}

// ReadFrom implements [io.ReaderFrom].
func (w *writer) ReadFrom(src io.Reader) (int64, error) {
	under, ok := w.ResponseWriter.(io.ReaderFrom)
	if _, reads := alike.Innermost(w).(io.ReaderFrom); !ok || !reads {
		return io.Copy(struct{ io.Writer }{w}, src) // HTTP/2: only its writes wait for the client
	}
	defer w.slot.Unblock(w.slot.Block())
	return under.ReadFrom(src)
}

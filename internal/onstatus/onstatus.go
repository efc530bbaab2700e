// Package onstatus tells a program the status of a response before it is written.
package onstatus

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/seed75154129/ratelimit/internal/alike"
)

// writer calls begin once.
type writer struct {
	http.ResponseWriter
	begin func(status int)
	begun bool // begin was called
}

// Wrap returns a ResponseWriter that calls begin with the final status, before w gets
// it. For a connection that the handler takes over, the status is 101. If nothing is
// written, begin is not called.
//
// The writer is a Flusher, a Hijacker or an io.ReaderFrom if w is one.
func Wrap(w http.ResponseWriter, begin func(status int)) http.ResponseWriter {
	c := &writer{ResponseWriter: w, begin: begin}
	return alike.Of(c, flusher{c}, hijacker{c}, readerFrom{c})
}

func (w *writer) status(status int) {
	if !w.begun {
		w.begun = true
		w.begin(status)
	}
}

func (w *writer) WriteHeader(status int) {
	// Other informational statuses are not the last, and net/http panics on those below
	// 100 and above 999.
	if status == http.StatusSwitchingProtocols || 200 <= status && status <= 999 {
		w.status(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *writer) Write(p []byte) (int, error) {
	w.status(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

func (w *writer) WriteString(s string) (int, error) {
	w.status(http.StatusOK)
	return io.WriteString(w.ResponseWriter, s)
}

// Unwrap is for [http.ResponseController].
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// FlushError is what [http.ResponseController] calls. A flush writes the status.
func (w *writer) FlushError() error {
	if alike.Flushes(w.ResponseWriter) {
		w.status(http.StatusOK)
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// What a ResponseWriter may have besides, each on its own.
type (
	flusher    struct{ *writer }
	hijacker   struct{ *writer }
	readerFrom struct{ *writer }
)

func (f flusher) Flush() { _ = f.FlushError() }

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := h.ResponseWriter.(http.Hijacker).Hijack()
	if err == nil {
		h.status(http.StatusSwitchingProtocols)
	}
	return conn, buffered, err
}

// sniffed is how much net/http reads before it writes the status.
const sniffed = 512

// ReadFrom writes the beginning itself, because an empty src writes no status.
func (r readerFrom) ReadFrom(src io.Reader) (n int64, err error) {
	if !r.begun {
		n, err = io.Copy(writerOnly{r.writer}, io.LimitReader(src, sniffed))
		if err != nil || n < sniffed {
			return n, err
		}
	}
	rest, err := r.ResponseWriter.(io.ReaderFrom).ReadFrom(src)
	return n + rest, err
}

type writerOnly struct{ io.Writer }

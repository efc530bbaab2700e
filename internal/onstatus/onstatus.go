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
// The writer is a Flusher, a Hijacker or an [io.ReaderFrom] only if w is one.
func Wrap(w http.ResponseWriter, begin func(status int)) http.ResponseWriter {
	return alike.Of(&writer{ResponseWriter: w, begin: begin})
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

// Flush implements [http.Flusher].
func (w *writer) Flush() { _ = w.FlushError() }

// CloseNotify tells when the client has left.
func (w *writer) CloseNotify() <-chan bool { return alike.CloseNotify(w.ResponseWriter) }

// WriteHeaderNow writes the status, behind gin.
func (w *writer) WriteHeaderNow() {
	if gin, ok := alike.Gin(w.ResponseWriter); ok {
		w.status(http.StatusOK)
		gin.WriteHeaderNow()
	}
}

// Hijack implements [http.Hijacker].
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.status(http.StatusSwitchingProtocols)
	}
	return conn, buffered, err
}

// sniffed is how much net/http reads before it writes the status.
const sniffed = 512

// ReadFrom writes the beginning itself, because an empty src writes no status.
func (w *writer) ReadFrom(src io.Reader) (n int64, err error) {
	if !w.begun {
		n, err = io.Copy(writerOnly{w}, io.LimitReader(src, sniffed))
		if err != nil || n < sniffed {
			return n, err
		}
	}
	rest, err := io.Copy(w.ResponseWriter, src)
	return n + rest, err
}

type writerOnly struct{ io.Writer }

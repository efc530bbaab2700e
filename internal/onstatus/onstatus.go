// Package onstatus tells a program what a handler does with its response: its status before
// it is written, when it writes, and when it flushes.
package onstatus

import (
	"bufio"
	"io"
	"io/fs"
	"net"
	"net/http"
	"syscall"
)

// A Watcher is told what a handler does with its response.
type Watcher interface {
	// Status is called once, with the final status, before that is written. For a connection
	// that the handler takes over, the status is 101. It is not called if nothing is written.
	Status(status int)

	// Flushes is called before a flush.
	Flushes()

	// Begin and End are called around each write. End gets what Begin returned.
	Begin() bool
	End(bool)
}

// A Writer is a ResponseWriter that tells a Watcher.
type Writer struct {
	http.ResponseWriter
	watcher Watcher
	begun   bool // the Watcher knows the status
}

// Wrap makes w write to a ResponseWriter and tell a Watcher. It returns w as a Flusher, a Hijacker or an
// [io.ReaderFrom] only if the ResponseWriter is one.
func (w *Writer) Wrap(under http.ResponseWriter, watcher Watcher) http.ResponseWriter {
	w.ResponseWriter, w.watcher = under, watcher
	return alike(w)
}

// Wrap returns a Writer around w whose Watcher is a function that is called with the status.
func Wrap(w http.ResponseWriter, begin func(status int)) http.ResponseWriter {
	return new(Writer).Wrap(w, statusOnly(begin))
}

type statusOnly func(status int)

func (f statusOnly) Status(status int) { f(status) }
func (statusOnly) Flushes()            {}
func (statusOnly) Begin() bool         { return false }
func (statusOnly) End(bool)            {}

func (w *Writer) status(status int) {
	if !w.begun {
		w.begun = true
		w.watcher.Status(status)
	}
}

// WriteHeader implements [http.ResponseWriter].
func (w *Writer) WriteHeader(status int) {
	// Other informational statuses are not the last, and net/http panics on those below
	// 100 and above 999.
	if status == http.StatusSwitchingProtocols || 200 <= status && status <= 999 {
		w.status(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *Writer) Write(p []byte) (int, error) {
	w.status(http.StatusOK)
	defer w.watcher.End(w.watcher.Begin())
	return w.ResponseWriter.Write(p)
}

// WriteString implements [io.StringWriter].
func (w *Writer) WriteString(s string) (int, error) {
	w.status(http.StatusOK)
	defer w.watcher.End(w.watcher.Begin())
	return io.WriteString(w.ResponseWriter, s)
}

// Unwrap is for [http.ResponseController].
func (w *Writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// FlushError is what [http.ResponseController] calls. A flush writes the status.
func (w *Writer) FlushError() error {
	if flushes(w.ResponseWriter) {
		w.status(http.StatusOK)
		w.watcher.Flushes()
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Flush implements [http.Flusher].
func (w *Writer) Flush() { _ = w.FlushError() }

// CloseNotify tells when the client has left; nil, which says nothing, if the writer
// underneath does not tell.
func (w *Writer) CloseNotify() <-chan bool {
	if notifier, ok := find[interface{ CloseNotify() <-chan bool }](w.ResponseWriter); ok {
		return notifier.CloseNotify()
	}
	return nil
}

// WriteHeaderNow writes the status, behind gin, whose WriteHeader only remembers it.
// WebSocket libraries call it before they take over the connection.
func (w *Writer) WriteHeaderNow() {
	if _, gin := find[interface {
		WriteHeaderNow()
		Written() bool // which a Writer has not
	}](w.ResponseWriter); !gin {
		return
	}
	w.status(http.StatusOK)
	now, _ := find[interface{ WriteHeaderNow() }](w.ResponseWriter) // a Writer between them is told, too
	now.WriteHeaderNow()
}

// Hijack implements [http.Hijacker].
func (w *Writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.status(http.StatusSwitchingProtocols)
	}
	return conn, buffered, err
}

// sniffed is how much net/http reads before it writes the status.
const sniffed = 512

// ReadFrom implements [io.ReaderFrom]. It writes the beginning itself, because an empty src
// writes no status. The rest of a file is one write, because the connection can copy it by
// itself. Of another source it is many: a Read may be work.
func (w *Writer) ReadFrom(src io.Reader) (n int64, err error) {
	if !w.begun {
		n, err = io.Copy(struct{ io.Writer }{w}, io.LimitReader(src, sniffed))
		if err != nil || n < sniffed {
			return n, err
		}
	}
	var to io.Writer = struct{ io.Writer }{w}
	if isFile(src) {
		defer w.watcher.End(w.watcher.Begin())
		to = w.ResponseWriter
	}
	rest, err := io.Copy(to, src)
	return n + rest, err
}

// isFile reports whether a source is a regular file, or a part of one.
func isFile(src io.Reader) bool {
	if part, ok := src.(*io.LimitedReader); ok {
		src = part.R
	}
	file, ok := src.(interface { // an *os.File, also inside its WriteTo
		fs.File
		syscall.Conn
	})
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode().IsRegular() // a pipe is not
}

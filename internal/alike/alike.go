// Package alike is for writers around a ResponseWriter, which must offer what it offers.
package alike

import (
	"io"
	"net/http"
)

// A Writer wraps a ResponseWriter.
type Writer interface {
	http.ResponseWriter
	io.StringWriter
	FlushError() error           // what [http.ResponseController] calls
	Unwrap() http.ResponseWriter // for it too
	CloseNotify() <-chan bool    // for gin, which calls it on every writer; see CloseNotify
	GinWriter                    // does nothing without gin; see Gin
}

// CloseNotify returns what the writer underneath says of its client; nil, which says
// nothing, if it says nothing.
func CloseNotify(w http.ResponseWriter) <-chan bool {
	if notifier, ok := find[interface{ CloseNotify() <-chan bool }](w); ok {
		return notifier.CloseNotify()
	}
	return nil
}

// A GinWriter is a ResponseWriter of gin, whose WriteHeader only remembers the status.
type GinWriter interface{ WriteHeaderNow() }

// Gin returns gin's writer underneath, if there is one. WebSocket libraries call its
// WriteHeaderNow before they take over the connection.
func Gin(w http.ResponseWriter) (GinWriter, bool) {
	if !has[interface {
		GinWriter
		Written() bool // which a Writer has not
	}](w) {
		return nil, false
	}
	return find[GinWriter](w) // a Writer between them is told, too
}

// A Full is a Writer with all that a ResponseWriter may have besides.
type Full interface {
	Writer
	http.Flusher
	http.Hijacker
	io.ReaderFrom
}

// Of returns w with those of the interfaces that the writer underneath has: a handler
// that finds one must find that it works. It is also a Hijacker if a writer that is wrapped
// further inside is one: http.ResponseController finds that one, and would pass w over.
// A writer that cannot flush and hijack is no io.ReaderFrom: copies then call Write.
// http.Pusher is not among them, since browsers have removed server push.
func Of(w Full) http.ResponseWriter {
	_, flushes := w.Unwrap().(http.Flusher)
	_, reads := w.Unwrap().(io.ReaderFrom)
	hijacks := has[http.Hijacker](w.Unwrap())
	switch {
	case flushes && hijacks && reads: // HTTP/1
		return w
	case flushes && hijacks:
		return struct {
			Writer
			http.Flusher
			http.Hijacker
		}{w, w, w}
	case flushes:
		return struct {
			Writer
			http.Flusher
		}{w, w}
	case hijacks:
		return struct {
			Writer
			http.Hijacker
		}{w, w}
	}
	return struct{ Writer }{w}
}

// Innermost returns the writer that all others wrap.
func Innermost(w http.ResponseWriter) http.ResponseWriter {
	for {
		inner, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = inner.Unwrap()
	}
}

// Flushes reports whether a writer, or one that it wraps, can flush.
func Flushes(w http.ResponseWriter) bool {
	return has[interface{ FlushError() error }](w) || has[http.Flusher](w)
}

// has reports whether a writer, or one that it wraps, is a T.
func has[T any](w http.ResponseWriter) bool {
	_, ok := find[T](w)
	return ok
}

// find returns the outermost of a writer, and those that it wraps, that is a T.
func find[T any](w http.ResponseWriter) (found T, ok bool) {
	for {
		if found, ok = w.(T); ok {
			return found, true
		}
		inner, wraps := w.(interface{ Unwrap() http.ResponseWriter })
		if !wraps {
			return found, false
		}
		w = inner.Unwrap()
	}
}

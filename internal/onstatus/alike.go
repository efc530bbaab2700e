package onstatus

import (
	"io"
	"net/http"
)

// A wrapper is what every writer is made of.
type wrapper interface {
	http.ResponseWriter
	io.StringWriter
	FlushError() error           // what [http.ResponseController] calls
	Unwrap() http.ResponseWriter // for it too
	CloseNotify() <-chan bool    // for gin, which calls it on every writer
	WriteHeaderNow()             // for gin; does nothing without it
}

// alike returns w with those of the interfaces that the writer underneath has: a handler
// that finds one must find that it works. It is also a Hijacker if a writer that is wrapped
// further inside is one: http.ResponseController finds that one, and would pass w over.
// A writer that cannot flush and hijack is no io.ReaderFrom: copies then call Write.
// http.Pusher is not among them, since browsers have removed server push.
func alike(w *Writer) http.ResponseWriter {
	_, flushes := w.ResponseWriter.(http.Flusher)
	_, reads := w.ResponseWriter.(io.ReaderFrom)
	_, hijacks := find[http.Hijacker](w.ResponseWriter)
	switch {
	case flushes && hijacks && reads: // HTTP/1
		return w
	case flushes && hijacks:
		return struct {
			wrapper
			http.Flusher
			http.Hijacker
		}{w, w, w}
	case flushes:
		return struct {
			wrapper
			http.Flusher
		}{w, w}
	case hijacks:
		return struct {
			wrapper
			http.Hijacker
		}{w, w}
	}
	return struct{ wrapper }{w}
}

// flushes reports whether a writer, or one that it wraps, can flush.
func flushes(w http.ResponseWriter) bool {
	_, tells := find[interface{ FlushError() error }](w)
	_, flushes := find[http.Flusher](w)
	return tells || flushes
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

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
}

// Of returns w with those of the interfaces that the writer underneath has: a handler
// that finds one must find that it works. http.Pusher is not among them, since browsers
// have removed server push.
func Of(w Writer, f http.Flusher, h http.Hijacker, r io.ReaderFrom) http.ResponseWriter {
	_, flushes := w.Unwrap().(http.Flusher)
	_, hijacks := w.Unwrap().(http.Hijacker)
	_, readsFrom := w.Unwrap().(io.ReaderFrom)
	n := 0
	for i, has := range [...]bool{flushes, hijacks, readsFrom} {
		if has {
			n |= 1 << i
		}
	}
	switch n {
	case 1:
		return struct {
			Writer
			http.Flusher
		}{w, f}
	case 2:
		return struct {
			Writer
			http.Hijacker
		}{w, h}
	case 3:
		return struct {
			Writer
			http.Flusher
			http.Hijacker
		}{w, f, h}
	case 4:
		return struct {
			Writer
			io.ReaderFrom
		}{w, r}
	case 5:
		return struct {
			Writer
			http.Flusher
			io.ReaderFrom
		}{w, f, r}
	case 6:
		return struct {
			Writer
			http.Hijacker
			io.ReaderFrom
		}{w, h, r}
	case 7:
		return struct {
			Writer
			http.Flusher
			http.Hijacker
			io.ReaderFrom
		}{w, f, h, r}
	}
	return w
}

// Flushes reports whether a writer, or one that it wraps, can flush.
func Flushes(w http.ResponseWriter) bool {
	for {
		switch inner := w.(type) {
		case interface{ FlushError() error }, http.Flusher:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = inner.Unwrap()
		default:
			return false
		}
	}
}

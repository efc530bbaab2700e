package onstatus

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// What a ResponseWriter may have beside, each on its own.
type (
	flushing    struct{ c *charging }
	hijacking   struct{ c *charging }
	readingFrom struct{ c *charging }
)

func (f flushing) Flush() { _ = f.c.FlushError() }

// Hijack keeps the charge: what the handler answers is not known.
func (h hijacking) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := h.c.ResponseWriter.(http.Hijacker).Hijack()
	if err == nil {
		h.c.begun = true
		h.c.crossing.settled()
	}
	return conn, buffered, err
}

// sniffed is how much net/http reads before it writes the status.
const sniffed = 512

// ReadFrom writes the beginning itself: there is no status if src has nothing.
func (r readingFrom) ReadFrom(src io.Reader) (n int64, err error) {
	if !r.c.begun {
		n, err = io.Copy(writerOnly{r.c}, io.LimitReader(src, sniffed))
		if err != nil || n < sniffed {
			return n, err
		}
	}
	rest, err := r.c.ResponseWriter.(io.ReaderFrom).ReadFrom(src)
	return n + rest, err
}

type writerOnly struct{ io.Writer }

// alike returns the writer with those interfaces that the writer underneath has: a
// handler that finds one must find that it works. http.Pusher is not among them, since
// browsers have removed server push.
func (c *charging) alike() http.ResponseWriter {
	f, h, r := flushing{c}, hijacking{c}, readingFrom{c}
	_, flushes := c.ResponseWriter.(http.Flusher)
	_, hijacks := c.ResponseWriter.(http.Hijacker)
	_, readsFrom := c.ResponseWriter.(io.ReaderFrom)
	n := 0
	for i, has := range [...]bool{flushes, hijacks, readsFrom} {
		if has {
			n |= 1 << i
		}
	}
	switch n {
	case 1:
		return struct {
			*charging
			http.Flusher
		}{c, f}
	case 2:
		return struct {
			*charging
			http.Hijacker
		}{c, h}
	case 3:
		return struct {
			*charging
			http.Flusher
			http.Hijacker
		}{c, f, h}
	case 4:
		return struct {
			*charging
			io.ReaderFrom
		}{c, r}
	case 5:
		return struct {
			*charging
			http.Flusher
			io.ReaderFrom
		}{c, f, r}
	case 6:
		return struct {
			*charging
			http.Hijacker
			io.ReaderFrom
		}{c, h, r}
	case 7:
		return struct {
			*charging
			http.Flusher
			http.Hijacker
			io.ReaderFrom
		}{c, f, h, r}
	}
	return c
}

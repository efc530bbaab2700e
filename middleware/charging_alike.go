package middleware

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/seed75154129/ratelimit/internal/alike"
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

// alike returns the writer with those interfaces that the writer underneath has.
func (c *charging) alike() http.ResponseWriter {
	return alike.Of(c, flushing{c}, hijacking{c}, readingFrom{c})
}

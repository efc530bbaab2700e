// Package replay lets several readers look at the beginning of a request's body
// before the handler reads it. It is for packages keyfunc and middleware.
package replay

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync"
)

// A Body is a request's body whose beginning can be looked at with Peek. Read
// returns all of the body, as if nobody had looked. Peek may be called at any time
// and by several goroutines at once; Read and Close are as concurrent as those of
// the body underneath.
type Body struct {
	rest     io.ReadCloser // what follows head
	expected int64         // how long the body is to be; negative if unknown

	mu     sync.Mutex
	head   []byte // all that Peek has read; appended to, never changed
	err    error  // that ended head, io.EOF included
	unread int    // where in head the next Read begins
	past   bool   // Read has gone on to rest, or Close was called: head is final
}

// wrapping is held while any request's body is looked at and replaced, so that
// goroutines that share a request agree on its Body.
var wrapping sync.Mutex

// Has reports whether r has a body.
func Has(r *http.Request) bool {
	wrapping.Lock()
	defer wrapping.Unlock()
	return r.Body != nil && r.Body != http.NoBody
}

// Of returns the Body of r, nil if r has no body. The first call replaces r.Body;
// all others leave r alone.
func Of(r *http.Request) *Body {
	wrapping.Lock()
	defer wrapping.Unlock()
	switch body := r.Body.(type) {
	case nil:
		return nil
	case *Body:
		return body
	default:
		if body == http.NoBody {
			return nil
		}
		b := &Body{rest: body, expected: r.ContentLength}
		r.Body = b
		return b
	}
}

// What Peek allocates before anything has arrived. A client may say that it will send
// much, and not do so.
const leastBuffer, mostBuffer = 512, 9 << 10

// Peek returns the whole body, which the caller must not change. The error says
// why not, if the body has more than most bytes, cannot be read, or was read by
// somebody else before. Peek waits for the body, and keeps most bytes of it and one.
func (b *Body) Peek(most int64) ([]byte, error) {
	end := int(min(most, math.MaxInt-1)) + 1
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.head) < end && b.err == nil {
		if b.past {
			return nil, errors.New("it has been read already")
		}
		b.fill(end)
	}
	switch {
	case len(b.head) >= end:
		return nil, fmt.Errorf("more than %d bytes", most)
	case !errors.Is(b.err, io.EOF):
		return nil, b.err
	}
	return b.head, nil
}

// fill reads until head has end bytes or the body ends.
func (b *Body) fill(end int) {
	if b.head == nil {
		b.head = make([]byte, 0, min(int64(end), max(leastBuffer, min(b.expected+1, mostBuffer))))
	}
	for len(b.head) < end && b.err == nil {
		if len(b.head) == cap(b.head) {
			b.head = append(b.head, 0)[:len(b.head)]
		}
		n, err := b.rest.Read(b.head[len(b.head):min(cap(b.head), end)])
		b.head, b.err = b.head[:len(b.head)+n], err
	}
}

// Read returns what Peek has read, then the rest. It holds no lock while it waits
// for the rest, so that Close can end it where the body underneath allows that.
func (b *Body) Read(p []byte) (int, error) {
	if n, ok, err := b.replay(p); ok {
		return n, err
	}
	return b.rest.Read(p)
}

// replay reads from head; ok is false if it is the turn of rest.
func (b *Body) replay(p []byte) (n int, ok bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case len(p) == 0:
	case b.unread < len(b.head):
		n = copy(p, b.head[b.unread:])
		b.unread += n
	case b.err != nil && !b.past:
		err = b.err
	default:
		b.past = true
		return 0, false, nil
	}
	return n, true, err
}

// Close closes the body. What Peek has read stays known to Peek, not to Read.
func (b *Body) Close() error {
	err := b.rest.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unread, b.past = len(b.head), true
	return err
}

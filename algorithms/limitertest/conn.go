package limitertest

import (
	"net"
	"sync"
	"time"
)

// A conn is a client's end of a [net.Pipe] whose writes do not wait for the
// server to read, as on a network. On the bare pipe a long pipeline of commands
// stands still: the server waits until its first reply is read, the client
// until its last command is.
type conn struct {
	net.Conn

	mu      sync.Mutex
	pending []byte        // written, and not yet passed on
	err     error         // why nothing is passed on any more
	written chan struct{} // holds a token when there is something pending
	closed  chan struct{}
	close   func()
}

func newConn(pipe net.Conn) *conn {
	c := &conn{Conn: pipe, written: make(chan struct{}, 1), closed: make(chan struct{})}
	c.close = sync.OnceFunc(func() { close(c.closed) })
	go c.passOn() // until Close
	return c
}

func (c *conn) passOn() {
	for {
		select {
		case <-c.closed:
			return
		case <-c.written:
		}
		c.mu.Lock()
		next := c.pending
		c.pending = nil
		c.mu.Unlock()
		if _, err := c.Conn.Write(next); err != nil {
			c.mu.Lock()
			c.err = err
			c.mu.Unlock()
			return
		}
	}
}

func (c *conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	c.pending = append(c.pending, b...)
	select {
	case c.written <- struct{}{}:
	default:
	}
	return len(b), nil
}

// Close also ends passOn, which may be in Write.
func (c *conn) Close() error {
	c.close()
	return c.Conn.Close()
}

// SetDeadline is for reads only, because writes do not wait.
func (c *conn) SetDeadline(t time.Time) error { return c.Conn.SetReadDeadline(t) }

// SetWriteDeadline does nothing, because writes do not wait.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

package algorithms

import (
	"bytes"
	"context"
	"net"
	"os"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/internal/redistest"
)

// A fate is what becomes of a command on a network that loses some.
type fate int

const (
	delivered  fate = iota
	neverSent       // the server does not see it
	unanswered      // the server has executed it, but its reply is lost
	abandoned       // nobody waits whether the server executes it
)

// lossyClient connects a client through a network that decides the fate of each
// command that changes something or looks. In all but one fate it sees a
// timeout, after which go-redis itself would send a command again.
func lossyClient(t *testing.T, srv *redistest.Server, decide func(command string) fate) *redis.Client {
	opts := srv.Options()
	opts.MaxRetries, opts.ReadTimeout = 3, roomy
	opts.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &lossyConn{Conn: conn, decide: decide}, err
	}
	client := redis.NewClient(opts)
	t.Cleanup(func() { client.Close() })
	return client
}

type lossyConn struct {
	net.Conn
	decide func(command string) fate
	fate   fate // of the command under way
}

func (c *lossyConn) Write(p []byte) (int, error) {
	// "*3\r\n$7\r\nevalsha\r\n…": go-redis writes a command at once.
	if parts := bytes.SplitN(p, []byte("\r\n"), 4); len(parts) == 4 && string(parts[2]) != "hello" {
		if c.fate = c.decide(string(parts[2])); c.fate == neverSent {
			return len(p), nil
		}
	}
	return c.Conn.Write(p)
}

func (c *lossyConn) Read(p []byte) (int, error) {
	switch c.fate {
	case delivered:
		return c.Conn.Read(p)
	case unanswered:
		if _, err := c.Conn.Read(p); err != nil {
			return 0, err
		}
		c.fate = abandoned // go-redis may read again
	}
	return 0, os.ErrDeadlineExceeded
}

// A DEL whose reply was lost, sent again, would forget what was admitted since.
func TestResetIsNeverSentTwice(t *testing.T) {
	srv := redistest.Start(t)
	for _, sharded := range []bool{false, true} {
		var dels atomic.Int64
		client := lossyClient(t, srv, func(command string) fate {
			if command == "del" && dels.Add(1) == 1 {
				return unanswered
			}
			return delivered
		})
		r := &Redis{Client: client, Namespace: "n", Sharded: sharded, Budget: roomy}
		err := r.Reset(t.Context(), Check{Rule: "r", Key: "k", Limit: PerHour(3)})
		if n := dels.Load(); err == nil || n != 1 {
			t.Errorf("sharded %v: sent %d times, %v", sharded, n, err)
		}
	}
}

package monitor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/internal/wait"
)

const (
	// noticedLate bounds the delay with which a timeout may be noticed. If it is
	// longer, this process is too busy to blame the server.
	noticedLate = 2 * time.Millisecond
	// rereadTime is how long to read again for an answer that may have come in time.
	rereadTime = time.Millisecond
	// maxProbes bounds how often a busy process sends the probe.
	maxProbes = 10
	// dialTimeout is how long a server may take to accept a connection. A busy
	// process needs much of it, because it notices each step late.
	dialTimeout = time.Second
	dialPause   = 10 * time.Millisecond // before another try
)

// A witness finds out whether a shard answers. Decisions that timed out do not prove
// that it does not: a client with many connections can make this process so slow that
// it reads good answers too late. A witness has a connection that was opened
// beforehand and that nothing else uses. It sends a probe, and blames the shard
// only for a timeout that it notices in time.
type witness struct {
	dial    func(context.Context) (net.Conn, error)
	request func() ([]byte, error)
	timeout time.Duration // for an answer

	checking atomic.Bool

	mu      sync.Mutex    // over the fields below
	conn    net.Conn      // nil before the first, and after a failure
	answers *bufio.Reader // of conn
	owed    int           // answers that have not come yet
	ended   bool
}

// prepare opens the connection unless it is open.
func (w *witness) prepare(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn == nil && !w.ended {
		_ = w.redial(ctx) // there is time to try again
	}
}

// renew opens the connection anew: the old one may have ended with an outage.
func (w *witness) renew(ctx context.Context) {
	w.mu.Lock()
	w.drop()
	w.mu.Unlock()
	w.prepare(ctx)
}

func (w *witness) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.drop()
}

// drop closes the connection. The caller holds mu.
func (w *witness) drop() {
	if w.conn != nil {
		_ = w.conn.Close()
		w.conn, w.answers, w.owed = nil, nil, 0
	}
}

// check returns why the shard does not answer, or nil if it does or if this process
// is too busy to tell. The error is [errors.ErrUnsupported] if the store allows no
// connection. One call is under way at a time.
func (w *witness) check(ctx context.Context) error {
	request, err := w.request()
	if err != nil {
		return errors.ErrUnsupported
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.ended {
		fresh := w.conn == nil
		if fresh {
			if err := w.redial(ctx); err != nil || w.conn == nil {
				return err
			}
		}
		err := w.probe(request)
		if failureOf(err) == noFailure {
			return err
		}
		w.drop()
		if fresh || IsTimeout(err) {
			return err
		}
		// The server may have closed a connection that was idle, and a master may
		// have become a replica. Try a new connection, as decisions would get it.
	}
	return nil
}

// checkAnew is check on a new connection.
func (w *witness) checkAnew(ctx context.Context) error {
	w.mu.Lock()
	w.drop()
	w.mu.Unlock()
	return w.check(ctx)
}

// redial opens the connection where there is none. It returns nil without one if
// this process is too busy to say why. The caller holds mu.
func (w *witness) redial(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	begun := time.Now()
	for {
		conn, err := w.dial(ctx)
		switch {
		case err == nil:
			w.conn, w.answers = conn, bufio.NewReader(conn)
			return nil
		case IsTimeout(err) && wait.For(ctx, dialPause) == nil: // the client's options allow less
			continue
		case IsTimeout(err) && time.Since(begun) > dialTimeout+noticedLate:
			return nil
		}
		return err
	}
}

// A reply is an error in the server's answer.
type reply string

func (r reply) Error() string { return string(r) }

// RedisError marks what Redis said, for the classes of errors.
func (reply) RedisError() {}

// probe sends the request until it is answered, or until a timeout is noticed in
// time. It returns nil if this process is too busy to tell. Then it keeps the
// connection, because a busy process would take too long to open another; the
// answers that are owed there come before the next one.
func (w *witness) probe(request []byte) error {
	for range maxProbes {
		deadline := time.Now().Add(w.timeout)
		_ = w.conn.SetDeadline(deadline)
		if _, err := w.conn.Write(request); err != nil {
			return err
		}
		w.owed++
		err := w.read()
		if err == nil || !IsTimeout(err) {
			return err
		}
		late := time.Since(deadline)
		// In a busy process timers fire before the network is read, so the answer
		// may have arrived.
		deadline = time.Now().Add(rereadTime)
		_ = w.conn.SetReadDeadline(deadline)
		if again := w.read(); again == nil || !IsTimeout(again) {
			return again
		}
		if max(late, time.Since(deadline)) <= noticedLate {
			return err
		}
	}
	return nil
}

// read reads all answers that are owed, and returns the last.
func (w *witness) read() (err error) {
	for ; w.owed > 0; w.owed-- {
		if _, err = w.answers.Peek(1); err != nil {
			return err // the answer may still come
		}
		if err = readAnswer(w.answers); err != nil && IsTimeout(err) {
			w.drop() // the rest of this answer would be read as the next
			return nil
		}
	}
	return err
}

// readAnswer reads a script's answer: a string, a list of numbers, or an error.
func readAnswer(r *bufio.Reader) error {
	line, err := r.ReadString('\n')
	if err != nil {
		return err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if text, ok := strings.CutPrefix(line, "-"); ok {
		return reply(text)
	}
	if length, ok := strings.CutPrefix(line, "$"); ok {
		n, err := strconv.ParseUint(length, 10, 16)
		if err != nil {
			return fmt.Errorf("unexpected answer %.40q", line)
		}
		_, err = r.Discard(int(n) + len("\r\n"))
		return err
	}
	count, ok := strings.CutPrefix(line, "*")
	n, err := strconv.Atoi(count)
	if !ok || err != nil {
		return fmt.Errorf("unexpected answer %.40q", line)
	}
	for range n {
		if _, err := r.ReadString('\n'); err != nil {
			return err
		}
	}
	return nil
}

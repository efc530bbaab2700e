package failmode

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
)

const (
	// noticedLate bounds the delay with which a timeout may be noticed. If it is
	// longer, this process is too busy to blame the server.
	noticedLate = 2 * time.Millisecond
	// secondGlance is how long to look for an answer that may have come in time.
	secondGlance = time.Millisecond
	// maxGlances bounds how often a busy process sends the probe.
	maxGlances = 10
	// dialPatience is how long a server may take to accept a connection.
	dialPatience = 100 * time.Millisecond
)

// A witness finds out whether a shard answers. Late decisions do not prove that
// it does not: a client with many connections can make this process so slow that
// it reads good answers too late. A witness has a connection that was opened
// beforehand and that nothing else uses. It sends a probe, and blames the shard
// only for a timeout that it notices in time.
type witness struct {
	dial     func(context.Context) (net.Conn, error)
	request  func() ([]byte, error)
	patience time.Duration // for an answer

	looking atomic.Bool

	mu    sync.Mutex // over conn and ended
	conn  net.Conn   // nil before the first, and after a failure
	ended bool
}

// prepare opens the connection unless it is open.
func (w *witness) prepare(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn == nil && !w.ended {
		_ = w.redial(ctx) // look tries again
	}
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
		w.conn = nil
	}
}

// look returns why the shard does not answer; nil if it does, or if this process
// is too busy to tell. The error is [errors.ErrUnsupported] if the witness cannot
// connect to this kind of store. Only one call may be under way at a time.
func (w *witness) look(ctx context.Context) error {
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
		err := w.ask(request)
		if failureOf(err) == noFailure {
			return err
		}
		w.drop()
		if fresh || isTimeout(err) {
			return err
		}
		// The server may close a connection that was idle, and what was the master
		// may be a replica by now: try a new one, as decisions would get it.
	}
	return nil
}

// redial opens the connection. If this process is too busy to tell why that
// fails, it returns nil without a connection. The caller holds mu.
func (w *witness) redial(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	begun := time.Now()
	conn, err := w.dial(ctx)
	switch {
	case err == nil:
		w.conn = conn
	case isTimeout(err) && time.Since(begun) > dialPatience+noticedLate:
		return nil
	}
	return err
}

// A reply is an error in the server's answer.
type reply string

func (r reply) Error() string { return string(r) }

// RedisError marks an answer of Redis, for the classes of errors.
func (reply) RedisError() {}

// ask sends the request until it is answered, or until a timeout is noticed in
// time. It returns nil if this process is too busy to tell.
func (w *witness) ask(request []byte) error {
	answers := bufio.NewReader(w.conn)
	for glance := range maxGlances {
		deadline := time.Now().Add(w.patience)
		_ = w.conn.SetDeadline(deadline)
		if _, err := w.conn.Write(request); err != nil {
			return err
		}
		err := readAnswer(answers)
		if err == nil || !isTimeout(err) {
			if glance > 0 {
				w.drop() // the other answers are still to come
			}
			return err
		}
		late := time.Since(deadline) > noticedLate
		// In a busy process timers fire before the network is read, so the answer
		// may have arrived.
		_ = w.conn.SetReadDeadline(time.Now().Add(secondGlance))
		if again := readAnswer(answers); again == nil || !isTimeout(again) {
			w.drop() // answers to earlier requests may follow
			return again
		}
		if !late {
			return err
		}
	}
	w.drop()
	return nil
}

// readAnswer reads a script's answer: a list of numbers, or an error.
func readAnswer(r *bufio.Reader) error {
	line, err := r.ReadString('\n')
	if err != nil {
		return err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if text, ok := strings.CutPrefix(line, "-"); ok {
		if strings.HasPrefix(text, "NOSCRIPT") {
			return nil // the server is well; the next decision sends the script
		}
		return reply(text)
	}
	count, ok := strings.CutPrefix(line, "*")
	n, err := strconv.Atoi(count)
	if !ok || err != nil {
		return fmt.Errorf("failmode: witness: unexpected answer %.40q", line)
	}
	for range n {
		if _, err := r.ReadString('\n'); err != nil {
			return err
		}
	}
	return nil
}

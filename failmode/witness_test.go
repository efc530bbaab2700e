package failmode

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const probeText = "*1\r\n$4\r\nPING\r\n"

// A scripted server answers each request on each connection as it is told:
// "" not at all, "close" by closing the connection.
type scripted struct {
	mu      sync.Mutex // over answers, delay and late
	answers []string
	delay   time.Duration // before each answer
	late    time.Duration // how late the witness notices a timeout
	dials   int
	refuse  bool // from the second dial on
}

func (s *scripted) dial(context.Context) (net.Conn, error) {
	if s.dials++; s.dials > 1 && s.refuse {
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	}
	here, there := net.Pipe()
	go func() {
		defer there.Close()
		r := bufio.NewReader(there)
		for {
			request := make([]byte, len(probeText))
			if _, err := io.ReadFull(r, request); err != nil {
				return
			}
			answer, delay := s.next()
			if answer == "close" {
				return
			}
			time.Sleep(delay)
			if answer != "" {
				go func() { _, _ = io.WriteString(there, answer) }() // as a kernel would: nobody waits for the reader
			}
		}
	}()
	return lateConn{here, s}, nil
}

func (s *scripted) next() (answer string, delay time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.answers) > 0 {
		answer, s.answers = s.answers[0], s.answers[1:]
	}
	return answer, s.delay
}

// lateConn notices timeouts late, as a process does that has no processor.
type lateConn struct {
	net.Conn
	server *scripted
}

func (c lateConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if isTimeout(err) {
		c.server.mu.Lock()
		late := c.server.late
		c.server.mu.Unlock()
		time.Sleep(late)
	}
	return n, err
}

func TestWitness(t *testing.T) {
	const (
		numbers = "*5\r\n:1\r\n:1\r\n:2\r\n:3\r\n:0\r\n"
		oom     = "-OOM command not allowed when used memory > 'maxmemory'.\r\n"
		unknown = "-NOSCRIPT No matching script. Please use EVAL.\r\n"
	)
	for name, c := range map[string]struct {
		server *scripted
		kind   failureKind
		within time.Duration
	}{
		"an answer":                               {&scripted{answers: []string{numbers}}, noFailure, 0},
		"an answer in time":                       {&scripted{answers: []string{numbers}, delay: 30 * time.Millisecond}, noFailure, 30 * time.Millisecond},
		"no answer":                               {&scripted{}, failedLate, 41 * time.Millisecond},
		"an answer too late":                      {&scripted{answers: []string{numbers}, delay: time.Second}, failedLate, 41 * time.Millisecond},
		"nobody can say, the process is busy":     {&scripted{late: 10 * time.Millisecond}, noFailure, time.Second},
		"busy, but the answer lies there":         {&scripted{answers: []string{numbers}, delay: 45 * time.Millisecond, late: 10 * time.Millisecond}, noFailure, 51 * time.Millisecond},
		"in time, and the answer lies there":      {&scripted{answers: []string{numbers}, delay: 40*time.Millisecond + 500*time.Microsecond}, noFailure, 41 * time.Millisecond},
		"noticed a little late":                   {&scripted{late: time.Millisecond}, failedLate, 43 * time.Millisecond},
		"it says that it cannot":                  {&scripted{answers: []string{oom, oom}}, failedHard, 0},
		"it has forgotten the script":             {&scripted{answers: []string{unknown}}, noFailure, 0},
		"the connection was closed while idle":    {&scripted{answers: []string{"close", numbers}}, noFailure, 0},
		"closed again":                            {&scripted{answers: []string{"close", "close"}}, failedHard, 0},
		"closed, and connections are refused now": {&scripted{answers: []string{"close"}, refuse: true}, failedHard, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &witness{dial: c.server.dial, request: func() ([]byte, error) { return []byte(probeText), nil }, patience: 40 * time.Millisecond}
				defer time.Sleep(2 * time.Second) // until the server has ended
				defer w.end()
				w.prepare(t.Context())
				begun := time.Now()
				err := w.look(t.Context())
				if kind, took := failureOf(err), time.Since(begun); kind != c.kind || took > c.within {
					t.Errorf("%v (%d) after %s, want %d within %s", err, kind, took, c.kind, c.within)
				}
			})
		})
	}
}

// An answer to an earlier look must not pass for one to this.
func TestWitnessIsNotFooledByOldAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{answers: []string{"*0\r\n", "", "*0\r\n"}, delay: 50 * time.Millisecond}
		w := &witness{dial: s.dial, request: func() ([]byte, error) { return []byte(probeText), nil }, patience: 40 * time.Millisecond}
		defer time.Sleep(2 * time.Second) // until the server has ended
		defer w.end()
		for look, want := range []failureKind{failedLate, failedLate, failedLate} {
			if err := w.look(t.Context()); failureOf(err) != want {
				t.Errorf("look %d: %v", look, err)
			}
			time.Sleep(time.Second)
		}
		s.mu.Lock()
		s.delay, s.answers = 0, []string{"*0\r\n"}
		s.mu.Unlock()
		if err := w.look(t.Context()); err != nil {
			t.Errorf("it is well again: %v", err)
		}
	})
}

// A busy process asks several times, and the answer to the first may come last.
func TestWitnessForgetsAnswersToWhatItAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{answers: []string{"*0\r\n", "*0\r\n"}, delay: 60 * time.Millisecond, late: 10 * time.Millisecond}
		w := &witness{dial: s.dial, request: func() ([]byte, error) { return []byte(probeText), nil }, patience: 40 * time.Millisecond}
		defer time.Sleep(2 * time.Second) // until the server has ended
		defer w.end()
		if err := w.look(t.Context()); err != nil {
			t.Fatalf("while the process is busy: %v", err)
		}
		time.Sleep(time.Second)
		s.mu.Lock()
		s.late = 0
		s.mu.Unlock()
		if err := w.look(t.Context()); failureOf(err) != failedLate {
			t.Errorf("when the server does not answer any more: %v", err)
		}
	})
}

// What was the master when the connection was opened may be a replica by now, to
// which no decision is sent.
func TestWitnessAsksAgainBeforeItBelievesAnOldConnection(t *testing.T) {
	const readOnly = "-READONLY You can't write against a read only replica.\r\n"
	for name, c := range map[string]struct {
		answers []string
		kind    failureKind
	}{
		"another server answers now": {[]string{readOnly, "*0\r\n"}, noFailure},
		"the same says it again":     {[]string{readOnly, readOnly}, failedHard},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{answers: c.answers}
				w := &witness{dial: s.dial, request: func() ([]byte, error) { return []byte(probeText), nil }, patience: 40 * time.Millisecond}
				defer w.end()
				w.prepare(t.Context())
				if err := w.look(t.Context()); failureOf(err) != c.kind {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

func TestWitnessWithoutAConnectionToHave(t *testing.T) {
	none := func(context.Context) (net.Conn, error) { return nil, errors.ErrUnsupported }
	w := &witness{dial: none, request: func() ([]byte, error) { return nil, nil }}
	if err := w.look(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
	w = &witness{dial: none, request: func() ([]byte, error) { return nil, errors.ErrUnsupported }}
	if err := w.look(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
	w.end()
	if err := w.look(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("after its end: %v", err)
	}
}

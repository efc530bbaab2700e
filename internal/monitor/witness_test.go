package monitor

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/background"
)

const probeText = "*1\r\n$4\r\nPING\r\n"

// A scripted server answers each request on each connection as it is told:
// "" not at all, "close" by closing the connection.
type scripted struct {
	mu      sync.Mutex // over answers, delay and there
	answers []string
	delay   time.Duration // before each answer
	there   net.Conn
	late    time.Duration // how late the witness notices a timeout
	lateToo time.Duration // the same, of each second timeout
	dials   int
	refuse  bool          // from the second dial on
	redial  time.Duration // how long each takes from the second on
	hasty   int           // how many of them give up after 100 ms
}

func (s *scripted) dial(ctx context.Context) (net.Conn, error) {
	if s.dials++; s.dials > 1 {
		if s.refuse {
			return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
		}
		takes := s.redial
		if s.hasty--; s.hasty >= 0 {
			takes = 100 * time.Millisecond
		}
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if s.hasty >= 0 {
			return nil, os.ErrDeadlineExceeded
		}
	}
	here, there := net.Pipe()
	const kernel = 100 // requests and answers for which nobody waits
	requests, answers := make(chan struct{}, kernel), make(chan string, kernel)
	go func() {
		defer close(requests)
		for {
			if _, err := io.ReadFull(there, make([]byte, len(probeText))); err != nil {
				return
			}
			requests <- struct{}{}
		}
	}()
	go func() {
		defer close(answers)
		for range requests {
			answer, delay := s.next()
			if answer == "close" {
				return
			}
			time.Sleep(delay)
			answers <- answer
		}
	}()
	s.mu.Lock()
	s.there = there
	s.mu.Unlock()
	go func() {
		defer there.Close()
		for answer := range answers {
			_, _ = io.WriteString(there, answer)
		}
	}()
	return &lateConn{here, s.late, max(s.late, s.lateToo)}, nil
}

// close closes the last connection, as a server that goes does.
func (s *scripted) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.there.Close()
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
	late, next time.Duration
}

func (c *lateConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if IsTimeout(err) {
		time.Sleep(c.late)
		c.late, c.next = c.next, c.late
	}
	return n, err
}

func witnessOf(dial func(context.Context) (net.Conn, error)) *witness {
	return &witness{dial: dial, request: func() ([]byte, error) { return []byte(probeText), nil }, timeout: 40 * time.Millisecond}
}

func TestWitness(t *testing.T) {
	const (
		// What was the master when the connection was opened may be a replica by now, to which
		// no decision is sent.
		readOnly = "-READONLY You can't write against a read only replica.\r\n"

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
		"no answer":                               {&scripted{}, failedMaybe, 41 * time.Millisecond},
		"an answer too late":                      {&scripted{answers: []string{numbers}, delay: time.Second}, failedMaybe, 41 * time.Millisecond},
		"nobody can say, the process is busy":     {&scripted{late: 10 * time.Millisecond}, noFailure, time.Second},
		"busy, but the answer lies there":         {&scripted{answers: []string{numbers}, delay: 45 * time.Millisecond, late: 10 * time.Millisecond}, noFailure, 51 * time.Millisecond},
		"in time, and the answer lies there":      {&scripted{answers: []string{numbers}, delay: 40*time.Millisecond + 500*time.Microsecond}, noFailure, 41 * time.Millisecond},
		"noticed a little late":                   {&scripted{late: time.Millisecond}, failedMaybe, 43 * time.Millisecond},
		"nobody can say, it is busy just now":     {&scripted{lateToo: 10 * time.Millisecond}, noFailure, time.Second},
		"it says that it cannot":                  {&scripted{answers: []string{oom, oom}}, failedHard, 0},
		"a replica by now, another is well":       {&scripted{answers: []string{readOnly, numbers}}, noFailure, 0},
		"it has forgotten the script":             {&scripted{answers: []string{unknown}}, noFailure, 0},
		"the connection was closed while idle":    {&scripted{answers: []string{"close", numbers}}, noFailure, 0},
		"closed again":                            {&scripted{answers: []string{"close", "close"}}, failedHard, 0},
		"closed, and it takes long to connect":    {&scripted{answers: []string{"close", numbers}, redial: 900 * time.Millisecond}, noFailure, 900 * time.Millisecond},
		"closed, and the client is hasty":         {&scripted{answers: []string{"close", numbers}, hasty: 3}, noFailure, 330 * time.Millisecond},
		"closed, and nobody accepts in time":      {&scripted{answers: []string{"close"}, hasty: 99}, failedMaybe, time.Second},
		"closed, and nobody accepts":              {&scripted{answers: []string{"close"}, redial: time.Hour}, failedMaybe, time.Second},
		"closed, and connections are refused now": {&scripted{answers: []string{"close"}, refuse: true}, failedHard, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := witnessOf(c.server.dial)
				defer time.Sleep(2 * time.Second) // until the server has ended
				defer w.end()
				w.prepare(t.Context())
				begun := time.Now()
				err := w.check(t.Context())
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
		w := witnessOf(s.dial)
		defer time.Sleep(2 * time.Second) // until the server has ended
		defer w.end()
		for look, want := range []failureKind{failedMaybe, failedMaybe, failedMaybe} {
			if err := w.check(t.Context()); failureOf(err) != want {
				t.Errorf("look %d: %v", look, err)
			}
			time.Sleep(time.Second)
		}
		s.mu.Lock()
		s.delay, s.answers = 0, []string{"*0\r\n"}
		s.mu.Unlock()
		if err := w.check(t.Context()); err != nil {
			t.Errorf("it is well again: %v", err)
		}
	})
}

// A busy process takes long to connect, which looks as if nobody accepted. So the
// witness keeps its connection, and reads first what it is still owed there.
func TestWitnessKeepsItsConnectionWhileThisProcessIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const well, oom = "*1\r\n:1\r\n", "-OOM command not allowed\r\n"
		s := &scripted{delay: 45 * time.Millisecond, late: 10 * time.Millisecond}
		s.answers = append(slices.Repeat([]string{well}, 2+maxProbes), slices.Repeat([]string{oom}, maxProbes)...)
		w := witnessOf(s.dial)
		defer time.Sleep(2 * time.Second) // until the server has ended
		defer w.end()
		for look, c := range []struct {
			delay time.Duration
			want  failureKind
		}{
			{45 * time.Millisecond, noFailure},
			{45 * time.Millisecond, noFailure},
			{100 * time.Millisecond, noFailure}, // nobody can say, and some of the ten answers are still to come
			{0, failedHard},
		} {
			s.mu.Lock()
			s.delay = c.delay
			s.mu.Unlock()
			if err := w.check(t.Context()); failureOf(err) != c.want {
				t.Errorf("look %d: %v", look, err)
			}
			if left := w.owed > 0; left != (look == 2) {
				t.Errorf("look %d: %d answers are owed", look, w.owed)
			}
		}
		if s.dials != 2 { // the last look asks a new connection before it blames the server
			t.Errorf("dialled %d times", s.dials)
		}
	})
}

// A store answers all probes. Its witnesses ask the server.
type store struct{ *scripted }

func (s *store) Names(...int) []string                             { return []string{"server"} }
func (s *store) Probe(context.Context, int) error                  { return nil }
func (s *store) Dial(ctx context.Context, _ int) (net.Conn, error) { return s.dial(ctx) }
func (s *store) ProbeRequest(int) ([]byte, error)                  { return []byte(probeText), nil }
func (s *store) Budget() time.Duration                             { return 50 * time.Millisecond }
func (s *store) Drop(int)                                          {}
func (s *store) Redial(context.Context, int)                       {}

// An outage may end the witness' connection, and the next stall must be noticed
// as soon as the first.
func TestWitnessHasANewConnectionAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := &store{&scripted{redial: 300 * time.Millisecond}}, new(bytes.Buffer)
		var work background.Group
		logger := slog.New(slog.NewTextHandler(log, nil))
		work.Start(logger)
		var b Monitor
		b.Start(s, &work, logger)
		defer time.Sleep(2 * time.Second) // until the server has ended
		defer work.End()
		defer b.End()
		fail := func(err error) {
			for range failuresInRow {
				b.Report(t.Context(), time.Now(), []*Circuit{b.Circuit(0)}, []algorithms.Result{{Err: err}}, err)
				time.Sleep(time.Millisecond)
			}
		}
		b.Prepare(t.Context())
		s.close()
		fail(syscall.ECONNREFUSED)
		time.Sleep(time.Second)
		if s := b.States()[0]; s.Open || s.Opened != 1 {
			t.Fatalf("%+v", s)
		}
		fail(context.DeadlineExceeded)
		time.Sleep(41 * time.Millisecond)
		if s := b.States()[0]; !s.Open {
			t.Errorf("not noticed: %+v", s)
		}
		b.End()
		if text := log.String(); !strings.Contains(text, `error="failmode: probe on its own connection: `) {
			t.Errorf("what the witness found is not logged:\n%s", text)
		}
	})
}

func TestWitnessWithoutAConnectionToHave(t *testing.T) {
	none := func(context.Context) (net.Conn, error) { return nil, errors.ErrUnsupported }
	w := &witness{dial: none, request: func() ([]byte, error) { return nil, nil }}
	if err := w.check(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
	w = &witness{dial: none, request: func() ([]byte, error) { return nil, errors.ErrUnsupported }}
	if err := w.check(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
	w.end()
	if err := w.check(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("after its end: %v", err)
	}
}

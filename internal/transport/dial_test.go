package transport

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

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

func TestPatientConn(t *testing.T) {
	const timeout, never = 40 * time.Millisecond, time.Hour
	for name, c := range map[string]struct {
		answer     time.Duration // after so long
		late, next time.Duration // how late a timeout is noticed, and each second one
		class      ErrorClass
		within     time.Duration
	}{
		"in time":                          {answer: 30 * time.Millisecond, within: 30 * time.Millisecond},
		"none":                             {answer: never, class: ClassTimeout, within: 41 * time.Millisecond},
		"too late":                         {answer: time.Second, class: ClassTimeout, within: 41 * time.Millisecond},
		"in time, and the answer is there": {answer: timeout + 500*time.Microsecond, within: 41 * time.Millisecond},
		"noticed a little late":            {answer: never, late: time.Millisecond, next: time.Millisecond, class: ClassTimeout, within: 43 * time.Millisecond},
		"busy, and the answer is there":    {answer: 45 * time.Millisecond, late: 10 * time.Millisecond, within: 51 * time.Millisecond},
		"busy, and the answer comes":       {answer: 200 * time.Millisecond, late: 10 * time.Millisecond, next: 10 * time.Millisecond, within: 201 * time.Millisecond},
		"busy, nobody can say":             {answer: never, late: 10 * time.Millisecond, next: 10 * time.Millisecond, class: ClassBusy, within: time.Second},
		"busy with the second look":        {answer: never, next: 10 * time.Millisecond, class: ClassBusy, within: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				here, there := net.Pipe()
				defer here.Close()
				answers := time.AfterFunc(c.answer, func() { _, _ = there.Write([]byte("+")) })
				defer answers.Stop()
				conn := &patientConn{Conn: &lateConn{here, c.late, c.next}, patience: timeout}
				begun := time.Now()
				if err := conn.SetReadDeadline(begun.Add(timeout)); err != nil {
					t.Fatal(err)
				}
				_, err := conn.Read(make([]byte, 1))
				if took := time.Since(begun); ClassOf(err) != c.class || took > c.within {
					t.Errorf("%v after %s; want %q within %s", err, took, c.class, c.within)
				}
			})
		})
	}
}

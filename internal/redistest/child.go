package redistest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"
)

// Child is this test binary once more, in a process of its own that runs one test. Its
// methods may be called only from the goroutine of the test that started it.
type Child struct {
	proc   *process
	stdout bytes.Buffer
}

// StartChild starts a Child that runs the test of this name with a variable "name=value" in
// its environment. It reads in, or nothing if in is nil, and its standard error is out. It is
// killed in tb's Cleanup, and dies with the test binary.
func StartChild(tb testing.TB, test, variable string, in io.Reader, out io.Writer) *Child {
	tb.Helper()
	bin, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	c := new(Child)
	cmd := exec.Command(bin, "-test.run=^"+test+"$", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), variable)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, &c.stdout, out
	if c.proc, err = start(cmd); err != nil {
		tb.Fatalf("redistest: start %s again: %v", bin, err)
	}
	tb.Cleanup(func() { c.Kill(tb) })
	return c
}

// Kill ends the process (SIGKILL) and waits until it is gone. One that has ended stays so.
func (c *Child) Kill(tb testing.TB) {
	tb.Helper()
	c.control(tb, (*process).kill)
}

// Pause stops the process from running (SIGSTOP).
func (c *Child) Pause(tb testing.TB) {
	tb.Helper()
	c.control(tb, (*process).pause)
}

// Resume ends a Pause.
func (c *Child) Resume(tb testing.TB) {
	tb.Helper()
	c.control(tb, (*process).resume)
}

// Wait waits until the process has ended, and fails the test if its own test has failed.
func (c *Child) Wait(tb testing.TB) {
	tb.Helper()
	<-c.proc.exited
	if !c.proc.cmd.ProcessState.Success() {
		tb.Errorf("redistest: a process: %v\n%s", c.proc.cmd.ProcessState, &c.stdout)
	}
}

func (c *Child) control(tb testing.TB, do func(*process) error) {
	tb.Helper()
	switch err := do(c.proc); {
	case errors.Is(err, errors.ErrUnsupported):
		missing(tb, noLinux)
	case err != nil:
		tb.Fatalf("redistest: a process: %v", err)
	}
}

package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// gone is nil when no process pid runs any more. A zombie has ended: nobody
// may wait for orphans in a container.
func gone(pid int) error {
	state, err := processState(pid)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case state != 'Z' && state != 'X':
		return fmt.Errorf("process %d is in state %c", pid, state)
	}
	return nil
}

func TestCleanupStopsTheServer(t *testing.T) {
	t.Parallel()
	var running, paused int
	t.Run("test", func(t *testing.T) {
		running = Start(t).Pid()
		s := Start(t)
		paused = s.Pid()
		s.Pause(t)
		if state, err := processState(paused); err != nil || state != 'T' {
			t.Errorf("state %c, %v after Pause, want T", state, err)
		}
	})
	for _, pid := range []int{running, paused} {
		if err := gone(pid); err != nil {
			t.Error(err)
		}
	}
}

// onDyingThread runs f on an OS thread that ends before it returns.
func onDyingThread(t *testing.T, f func()) {
	var thread int
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread() // and never unlocks: the thread ends with the goroutine
		if thread = syscall.Gettid(); thread != os.Getpid() {
			f()
			return
		}
		// The main thread never ends. While it is held here, another is taken.
		onDyingThread(t, f)
		runtime.UnlockOSThread()
	})
	wg.Wait()
	if thread == os.Getpid() {
		return
	}
	err := waitUntil(nil, pollEvery, func() error {
		if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", thread)); err == nil {
			return fmt.Errorf("thread %d still runs", thread)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestProcessOutlivesThread is why there is a fork thread.
func TestProcessOutlivesThread(t *testing.T) {
	t.Parallel()
	sleep := program(t, "sleep", "sleep not found")
	log := filepath.Join(t.TempDir(), "log")
	var p *process
	var err error
	onDyingThread(t, func() { p, err = spawn(sleep, []string{"60"}, nil, log) })
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.exited:
		t.Error("the process ended with the thread that asked for it")
	case <-time.After(50 * time.Millisecond): // a signal has been sent by now, if any
	}
	if err := p.kill(); err != nil {
		t.Error(err)
	}
}

// TestChild is run by TestDeathOfTheTestBinary in another process.
func TestChild(t *testing.T) {
	death := os.Getenv("REDISTEST_DEATH")
	if death == "" {
		t.Skip("part of TestDeathOfTheTestBinary")
	}
	s := Start(t)
	fmt.Printf("\npid %d\n", s.Pid())
	switch death {
	case "panic":
		go panic("as a goroutine of the tested code may")
	case "exit":
		os.Exit(3)
	}
	select {} // until killed
}

func TestDeathOfTheTestBinary(t *testing.T) {
	t.Parallel()
	serverProgram(t)
	for _, death := range []string{"panic", "exit", "kill"} {
		t.Run(death, func(t *testing.T) {
			t.Parallel()
			child := exec.Command(os.Args[0], "-test.run=^TestChild$")
			child.Env = append(os.Environ(), "REDISTEST_DEATH="+death, "TMPDIR="+t.TempDir())
			out, err := child.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			pid := 0
			for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
				if s, ok := strings.CutPrefix(lines.Text(), "pid "); ok {
					pid, _ = strconv.Atoi(s)
				}
			}
			if death == "kill" {
				_ = child.Process.Kill()
			}
			if err := child.Wait(); err == nil || pid == 0 {
				t.Fatalf("the child ended with %v, its server's pid is %d", err, pid)
			}
			if err := waitUntil(nil, pollEvery, func() error { return gone(pid) }); err != nil {
				t.Error(err)
			}
		})
	}
}

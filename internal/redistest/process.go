package redistest

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

// forkThread takes what has to run on the one OS thread that starts all
// processes.
//
// The kernel sends a child its Pdeathsig when the thread that forked it ends,
// not when the process does, and Go ends threads at will: a server forked from
// any goroutine could be killed in the middle of a test. A goroutine that is
// locked to its thread and never returns keeps the thread until the process ends.
//
// It starts in init, and the channel is made there, because a goroutine or
// channel made in a testing/synctest bubble belongs to it.
var forkThread = make(chan func())

func init() {
	go func() {
		runtime.LockOSThread()
		for f := range forkThread {
			f()
		}
	}()
}

// onForkThread runs f on the fork thread and returns after it.
func onForkThread(f func()) {
	// Not a channel or WaitGroup: made in a bubble, neither may be used by a
	// goroutine outside it. Mutexes belong to no bubble.
	var done sync.Mutex
	done.Lock()
	forkThread <- func() { defer done.Unlock(); f() }
	done.Lock()
}

// outside runs f on a goroutine outside any testing/synctest bubble, in real
// time, and returns after it. f must not end the test: FailNow works only on
// the test's own goroutine.
func outside(f func()) {
	var done sync.Mutex
	done.Lock()
	onForkThread(func() {
		go func() { defer done.Unlock(); f() }()
	})
	done.Lock()
}

// process is a started program.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed once the process has been waited for
}

// spawn starts bin with its output appended to the file log.
func spawn(bin string, args, env []string, log string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }() // the process has its own

	cmd := exec.Command(bin, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = out, out
	return start(cmd)
}

// start starts a program that dies with this process.
func start(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd}
	cmd.SysProcAttr = dieWithParent()
	var err error
	onForkThread(func() {
		p.exited = make(chan struct{})
		if err = cmd.Start(); err != nil {
			return
		}
		go func() {
			defer close(p.exited)
			_ = cmd.Wait() // how it ended is in its log, or in its state
		}()
	})
	return p, err
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill ends the process and waits until it is gone.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.exited
	return nil
}

const (
	pollEvery = 2 * time.Millisecond
	// waitLimit is for a busy machine; what is waited for takes milliseconds.
	waitLimit = 15 * time.Second
)

var errExited = errors.New("the process exited")

// waitUntil polls ready until it returns nil. It gives up, with ready's last
// error, after waitLimit or when exited is closed. To be called outside bubbles.
func waitUntil(exited <-chan struct{}, every time.Duration, ready func() error) error {
	deadline := time.Now().Add(waitLimit)
	for {
		err := ready()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-exited:
			return errors.Join(errExited, err)
		case <-time.After(every):
		}
	}
}

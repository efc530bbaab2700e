package redistest

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// dieWithParent asks the kernel to kill the child when the thread that forks
// it ends; see forkThread.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

func (p *process) pause() error  { return p.signal(syscall.SIGSTOP, true) }
func (p *process) resume() error { return p.signal(syscall.SIGCONT, false) }

// signal sends sig and waits until the process is stopped, or no longer is:
// kill(2) returns before the signal takes effect, and a stopped server may
// still answer a command or two in between.
func (p *process) signal(sig syscall.Signal, stopped bool) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return err
	}
	return waitUntil(p.exited, pollEvery, func() error {
		state, err := processState(p.pid())
		if err == nil && (state == 'T') != stopped {
			err = fmt.Errorf("process %d is in state %c after %v", p.pid(), state, sig)
		}
		return err
	})
}

// processState is the letter of /proc/pid/stat: R, S, T, Z and so on.
func processState(pid int) (byte, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// "pid (comm) S ...", where comm may itself contain parentheses.
	i := bytes.LastIndexByte(stat, ')') + 2
	if i >= len(stat) {
		return 0, fmt.Errorf("/proc/%d/stat: no state in %q", pid, stat)
	}
	return stat[i], nil
}

// mapFile maps the first size bytes of f, shared with whoever else maps it.
func mapFile(f *os.File, size int) ([]byte, error) {
	return syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
}

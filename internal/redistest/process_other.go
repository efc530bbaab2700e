//go:build !linux

package redistest

import (
	"errors"
	"os"
	"syscall"
)

// dieWithParent has no equivalent here: a test binary that is killed leaves
// its servers behind.
func dieWithParent() *syscall.SysProcAttr { return nil }

func (p *process) pause() error  { return errors.ErrUnsupported }
func (p *process) resume() error { return errors.ErrUnsupported }

func mapFile(*os.File, int) ([]byte, error) { return nil, errors.ErrUnsupported }

//go:build unix

package rules

import (
	"path/filepath"
	"syscall"
	"testing"
)

// Opening a pipe that nobody writes would wait for ever.
func TestAPipeIsNotPublished(t *testing.T) {
	s := newShelf(t)
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	s.run(no(), 1, []string{"publish", "-yes", pipe}, "is no regular file")
}

// Demo, which `make demo` runs in this module's folder, builds examples/stdlib, starts it without Redis, sends it real requests
// and prints what happens. It checks every answer: its exit status is 1 if one
// is not what the limits promise.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "\ndemo: FAILED:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	// SIGPIPE, because "make demo | head" must not leave the server behind.
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGPIPE)
	defer cancel()
	dir, err := os.MkdirTemp("", "demo")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()

	fmt.Println("Building examples/stdlib ...")
	program := filepath.Join(dir, "stdlib")
	build := exec.CommandContext(ctx, "go", "build", "-C", "..", "-o", program, "./examples/stdlib")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", build, err, out)
	}
	waitForNextMinute(ctx)

	ctx, cancel = context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	server, url, err := start(ctx, program)
	if err != nil {
		return err
	}
	defer func() {
		if e := stop(server); err == nil && e == nil {
			fmt.Println("\nAll answers were as promised; the server ended with status 0 on SIGTERM.")
		} else {
			err = errors.Join(err, e)
		}
	}()
	return tell(ctx, url)
}

// waitForNextMinute keeps the story inside one minute: windows are aligned to
// the clock, and a login limit that starts anew in the middle would spoil it.
func waitForNextMinute(ctx context.Context) {
	const enough = 8 * time.Second
	left := time.Until(time.Now().Truncate(time.Minute).Add(time.Minute))
	if left < enough {
		fmt.Printf("Waiting %.1f s for the next minute: fixed windows are aligned to the clock.\n", left.Seconds())
		select {
		case <-time.After(left):
		case <-ctx.Done():
		}
	}
}

// start starts the server on a free port and returns when it listens.
func start(ctx context.Context, program string) (server *exec.Cmd, url string, err error) {
	server = exec.CommandContext(ctx, program, "-addr", "127.0.0.1:0", "-trusted-proxies", "127.0.0.0/8")
	server.Stderr = os.Stderr
	stdout, err := server.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := server.Start(); err != nil {
		return nil, "", err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		_, _ = server.Process.Kill(), server.Wait()
		return nil, "", fmt.Errorf("the server printed %q instead of where it listens", line)
	}
	fmt.Printf("$ %s\n%s", strings.Join(append([]string{"stdlib"}, server.Args[1:]...), " "), line)
	return server, url, nil
}

// stop asks the server to end, and reports it if that is not with status 0.
func stop(server *exec.Cmd) error {
	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("SIGTERM: %w", err)
	}
	if err := server.Wait(); err != nil {
		return fmt.Errorf("the server ended with %w on SIGTERM, want status 0", err)
	}
	return nil
}

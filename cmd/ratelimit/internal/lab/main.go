// Lab is a local page on which limits are tried: the same traffic goes through
// several algorithms side by side, in virtual time. The page shows how many requests
// each of them admits, denies and makes wait, beside an exact limit. A second page shows
// an overloaded server with and without a shed.Shedder. A third shows the result of a
// replay of an access log.
//
//	go run ./cmd/ratelimit/internal/lab                        # or make lab
//	go run ./cmd/ratelimit/internal/lab -result result.json    # a file of cmd/ratelimit/internal/replay -o
//
// The page needs no network, and the decisions are those of algorithms.Memory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/seed75154129/ratelimit/cmd/ratelimit/internal/replayed"
)

func main() {
	c, err := parse(os.Args[1:])
	if err == nil {
		err = serve(c)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(1)
	}
}

type config struct {
	addr   string
	open   bool
	result *replayed.Result // nil is none
}

func parse(args []string) (c config, err error) {
	flags := flag.NewFlagSet("lab", flag.ContinueOnError)
	flags.StringVar(&c.addr, "addr", "127.0.0.1:8090", "`host:port` to listen on")
	flags.BoolVar(&c.open, "open", false, "open the page in a browser")
	path := flags.String("result", "", "`file` that cmd/ratelimit/internal/replay -o wrote, to show")

	flags.SetOutput(io.Discard) // main prints errors, without the usage
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
		os.Exit(0)
	case err != nil:
		return c, fmt.Errorf("%w; -h lists the flags", err)
	case flags.NArg() > 0:
		return c, fmt.Errorf("unexpected argument %q; -h lists the flags", flags.Arg(0))
	}
	if *path != "" {
		if c.result, err = read(*path); err != nil {
			return c, fmt.Errorf("-result: %w; cmd/ratelimit/internal/replay -o writes such a file", err)
		}
	}
	return c, nil
}

func read(path string) (*replayed.Result, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	result, err := replayed.Read(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &result, nil
}

func serve(c config) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", c.addr)
	if err != nil {
		return fmt.Errorf("-addr %q: %w; choose another address; port 0 is any free one", c.addr, err)
	}
	server := &http.Server{
		Handler:     handler(c.result),
		ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	page := "http://" + listener.Addr().String()
	if c.result != nil {
		page += "/replay"
	}
	fmt.Printf("listening on %s\n", page)
	if c.open {
		browse(ctx, page)
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	stop() // a second signal ends the process at once
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return server.Shutdown(ctx)
}

// browse opens the page in the user's browser, if there is one. If not, the
// address has been printed.
func browse(ctx context.Context, page string) {
	name, args := "xdg-open", []string{page}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", page}
	}
	_ = exec.CommandContext(ctx, name, args...).Start() //nolint:gosec // one of three programs, on our own address
}

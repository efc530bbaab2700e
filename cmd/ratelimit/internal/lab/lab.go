// Package lab is a local page on which limits are tried: the same traffic goes through
// several algorithms side by side, in virtual time. The page shows how many requests
// each of them admits, denies and makes wait, beside an exact limit. A second page shows
// an overloaded server with and without a shed.Shedder. A third shows the result of a
// replay of an access log.
package lab

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/seed75154129/ratelimit/cmd/ratelimit/internal/cli"
	"github.com/seed75154129/ratelimit/cmd/ratelimit/internal/replayed"
)

// Command serves the lab until a signal ends it.
var Command = &cli.Command{
	Name: "lab", Does: "serve a page on which limits are tried",
	Help: `Serves a page on which algorithms get the same traffic, side by side, and prints its
address. The page needs no network, and the decisions are those of algorithms.Memory.

  ratelimit lab -open
  ratelimit lab -result result.json    # the result of ratelimit replay -o

Exit codes: 0 after SIGINT or SIGTERM; 1 if the page cannot be served or the result cannot
be read; 2 for wrong flags.
`,
	Flags: func(f *flag.FlagSet) cli.Run {
		var c config
		f.StringVar(&c.addr, "addr", "127.0.0.1:8090", "`host:port` to listen on; port 0 is any free one")
		f.BoolVar(&c.open, "open", false, "open the page in a browser")
		f.StringVar(&c.result, "result", "", "`file` that ratelimit replay -o wrote, to show")
		return c.run
	},
}

type config struct {
	addr   string
	open   bool
	result string
}

func (c *config) run(s cli.Streams, args []string) error {
	if len(args) > 0 {
		return cli.Usage("unexpected argument %q", args[0])
	}
	var result *replayed.Result // nil is none
	if c.result != "" {
		var err error
		if result, err = read(c.result); err != nil {
			return fmt.Errorf("-result: %w; ratelimit replay -o writes such a file", err)
		}
	}
	return c.serve(s, result)
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

func (c *config) serve(s cli.Streams, result *replayed.Result) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", c.addr)
	if err != nil {
		return fmt.Errorf("-addr %q: %w; choose another address; port 0 is any free one", c.addr, err)
	}
	server := &http.Server{
		Handler:     handler(result),
		ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	page := "http://" + listener.Addr().String()
	if result != nil {
		page += "/replay"
	}
	_, _ = fmt.Fprintf(s.Out, "listening on %s\n", page) // nobody to tell
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

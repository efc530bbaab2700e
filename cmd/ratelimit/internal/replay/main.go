// Replay reads an access log and reports which clients rules would have denied, when,
// and which limits would deny hardly any client.
//
//	go run ./cmd/ratelimit/internal/replay -rules rules.yaml access.log
//	go run ./cmd/ratelimit/internal/replay -rules rules.yaml -trusted-proxies 10.0.0.0/8 access.log*
//	journalctl -u caddy -o cat | go run ./cmd/ratelimit/internal/replay -rules rules.yaml -
//
// It sends the requests through the middleware itself, at the log's times. Logs are
// in the common or the combined format, or JSON lines, plain or packed by gzip or
// bzip2; several are merged by time. docs/replay.md says more.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/seed75154129/ratelimit/keyfunc"
)

func main() {
	large := ballast()
	status := run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	runtime.KeepAlive(large)
	os.Exit(status)
}

// ballast returns a large slice. Lines are garbage soon, and the collector runs less
// often beside it. It takes no memory, since it is never used.
func ballast() []byte { return make([]byte, 128<<20) }

// A config is the flags.
type config struct {
	ruleFile string
	output   string
	under    float64 // a fraction
	fields   map[string]string
	skip     []string
	routes   []string
	proxies  keyfunc.Proxies
	zone     *time.Location
	quiet    bool
	logs     []string
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) (status int) {
	c, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	if err := c.replay(stdin, stdout, stderr); err != nil {
		_, _ = fmt.Fprintln(stderr, "replay:", err) // without stderr there is no place for an error
		return 1
	}
	return 0
}

func parse(args []string, stderr io.Writer) (*config, error) {
	c := &config{fields: make(map[string]string), zone: time.UTC}
	flags := flag.NewFlagSet("replay", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		_, _ = fmt.Fprintln(stderr, "usage: replay -rules FILE [flags] LOG…  (- is standard input)")
		flags.PrintDefaults()
	}
	flags.StringVar(&c.ruleFile, "rules", "", "the rule `file`; required")
	flags.StringVar(&c.output, "o", "", "write the result as JSON to a `file`, for cmd/ratelimit/internal/lab")
	under := flags.Float64("under", 1, "find the limits that deny less than this `percentage` of the clients")
	flags.Func("field", "where a field is: `NAME=FIELD`. Names are the program's keys, header:NAME, tier, and time, address, method, target, request, status", func(s string) error {
		name, field, ok := strings.Cut(s, "=")
		if !ok || name == "" || field == "" {
			return errors.New("write NAME=FIELD, such as tenant=account.id")
		}
		c.fields[wantedName(name)] = field
		return nil
	})
	list := func(to *[]string) func(string) error {
		return func(s string) error { *to = append(*to, strings.Split(s, ",")...); return nil }
	}
	flags.Func("skip", "`patterns` of Config.Skip, such as 'GET /healthz,GET /metrics'", list(&c.skip))
	flags.Func("routes", "`patterns` of the program's ServeMux, for the key route", list(&c.routes))
	flags.TextVar(&c.proxies, "trusted-proxies", keyfunc.Proxies{}, "`networks` whose X-Forwarded-For is believed, if the log has it")
	flags.Func("zone", "the time `zone` of times that name none, such as Europe/Berlin (default UTC)", func(s string) (err error) {
		c.zone, err = time.LoadLocation(s)
		return err
	})
	flags.BoolVar(&c.quiet, "q", false, "no progress on standard error")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	c.logs, c.under = flags.Args(), *under/100
	var err error
	switch {
	case c.ruleFile == "" || len(c.logs) == 0:
		err = errors.New("a rule file and a log are required")
	case !(c.under > 0 && c.under <= 1):
		err = fmt.Errorf("-under %v: must be above 0 and at most 100", *under)
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "replay:", err)
		flags.Usage()
	}
	return c, err
}

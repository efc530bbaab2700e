// Package replay reads an access log and reports which clients rules would have denied,
// when, and which limits would deny hardly any client. It sends the requests through the
// middleware itself, at the log's times.
package replay

import (
	"errors"
	"flag"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/seed75154129/ratelimit/cmd/ratelimit/internal/cli"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// Command replays access logs.
var Command = &cli.Command{
	Name: "replay", Args: "LOG…", Does: "say what rules would have done to an access log",
	Help: `Sends the requests of access logs through the rules of a file, at the logs' times, and
reports which clients would have been denied. LOG is - for standard input.

  ratelimit replay -rules rules.yaml access.log
  ratelimit replay -rules rules.yaml -trusted-proxies 10.0.0.0/8 access.log*
  journalctl -u caddy -o cat | ratelimit replay -rules rules.yaml -

Logs are in the common or the combined format, or JSON lines, plain or packed by gzip or
bzip2. Several are merged by time.

Exit codes: 0 if the logs were replayed, whatever was denied; 1 if a file cannot be read to
its end, the rules are wrong or there is no request; 2 for wrong flags or arguments.
`,
	Flags: func(f *flag.FlagSet) cli.Run {
		c := &config{fields: make(map[string]string), zone: time.UTC}
		f.StringVar(&c.ruleFile, "rules", "", "the rule `file`; required")
		f.StringVar(&c.output, "o", "", "write the result as JSON to a `file`, for ratelimit lab -result")
		f.Float64Var(&c.under, "under", 1, "find the limits that deny less than this `percentage` of the clients")
		f.Func("field", "where a field is: `NAME=FIELD`. Names are the program's keys, header:NAME, tier, and time, address, method, target, request, status", func(s string) error {
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
		f.Func("skip", "`patterns` of Config.Skip, such as 'GET /healthz,GET /metrics'", list(&c.skip))
		f.Func("routes", "`patterns` of the program's ServeMux, for the key route", list(&c.routes))
		f.TextVar(&c.proxies, "trusted-proxies", keyfunc.Proxies{}, "`networks` whose X-Forwarded-For is believed, if the log has it")
		f.Func("zone", "the time `zone` of times that name none, such as Europe/Berlin (default UTC)", func(s string) (err error) {
			c.zone, err = time.LoadLocation(s)
			return err
		})
		f.BoolVar(&c.verbose, "v", false, "print progress also if standard error is no terminal")
		return c.run
	},
}

// A config is the flags and the logs.
type config struct {
	ruleFile string
	output   string
	under    float64 // a percentage
	fields   map[string]string
	skip     []string
	routes   []string
	proxies  keyfunc.Proxies
	zone     *time.Location
	verbose  bool
	logs     []string
}

func (c *config) run(s cli.Streams, logs []string) error {
	switch c.logs = logs; {
	case c.ruleFile == "":
		return cli.Usage("-rules is required: the rule file")
	case len(logs) == 0:
		return cli.Usage("no log: name files, or - for standard input")
	case !(c.under > 0 && c.under <= 100):
		return cli.Usage("-under %v: must be above 0 and at most 100", c.under)
	}
	if to, err := os.Stat(c.output); err == nil && to.Mode().IsRegular() {
		for _, name := range append([]string{c.ruleFile}, logs...) {
			if from, err := os.Stat(name); err == nil && os.SameFile(from, to) {
				return cli.Usage("-o %s would overwrite what it is made from: choose another file", c.output)
			}
		}
	}
	// Lines are garbage soon, and the collector runs less often beside a large slice. It
	// takes no memory, since it is never used.
	ballast := make([]byte, 128<<20)
	defer runtime.KeepAlive(ballast)
	return c.replay(s)
}

// Package rules checks rule files and publishes them for all instances of a service.
package rules

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/cmd/ratelimit/internal/cli"
	"github.com/seed75154129/ratelimit/keyfunc"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

// Check says what is wrong in a rule file.
var Check = &cli.Command{
	Name: "check", Args: "FILE", Does: "say what is wrong in a rule file, and how to write it",
	Help: `Prints a line for each rule, the next boundary of each calendar window and what a
service would warn of; or every mistake, with its line and column and how to mend it. FILE
is - for standard input.

  ratelimit check rules.yaml
  ratelimit check -keys user,tenant -tiers pro,enterprise rules.yaml

Exit codes: 0 if a service can load the file; 1 if it cannot, or the file cannot be read;
2 for wrong flags or arguments.
`,
	Flags: func(f *flag.FlagSet) cli.Run { p := new(program); p.nameFlags(f); return p.check },
}

// A program is a call of it.
type program struct {
	cli.Streams
	file        string // "-" is standard input
	keys, tiers string

	redis     string
	fleet     rulefile.Fleet // but for check
	namespace string
	version   int64 // 0 takes the file
	replaces  int64 // the version that must be in force; -1 for any
	by, note  string
	yes       bool
}

func (p *program) nameFlags(f *flag.FlagSet) {
	f.StringVar(&p.keys, "keys", "", "`names` of the program's keys, beside ip, everyone, header:NAME, apikey:NAME and cookie:NAME (default: any)")
	f.StringVar(&p.tiers, "tiers", "", "`names` of the program's tiers (default: any)")
}

// check prints the rules in a file.
func (p *program) check(s cli.Streams, args []string) error {
	if len(args) != 1 {
		return cli.Usage("name one file, or - for standard input; there are %d", len(args))
	}
	p.Streams, p.file = s, args[0]
	text, err := p.read(context.Background())
	if err != nil {
		return err
	}
	return p.parse(p.file, text, s.Out)
}

// maxText is more than a rule file may have, so that Parse says so.
const maxText = 2 << 20

func (p *program) read(ctx context.Context) ([]byte, error) {
	if p.file == "-" {
		p.file = "stdin"
		return io.ReadAll(io.LimitReader(p.In, maxText))
	}
	return rulefile.File(p.file).Read(ctx)
}

// parse writes a line for each rule in a text, or returns every mistake. It warns of names
// that it cannot check.
func (p *program) parse(name string, text []byte, w io.Writer) error {
	var unknown []string // names of keys that the program must have
	key := keyfunc.Func(func(*http.Request) (string, error) { return "", keyfunc.ErrNoKey })
	loader := rulefile.Loader{Keys: make(map[string]keyfunc.Key)}
	if p.keys == "" {
		loader.KeyFor = func(name string) keyfunc.Key { unknown = append(unknown, name); return key }
	} else {
		for name := range strings.SplitSeq(p.keys, ",") {
			loader.Keys[name] = key
		}
	}
	if p.tiers != "" {
		loader.Tiers = strings.Split(p.tiers, ",")
	}
	rules, err := loader.Parse(name, text)
	if slices.Sort(unknown); len(unknown) > 0 {
		_, _ = fmt.Fprintf(p.Err, "not checked: whether the program has the keys %s; give its names with -keys\n", strings.Join(unknown, ", "))
	}
	if err != nil {
		return err
	}
	for _, r := range rules {
		_, _ = fmt.Fprintln(w, described(&r))
	}
	_, _ = w.Write(boundaries(rules, time.Now))
	p.warn(rules)
	if p.tiers == "" && slices.ContainsFunc(rules, func(r ratelimit.Rule) bool { return len(r.Tiers) > 0 }) {
		_, _ = fmt.Fprintln(p.Err, "not checked: whether the program has these tiers; give its names with -tiers")
	}
	return nil
}

// warn writes what a service with these rules would warn of when it starts.
func (p *program) warn(rules []ratelimit.Rule) {
	noTier := func(*http.Request) string { return "" }
	_, _ = ratelimit.New(ratelimit.Config{ // the rules are valid
		Limiter: new(algorithms.Memory), Rules: rules, TierFor: noTier, Logger: slog.New(warnings{slog.DiscardHandler, p.Err}),
	})
}

// warnings writes the texts of warnings.
type warnings struct {
	slog.Handler
	w io.Writer
}

func (warnings) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

func (h warnings) Handle(_ context.Context, r slog.Record) error {
	_, err := fmt.Fprintln(h.w, "warning:", strings.TrimPrefix(r.Message, "ratelimit: "))
	return err
}

// described is a rule in a line: its limits, those of its tiers, and whether it is enforced.
func described(r *ratelimit.Rule) string {
	own := r.Limits
	if own == nil {
		own = []ratelimit.Limit{r.Limit}
	}
	parts := []string{fmt.Sprintf("%s: %s by %s", r.Name, own, r.Key)}
	for _, tier := range slices.Sorted(maps.Keys(r.Tiers)) {
		limits := fmt.Sprint(r.Tiers[tier])
		if slices.Equal(r.Tiers[tier], ratelimit.Unlimited()) {
			limits = "unlimited"
		}
		parts = append(parts, tier+": "+limits)
	}
	switch {
	case r.Shadow && r.Enforce > 0:
		parts = append(parts, fmt.Sprintf("in shadow, enforced for %.6g%% of the keys", r.Enforce*100))
	case r.Shadow:
		parts = append(parts, "in shadow")
	}
	return strings.Join(parts, "; ")
}

// boundaries says when the calendar windows of rules end next, on the clocks of their time
// zones and in UTC. A Memory knows.
func boundaries(rules []ratelimit.Rule, now func() time.Time) (text []byte) {
	for _, r := range rules {
		limits := append(slices.Clone(r.Limits), r.Limit)
		for _, tier := range slices.Sorted(maps.Keys(r.Tiers)) {
			limits = append(limits, r.Tiers[tier]...)
		}
		for _, o := range r.Overrides {
			limits = append(limits, o.Limits...)
		}
		told := make(map[string]bool)
		for _, l := range limits {
			_, zone, found := strings.Cut(l.Calendar, "@")
			if !found || told[l.Calendar] {
				continue
			}
			told[l.Calendar] = true
			d, err := (&algorithms.Memory{Now: now}).Take(context.Background(), algorithms.Check{Limit: l})
			in, err2 := time.LoadLocation(zone)
			if err != nil || err2 != nil {
				continue // a rule of the file has neither
			}
			ends := d.Results[0].At.Add(d.Results[0].ResetAfter)
			text = fmt.Appendf(text, "%s: the next %s begins %s, %s\n", r.Name, l.Calendar, ends.In(in).Format("2006-01-02 15:04 -07:00"), ends.UTC().Format("2006-01-02 15:04 UTC"))
		}
	}
	return text
}

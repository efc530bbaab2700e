// Rules checks a rule file, and publishes it for all instances of a service.
//
//	go run ./cmd/ratelimit/internal/rules check rules.yaml
//	go run ./cmd/ratelimit/internal/rules check -keys user,tenant -tiers pro,enterprise rules.yaml
//	cat rules.yaml | go run ./cmd/ratelimit/internal/rules check -
//
// Check prints a line for each rule, the next boundary of each calendar window and what a
// service would warn of, or every mistake with its line and column. Run it where rule
// files are reviewed.
//
//	export REDIS_URL=redis://localhost:6379
//	go run ./cmd/ratelimit/internal/rules diff -namespace shop rules.yaml
//	go run ./cmd/ratelimit/internal/rules publish -namespace shop -note "tighter login" rules.yaml
//	go run ./cmd/ratelimit/internal/rules history -namespace shop
//	go run ./cmd/ratelimit/internal/rules publish -namespace shop -version 7
//
// Diff compares a file with the document in force. Publish checks the file, shows the
// difference and asks. It publishes nothing if another document was published after it
// had shown the difference or, with -replaces, after the version that the file was made
// from. With -version both take a document of the history instead of a file.
//
// It exits with 1 if there is a mistake or nothing was published. Copy it, and take the
// Loader of your program in place of the flags, and its client in place of the URL.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // for machines without time zones

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

const usage = `usage: rules check [-keys NAME,…] [-tiers NAME,…] FILE
       rules diff -namespace NAME [-redis URL] FILE
       rules publish -namespace NAME [-redis URL] [-keys NAME,…] [-tiers NAME,…] [-note TEXT] [-by NAME] [-yes] [-replaces N] FILE
       rules history -namespace NAME [-redis URL]
FILE may be - for standard input; instead of FILE, diff and publish take -version N`

// A program is a call of it.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer

	file        string // "-" is stdin
	keys, tiers string
	redis       string
	fleet       rulefile.Fleet // but for check
	namespace   string
	version     int64 // 0 takes the file
	replaces    int64 // the version that must be in force; -1 for any
	by, note    string
	yes         bool
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) (status int) {
	p := &program{stdin: stdin, stdout: stdout, stderr: stderr}
	say := func(what any) { _, _ = fmt.Fprintln(stderr, what) } // nobody to tell
	flags := flag.NewFlagSet("rules", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { say(usage); flags.PrintDefaults() }
	flags.StringVar(&p.keys, "keys", "", "`names` of the program's keys, beside ip, everyone, header:NAME and apikey:NAME (default: any)")
	flags.StringVar(&p.tiers, "tiers", "", "`names` of the program's tiers (default: any)")
	flags.StringVar(&p.redis, "redis", "", "`URL` of the Redis (default: the variable REDIS_URL)")
	flags.StringVar(&p.namespace, "namespace", "", "`name` of the limiter's namespace in Redis")
	flags.Int64Var(&p.version, "version", 0, "`number` of a published version to take instead of a file")
	flags.StringVar(&p.by, "by", "", "`name` of the publisher (default: the user)")
	flags.StringVar(&p.note, "note", "", "`text` that says why, for the history")
	flags.Int64Var(&p.replaces, "replaces", -1, "`number` of the version that the file was made from, 0 for none: if another is in force, nothing is published (default: any)")
	flags.BoolVar(&p.yes, "yes", false, "publish without asking")
	commands := map[string]func(context.Context) error{"diff": p.diff, "publish": p.publish, "history": p.history}
	if len(args) == 0 || args[0] != "check" && commands[args[0]] == nil {
		say(usage)
		return 2
	}
	switch err := flags.Parse(args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	files := 1
	if args[0] == "history" || p.version != 0 && args[0] != "check" {
		files = 0
	}
	p.file = flags.Arg(0)
	switch {
	case flags.NArg() != files:
		flags.Usage()
		return 2
	case args[0] != "check" && p.namespace == "":
		say("-namespace is required: write that of the service's algorithms.Redis")
		return 2
	case args[0] == "publish" && p.file == "-" && !p.yes:
		say("standard input is the document, so nothing can be asked: give -yes as well, after rules diff")
		return 2
	}
	var err error
	if args[0] == "check" {
		err = p.check()
	} else {
		err = p.connected(commands[args[0]])
	}
	if err != nil {
		say(err)
		return 1
	}
	return 0
}

// check prints the rules in a file.
func (p *program) check() error {
	text, err := p.read(context.Background())
	if err != nil {
		return err
	}
	return p.parse(p.file, text, p.stdout)
}

func (p *program) read(ctx context.Context) ([]byte, error) {
	if p.file == "-" {
		p.file = "stdin"
		return io.ReadAll(p.stdin)
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
	if err != nil {
		return err
	}
	for _, r := range rules {
		_, _ = fmt.Fprintln(w, described(&r))
	}
	_, _ = w.Write(boundaries(rules, time.Now))
	p.warn(rules)
	if slices.Sort(unknown); len(unknown) > 0 {
		_, _ = fmt.Fprintf(p.stderr, "not checked: whether the program has the keys %s; give its names with -keys\n", strings.Join(unknown, ", "))
	}
	if p.tiers == "" && slices.ContainsFunc(rules, func(r ratelimit.Rule) bool { return len(r.Tiers) > 0 }) {
		_, _ = fmt.Fprintln(p.stderr, "not checked: whether the program has these tiers; give its names with -tiers")
	}
	return nil
}

// warn writes what a service with these rules would warn of when it starts.
func (p *program) warn(rules []ratelimit.Rule) {
	noTier := func(*http.Request) string { return "" }
	_, _ = ratelimit.New(ratelimit.Config{ // the rules are valid
		Limiter: new(algorithms.Memory), Rules: rules, TierFor: noTier, Logger: slog.New(warnings{slog.DiscardHandler, p.stderr}),
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
		own = []algorithms.Limit{r.Limit}
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

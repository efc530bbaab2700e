package rules

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/cmd/ratelimit/internal/cli"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

// Publish publishes a rule file, Diff compares one with the rules in force, and History
// lists what was published.
var (
	Publish = &cli.Command{
		Name: "publish", Args: "FILE", Does: "publish the rules of all instances of a service, in Redis",
		Help: `Checks a rule file, shows what it changes, asks, and makes it the document in Redis that
rulefile.Fleet reads. With -version it takes a document of the history instead of FILE. It
publishes nothing if somebody else publishes while it asks or, with -replaces, if the file
was made from another version than that in force.

  export REDIS_URL=redis://localhost:6379
  ratelimit publish -namespace shop -note "tighter login" rules.yaml
  ratelimit publish -namespace shop -version 7     # back to version 7
  ratelimit publish -namespace shop -yes - < rules.yaml

Exit codes: 0 if the document is in force now, or was already; 1 if nothing was published;
2 for wrong flags or arguments.
`,
		Flags: func(f *flag.FlagSet) cli.Run {
			p := new(program)
			p.nameFlags(f)
			p.fleetFlags(f)
			p.versionFlag(f)
			f.StringVar(&p.by, "by", "", "`name` of the publisher (default: the user)")
			f.StringVar(&p.note, "note", "", "`text` that says why, for the history")
			f.Int64Var(&p.replaces, "replaces", -1, "`number` of the version that the file was made from, 0 for none: if another is in force, nothing is published (default: any)")
			f.BoolVar(&p.yes, "yes", false, "publish without asking")
			return func(s cli.Streams, args []string) error {
				if len(args) == 1 && args[0] == "-" && !p.yes {
					return cli.Usage("standard input is the document, so nothing can be asked: give -yes as well, after ratelimit diff")
				}
				return p.connected(s, args, p.publish)
			}
		},
	}
	Diff = &cli.Command{
		Name: "diff", Args: "FILE", Does: "show what a rule file changes in the rules in force",
		Help: `Compares a rule file with the document in force, or with -version a document of the
history.

  ratelimit diff -namespace shop rules.yaml
  ratelimit diff -namespace shop -version 7

Exit codes: 0 if they are equal; 1 if they differ; 2 if they cannot be compared, and for
wrong flags or arguments.
`,
		Flags: func(f *flag.FlagSet) cli.Run {
			p := new(program)
			p.fleetFlags(f)
			p.versionFlag(f)
			return func(s cli.Streams, args []string) error { return p.connected(s, args, p.diff) }
		},
	}
	History = &cli.Command{
		Name: "history", Does: "list the rules that were published",
		Help: `Lists the document in force and the last 20 before it, the newest first. The numbers are
those of -version.

  ratelimit history -namespace shop

Exit codes: 0 if Redis was read; 1 if it cannot be; 2 for wrong flags or arguments.
`,
		Flags: func(f *flag.FlagSet) cli.Run {
			p := &program{version: -1} // it takes no file
			p.fleetFlags(f)
			return func(s cli.Streams, args []string) error { return p.connected(s, args, p.history) }
		},
	}
)

func (p *program) fleetFlags(f *flag.FlagSet) {
	f.StringVar(&p.redis, "redis", "", "`URL` of the Redis (default: the variable REDIS_URL)")
	f.StringVar(&p.namespace, "namespace", "", "`name` of the limiter's namespace in Redis; required")
}

func (p *program) versionFlag(f *flag.FlagSet) {
	f.Int64Var(&p.version, "version", 0, "`number` of a published version to take instead of a file")
}

// patience is how long Redis may take to connect and to answer, unless the URL says.
const patience = 5 * time.Second

// connected calls a command with a connection to the document. The URL may have a
// password, so no error quotes it.
func (p *program) connected(s cli.Streams, args []string, command func(context.Context) error) error {
	p.Streams = s
	switch {
	case p.version == 0 && len(args) != 1:
		return cli.Usage("name one file, or - for standard input; there are %d", len(args))
	case p.version != 0 && len(args) > 0:
		return cli.Usage("unexpected argument %q", args[0])
	case p.namespace == "":
		return cli.Usage("-namespace is required: write that of the service's limiter")
	case p.version == 0:
		p.file = args[0]
	}
	logging.Disable() // errors are returned
	options, err := redis.ParseURL(cmp.Or(p.redis, os.Getenv("REDIS_URL")))
	if err != nil {
		return cli.Usage("-redis or REDIS_URL: no URL of a Redis; write redis://:password@host:6379/0, and rediss:// for TLS")
	}
	options.DialTimeout = cmp.Or(options.DialTimeout, patience)
	options.ReadTimeout = cmp.Or(options.ReadTimeout, patience)
	client := redis.NewClient(algorithms.FailFast(options))
	defer func() { _ = client.Close() }()
	p.fleet = rulefile.Fleet{Client: client, Namespace: p.namespace}
	return command(context.Background())
}

// current returns the document in force. It has version 0 if there is none, and no text
// if that was changed in Redis or not written by publish.
func (p *program) current(ctx context.Context) (rulefile.Document, error) {
	d, err := p.fleet.Document(ctx)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return d, nil
	case err != nil && d.Version == 0: // it could not be read
		return d, err
	case err != nil:
		_, _ = fmt.Fprintln(p.Err, err)
	}
	return d, nil
}

// next returns the document to publish: a file, or a version that was published.
func (p *program) next(ctx context.Context) (name string, text []byte, err error) {
	if p.version == 0 {
		text, err = p.read(ctx)
		return p.file, text, err
	}
	all, err := p.all(ctx)
	for _, d := range all {
		if d.Version == p.version && d.Text != nil {
			return fmt.Sprint("version ", d.Version), d.Text, nil
		}
	}
	return "", nil, cmp.Or(err, fmt.Errorf("version %d is not kept: ratelimit history lists those that are", p.version))
}

// all returns the documents that are kept, the newest first.
func (p *program) all(ctx context.Context) ([]rulefile.Document, error) {
	current, err := p.current(ctx)
	if err != nil {
		return nil, err
	}
	past, err := p.fleet.History(ctx)
	return append([]rulefile.Document{current}, past...), err
}

// title names a document as one line.
func title(d rulefile.Document) string {
	if d.Version < 0 {
		return "a value that publish has not written"
	}
	if d.Version == 0 {
		return "nothing published"
	}
	if d.At.IsZero() {
		return fmt.Sprintf("version %d, changed by hand", d.Version)
	}
	return visible(fmt.Sprintf("version %d, %s, %s: %s", d.Version, d.At.Format(time.RFC3339), d.By, d.Note))
}

// diff shows how a document differs from that in force.
func (p *program) diff(ctx context.Context) error {
	name, text, err := p.next(ctx)
	same := false
	if err == nil {
		_, same, err = p.compare(ctx, name, text)
	}
	switch {
	case err != nil:
		return cli.Exit{Code: 2, Err: err}
	case !same:
		return cli.Exit{Code: 1}
	}
	return nil
}

// compare shows how a document differs from that in force, which it returns.
func (p *program) compare(ctx context.Context, name string, text []byte) (current rulefile.Document, same bool, err error) {
	if current, err = p.current(ctx); err != nil {
		return current, false, err
	}
	if current.Text != nil && bytes.Equal(current.Text, text) {
		_, err = fmt.Fprintln(p.Out, "in force already:", title(current))
		return current, true, err
	}
	_, err = fmt.Fprintf(p.Out, "--- %s\n+++ %s\n%s", title(current), visible(name), difference(string(current.Text), string(text)))
	return current, false, err
}

// publish checks a document, shows what it changes, asks, and publishes it.
func (p *program) publish(ctx context.Context) error {
	name, text, err := p.next(ctx)
	if err == nil {
		err = p.parse(name, text, io.Discard)
	}
	if err != nil {
		return err
	}
	current, same, err := p.compare(ctx, name, text)
	if err != nil || same {
		return err
	}
	if p.replaces >= 0 && current.Version != p.replaces {
		return fmt.Errorf("nothing was published: the file was made from version %d, and in force is %s; merge the difference above into the file, and write the version in force behind -replaces",
			p.replaces, title(current))
	}
	if !p.yes {
		as := ""
		if current.Version > 0 { // otherwise the history says which is next
			as = fmt.Sprintf(" as version %d", current.Version+1)
		}
		_, _ = fmt.Fprintf(p.Out, "publish this for %s%s? [y/N] ", p.namespace, as)
		answer, _ := bufio.NewReader(p.In).ReadString('\n')
		if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
			return errors.New("nothing was published: answer y, or write -yes to publish without being asked")
		}
	}
	next := rulefile.Document{Text: text, By: p.by, Note: p.note}
	if next.By == "" {
		if u, err := user.Current(); err == nil {
			next.By = u.Username
		}
	}
	if next.Note == "" && p.version > 0 {
		next.Note = fmt.Sprintf("version %d again", p.version)
	}
	version, err := p.fleet.Publish(ctx, next, current.Version)
	switch {
	case errors.Is(err, rulefile.ErrConflict):
		return errors.New("nothing was published: another publisher was first; look at ratelimit diff, and publish again")
	case err != nil:
		return fmt.Errorf("%w\nlook at ratelimit history: the document may be published although the answer was lost", err)
	}
	_, err = fmt.Fprintf(p.Out, "published: version %d; ratelimit_rules_version shows where it is in force\n", version)
	return err
}

// history lists the versions that are kept, the newest first.
func (p *program) history(ctx context.Context) error {
	all, err := p.all(ctx)
	if err != nil {
		return err
	}
	if all[0].Version == 0 {
		_, _ = fmt.Fprintln(p.Out, "nothing is published")
	}
	w := tabwriter.NewWriter(p.Out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "VERSION\tPUBLISHED\tBY\tNOTE")
	for _, d := range all {
		if d.Text != nil {
			_, _ = fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", d.Version, d.At.Format(time.RFC3339), visible(d.By), visible(d.Note))
		}
	}
	return w.Flush()
}

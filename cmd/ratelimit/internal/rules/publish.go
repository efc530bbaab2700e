package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
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

	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

// connected calls a command with a connection to the document. The URL may have a
// password, so no error quotes it.
func (p *program) connected(command func(context.Context) error) error {
	logging.Disable() // errors are returned
	options, err := redis.ParseURL(cmp.Or(p.redis, os.Getenv("REDIS_URL")))
	if err != nil {
		return errors.New("-redis or REDIS_URL: no URL of a Redis; write redis://:password@host:6379/0, and rediss:// for TLS")
	}
	client := redis.NewClient(options)
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
		_, _ = fmt.Fprintln(p.stderr, err)
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
	return "", nil, cmp.Or(err, fmt.Errorf("version %d is not kept: rules history lists those that are", p.version))
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
	if err == nil {
		_, _, err = p.compare(ctx, name, text)
	}
	return err
}

// compare shows how a document differs from that in force, which it returns.
func (p *program) compare(ctx context.Context, name string, text []byte) (current rulefile.Document, same bool, err error) {
	if current, err = p.current(ctx); err != nil {
		return current, false, err
	}
	if current.Text != nil && bytes.Equal(current.Text, text) {
		_, err = fmt.Fprintln(p.stdout, "in force already:", title(current))
		return current, true, err
	}
	_, err = fmt.Fprintf(p.stdout, "--- %s\n+++ %s\n%s", title(current), visible(name), difference(string(current.Text), string(text)))
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
		_, _ = fmt.Fprintf(p.stdout, "publish this for %s%s? [y/N] ", p.namespace, as)
		answer, _ := bufio.NewReader(p.stdin).ReadString('\n')
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
		return errors.New("nothing was published: another publisher was first; look at rules diff, and publish again")
	case err != nil:
		return fmt.Errorf("%w\nlook at rules history: the document may be published although the answer was lost", err)
	}
	_, err = fmt.Fprintf(p.stdout, "published: version %d; ratelimit_rules_version shows where it is in force\n", version)
	return err
}

// history lists the versions that are kept, the newest first.
func (p *program) history(ctx context.Context) error {
	all, err := p.all(ctx)
	if err != nil {
		return err
	}
	if all[0].Version == 0 {
		_, _ = fmt.Fprintln(p.stdout, "nothing is published")
	}
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "VERSION\tPUBLISHED\tBY\tNOTE")
	for _, d := range all {
		if d.Text != nil {
			_, _ = fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", d.Version, d.At.Format(time.RFC3339), visible(d.By), visible(d.Note))
		}
	}
	return w.Flush()
}

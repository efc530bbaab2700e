package rulefile

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/internal/given"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// A Loader reads rules, and keeps a Middleware up to date. Source is required.
// It has no hidden state and may be copied.
type Loader struct {
	// Source is where the document is.
	Source Source

	// Keys are the keys that rules may use besides "header:NAME", "apikey:NAME" and "cookie:NAME", by
	// name: letters, digits, '-', '_' and '.', at most 64. "ip" defaults to
	// [keyfunc.IP], and "everyone" to [keyfunc.Everyone]. Behind reverse proxies set
	// "ip" to Proxies.IP. There are no other defaults: add "user" and "route" if rules
	// use them.
	Keys map[string]keyfunc.Key

	// KeyFor returns the Key for a name that Keys does not have, or nil. It is called for
	// each such name in a document. It is for tools that read the rules of other programs.
	// A nil KeyFor adds no keys.
	KeyFor func(name string) keyfunc.Key

	// Tiers are the names of tiers that rules may use; nil means any name.
	Tiers []string

	// Edit adds what a file cannot contain: LimitsFor, CostFor, rules in code. It may
	// change the slice that it is given. If Edit is nil, the rules stay as they are.
	Edit func([]ratelimit.Rule) ([]ratelimit.Rule, error)

	// Every is how often Watch reads the source; 0 means 2 s, below 10 ms is an error of
	// every read.
	Every time.Duration

	// Logger receives the messages of Watch that the Middleware does not log; nil
	// means slog.Default().
	Logger *slog.Logger
}

// least is the least of Every.
const least = 10 * time.Millisecond

func (l *Loader) every() time.Duration { return cmp.Or(l.Every, 2*time.Second) }

func (l *Loader) logger() *slog.Logger { return cmp.Or(l.Logger, slog.Default()) }

// Load reads the rules, or returns every mistake in the document, each an
// [*Error], joined. If the source cannot be read, the error wraps the source's error.
func (l *Loader) Load(ctx context.Context) ([]ratelimit.Rule, error) {
	d, err := l.read(ctx)
	if err != nil {
		return nil, err
	}
	return l.Parse(nameOf(l.Source), d.Text)
}

// read returns the document; its version only if the source counts versions.
func (l *Loader) read(ctx context.Context) (d Document, err error) {
	if l.Source == nil {
		return d, errors.New("rulefile: Loader.Source: required; use rulefile.File or rulefile.Fleet")
	}
	if err := given.TooShort("Loader.Every:", l.every(), least); err != nil {
		return d, fmt.Errorf("rulefile: %w", problem(err.Error()))
	}
	if s, ok := l.Source.(interface {
		Document(ctx context.Context) (Document, error)
	}); ok {
		d, err = s.Document(ctx)
	} else {
		d.Text, err = l.Source.Read(ctx)
	}
	if name := printable(nameOf(l.Source)); err != nil && !strings.Contains(err.Error(), name) {
		err = fmt.Errorf("%s: %w", name, err)
	}
	if err != nil {
		return Document{}, fmt.Errorf("rulefile: %w", err)
	}
	return d, nil
}

// Parse reads the rules from text. Errors show the name.
func (l *Loader) Parse(name string, text []byte) ([]ratelimit.Rule, error) {
	keys, err := vocabulary(l.Keys)
	if err != nil {
		return nil, err
	}
	d := &decoder{name: name, keys: keys, keyFor: l.KeyFor, tiers: l.Tiers}
	rules, err := d.decode(text)
	if err != nil || l.Edit == nil {
		return rules, err
	}
	if rules, err = l.Edit(rules); err == nil {
		err = ratelimit.ValidateRules(rules)
	}
	if err != nil {
		return nil, fmt.Errorf("rulefile: %s: Loader.Edit: %w", printable(name), err)
	}
	return rules, nil
}

// Reload sets the rules of m now, for example on SIGHUP. Like Watch it reads the
// document twice. Each read takes at most 5 s. If Reload fails, the rules in force
// stay, and Reload returns the error, which m has counted, and logged unless it repeats
// the last one.
//
// Several goroutines may call Reload at once, even while Watch runs. The call that sets
// its rules last has read the document after all other calls had set their rules.
func (l *Loader) Reload(ctx context.Context, m *ratelimit.Middleware) (err error) {
	for range maxReads {
		revision := m.RulesRevision()
		var d Document
		d, err = l.readInTime(ctx)
		if d, err = l.settle(ctx, d, err); err != nil {
			m.RulesFailed(err)
		} else {
			err = l.set(m, d)
		}
		if m.RulesRevision() == revision+1 {
			return err
		}
	}
	return err
}

// set puts the rules of a document in force. An error was logged and counted.
func (l *Loader) set(m *ratelimit.Middleware, d Document) error {
	rules, err := l.Parse(nameOf(l.Source), d.Text)
	if err != nil {
		m.RulesFailed(err)
		return err
	}
	return m.SetRulesVersion(rules, d.Version)
}

const (
	readTimeout = 5 * time.Second
	maxSettle   = 200 * time.Millisecond
	maxReads    = 10 // of a document that changes each time
)

func (l *Loader) readInTime(ctx context.Context) (Document, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return l.read(ctx)
}

// settle reads until it reads the same twice, because half of a rule file is often a
// good one.
func (l *Loader) settle(ctx context.Context, d Document, err error) (Document, error) {
	for range maxReads {
		if !sleep(ctx, min(maxSettle, max(l.every(), least))) {
			return Document{}, fmt.Errorf("rulefile: %w", ctx.Err())
		}
		again, errAgain := l.readInTime(ctx)
		if d.same(again) && reason(err) == reason(errAgain) {
			return again, errAgain
		}
		d, err = again, errAgain
	}
	return Document{}, fmt.Errorf("rulefile: %w", problem(printable(nameOf(l.Source))+
		" is another document each time it is read: write another file and rename it, and look for a second writer"))
}

func (d *Document) same(other Document) bool {
	return d.Version == other.Version && bytes.Equal(d.Text, other.Text)
}

// reason returns one text for all errors with the same remedy. The texts of the errors
// differ too often: errors of a network have another port each time.
func reason(err error) string {
	if p, ok := errors.AsType[problem](err); ok {
		return string(p)
	}
	if reply, ok := errors.AsType[redis.Error](err); ok {
		code, _, _ := strings.Cut(reply.Error(), " ")
		return code
	}
	switch {
	case err == nil:
		return ""
	case errors.Is(err, fs.ErrNotExist):
		return "missing"
	case errors.Is(err, fs.ErrPermission):
		return "not permitted"
	}
	return "unreadable"
}

// sleep waits for d, and reports whether ctx has not ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

package rulefile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// A Loader reads rules, and keeps a Middleware up to date. Source is required.
// It has no hidden state and may be copied.
type Loader struct {
	// Source has the document.
	Source Source

	// Keys are the names for a rule's key beside "header:NAME" and "apikey:NAME":
	// letters, digits, '-', '_' and '.', at most 64. Without "ip" here, that is
	// [keyfunc.IP]; without "everyone", that is [keyfunc.Everyone]. Behind reverse
	// proxies set "ip" to Proxies.IP. "user" and "route" are here or nowhere.
	Keys map[string]keyfunc.Key

	// Tiers are the names that rules may use; nil means any.
	Tiers []string

	// Edit completes the rules with what no file can say: LimitFor, CostFor, rules
	// in code. The slice is Edit's to change. nil means as they are.
	Edit func([]ratelimit.Rule) ([]ratelimit.Rule, error)

	// Every is how often Watch looks; 0 means 2 s.
	Every time.Duration

	// Logger receives what Watch has to say beside the log of the Middleware; nil
	// means slog.Default().
	Logger *slog.Logger
}

func (l *Loader) logger() *slog.Logger { return cmp.Or(l.Logger, slog.Default()) }

// Load reads the rules, or returns every mistake in the document, each an
// [*Error], joined. If the source cannot be read, the error wraps the source's.
func (l *Loader) Load(ctx context.Context) ([]ratelimit.Rule, error) {
	text, err := l.read(ctx)
	if err != nil {
		return nil, err
	}
	return l.Parse(nameOf(l.Source), text)
}

func (l *Loader) read(ctx context.Context) ([]byte, error) {
	if l.Source == nil {
		return nil, errors.New("rulefile: Loader.Source: required; use rulefile.File or rulefile.Fleet")
	}
	text, err := l.Source.Read(ctx)
	if err != nil {
		return nil, fmt.Errorf("rulefile: %w", err)
	}
	return text, nil
}

// Parse reads the rules from text, whose name is for errors.
func (l *Loader) Parse(name string, text []byte) ([]ratelimit.Rule, error) {
	keys, err := vocabulary(l.Keys)
	if err != nil {
		return nil, err
	}
	d := &decoder{name: name, keys: keys, tiers: l.Tiers}
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

// Reload sets the rules of m now, as on SIGHUP. Like Watch it reads a document
// twice, and waits 5 s for each. If it fails, the rules in force stay, m.RulesFailed
// has logged and counted why, and Reload returns it.
//
// Loaders may reload at once, also beside Watch: the one that sets its rules last
// has read the document after all others had set theirs.
func (l *Loader) Reload(ctx context.Context, m *ratelimit.Middleware) (err error) {
	for range maxReads {
		revision := m.RulesRevision()
		var text []byte
		text, err = l.readInTime(ctx)
		if text, err = l.settle(ctx, text, err); err != nil {
			m.RulesFailed(err)
		} else {
			err = l.set(m, text)
		}
		if m.RulesRevision() == revision+1 {
			return err
		}
	}
	return err
}

// set puts the rules of a document in force.
func (l *Loader) set(m *ratelimit.Middleware, text []byte) error {
	rules, err := l.Parse(nameOf(l.Source), text)
	if err == nil {
		err = m.SetRules(rules)
	}
	if err != nil {
		m.RulesFailed(err)
	}
	return err
}

package rulefile

import (
	"context"
	"sync"

	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// watching has the *watcher of each Middleware that has one.
var watching sync.Map

// Watch sets the rules of m when it begins and whenever the document changes, until
// ctx ends. If the document is invalid or cannot be read, the rules in force stay, and
// Watch calls m.RulesFailed once.
//
// Watch compares texts, so it notices every change: a file that is written in place,
// renamed, or mounted anew. A change takes effect once Watch has read it twice, a
// fifth of a second apart, because half a file may be a valid document. A program
// that takes longer to write should write another file and rename it.
//
// The document has the last word. If anything else, such as Reload or m.SetRules, has
// set the rules of m or tried to, the next read sets the rules of the document again.
//
// A Middleware has one Watch at a time. A second Watch of m logs that it waits, and
// begins when the first has ended.
func (l *Loader) Watch(ctx context.Context, m *ratelimit.Middleware) {
	w := &watcher{loader: l, middleware: m, ended: make(chan struct{})}
	if !w.begin(ctx) {
		return
	}
	if fleet, ok := l.Source.(Fleet); ok { // then operators can add overrides to it
		m.Operator().SetEditor(func(ctx context.Context, rule string, overrides []ratelimit.Override) (int64, error) {
			return l.raise(ctx, fleet, rule, overrides)
		})
	}
	defer func() {
		m.Operator().SetEditor(nil)
		watching.Delete(m)
		close(w.ended)
	}()
	for {
		w.look(ctx)
		if !sleep(ctx, max(l.every(), least)) {
			return
		}
	}
}

// A watcher compares the document with the one that it read last.
type watcher struct {
	loader     *Loader
	middleware *ratelimit.Middleware
	ended      chan struct{}

	seen     bool // there was a document, which was set or reported as bad
	document Document
	away     string // the reason why there was none, which was reported
	revision uint64 // of the middleware after that, unless something else has set rules
	version  int64  // of the last document, if its source counts versions
}

// begin waits until no other watcher has the middleware. It returns false if ctx ends
// first.
func (w *watcher) begin(ctx context.Context) bool {
	for said := false; ; said = true {
		found, taken := watching.LoadOrStore(w.middleware, w)
		if !taken {
			return true
		}
		other := found.(*watcher)
		if !said {
			w.loader.logger().Error("ratelimit: rules not watched: the Middleware follows another Watch, and this one waits until that ends",
				"source", nameOf(w.loader.Source), "watched", nameOf(other.loader.Source))
		}
		select {
		case <-ctx.Done():
			return false
		case <-other.ended:
		}
	}
}

// look brings the rules up to date with the document.
func (w *watcher) look(ctx context.Context) {
	revision := w.middleware.RulesRevision()
	displaced := w.revision != 0 && w.revision != revision
	d, err := w.loader.readInTime(ctx)
	if !displaced && !w.news(d, err) {
		return
	}
	d, err = w.loader.settle(ctx, d, err)
	news := w.news(d, err)
	if ctx.Err() != nil || !news && !displaced { // a change that was taken back within a fifth of a second
		return
	}
	w.revision = revision + 1
	if err != nil {
		w.seen, w.document, w.away = false, Document{}, reason(err) // the same text is set again when it is back
		w.middleware.RulesFailed(err)
		return
	}
	w.seen, w.document, w.away = true, d, ""
	if d.Version < w.version {
		w.loader.logger().Warn("ratelimit: Redis has lost versions of the rules: publish again if those in force are too old",
			"source", nameOf(w.loader.Source), "version", d.Version, "lost", w.version)
	}
	w.version = d.Version
	if err := w.loader.set(w.middleware, d); err == nil && !news { // an error was reported
		w.loader.logger().Info("ratelimit: the rules of the document are set again: Reload, SetRules or another loader has set rules, or failed to",
			"source", nameOf(w.loader.Source))
	}
}

// news reports whether a document or an error differs from the last one.
func (w *watcher) news(d Document, err error) bool {
	if err != nil {
		return w.away != reason(err)
	}
	return !w.seen || !d.same(w.document)
}

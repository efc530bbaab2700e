package rulefile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

const (
	defaultEvery = 2 * time.Second
	readTimeout  = 5 * time.Second
	maxSettle    = 200 * time.Millisecond
	maxReads     = 10 // of a document that changes each time
)

// watching has the *watcher of each Middleware that has one.
var watching sync.Map

// Watch sets the rules of m when it begins and whenever the document changes, until
// ctx ends. If the document is bad or cannot be read, the rules in force stay, and
// Watch calls m.RulesFailed once.
//
// Watch compares texts, so it notices every change: a file that is written in place,
// renamed, or mounted anew. A change takes effect once Watch has read it twice, a
// fifth of a second apart, because the first half of a file may be good. A program
// that takes longer to write should write another file and rename it.
//
// The document has the last word. If anything else sets the rules of m or fails to,
// such as Reload or m.SetRules, the next read sets the rules of the document again.
//
// A Middleware has one Watch at a time. A second Watch of m logs that it waits, and
// begins when the first has ended.
func (l *Loader) Watch(ctx context.Context, m *ratelimit.Middleware) {
	w := &watcher{loader: l, middleware: m, ended: make(chan struct{})}
	if !w.begin(ctx) {
		return
	}
	defer func() {
		watching.Delete(m)
		close(w.ended)
	}()
	every := defaultEvery
	if l.Every > 0 {
		every = l.Every
	}
	for {
		w.look(ctx)
		if !sleep(ctx, every) {
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
	switch news := w.news(d, err); {
	case ctx.Err() != nil:
		return
	case !news && !displaced:
		return // a change that was taken back within a fifth of a second
	case !news:
		w.loader.logger().Info("ratelimit: the rules of the document are set again: something else has set rules, or failed to",
			"source", nameOf(w.loader.Source))
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
	_ = w.loader.set(w.middleware, d) // reported
}

// news reports whether a document or an error differs from the last one.
func (w *watcher) news(d Document, err error) bool {
	if err != nil {
		return w.away != reason(err)
	}
	return !w.seen || !d.same(w.document)
}

// same reports whether two documents have the same version and text.
func (d *Document) same(other Document) bool {
	return d.Version == other.Version && bytes.Equal(d.Text, other.Text)
}

// readInTime reads the source, and waits for it no longer than readTimeout.
func (l *Loader) readInTime(ctx context.Context) (Document, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return l.read(ctx)
}

// settle reads until it reads the same twice, because half of a rule file is often a
// good one.
func (l *Loader) settle(ctx context.Context, d Document, err error) (Document, error) {
	pause := maxSettle
	if l.Every > 0 {
		pause = min(pause, l.Every)
	}
	for range maxReads {
		if !sleep(ctx, pause) {
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

package rulefile

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"time"

	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

const (
	defaultEvery = 2 * time.Second
	readTimeout  = 5 * time.Second // of a source that heeds its context
	maxSettle    = 200 * time.Millisecond
)

// Watch sets the rules of m when it begins and whenever the document changes, until
// ctx ends. A bad document keeps the old rules and goes to m.RulesFailed, once; so
// does a source that cannot be read, until it can be again.
//
// Watch compares what it reads, so it notices a document however it was replaced:
// written in place, renamed, or mounted anew. A change counts once it has been read
// twice, a fifth of a second apart, so that no rule is lost with the second half of
// a file that is being written. Whoever takes longer to write writes another file
// and renames it.
//
// Watch one source for each Middleware: two would take turns.
func (l *Loader) Watch(ctx context.Context, m *ratelimit.Middleware) {
	w := watcher{loader: l, middleware: m, every: defaultEvery}
	if l.Every > 0 {
		w.every = l.Every
	}
	for {
		w.look(ctx)
		if !sleep(ctx, w.every) {
			return
		}
	}
}

// A watcher knows what it saw last.
type watcher struct {
	loader     *Loader
	middleware *ratelimit.Middleware
	every      time.Duration

	seen bool // there was a document, which was set or reported
	text []byte
	away string // why there was none, which was reported
}

// look brings the rules up to date with the document.
func (w *watcher) look(ctx context.Context) {
	text, err := w.read(ctx)
	if !w.news(text, err) {
		return
	}
	if !sleep(ctx, min(maxSettle, w.every)) {
		return
	}
	again, err := w.read(ctx)
	switch {
	case ctx.Err() != nil, !w.news(again, err), !bytes.Equal(text, again):
		// It is being written: the next look sees what comes of it.
	case err != nil:
		w.seen, w.text, w.away = false, nil, reason(err) // what comes back is set, which says that it is back
		w.middleware.RulesFailed(err)
	default:
		w.seen, w.text, w.away = true, text, ""
		_ = w.loader.set(w.middleware, text) // reported
	}
}

// news reports whether what was read is not what was seen last.
func (w *watcher) news(text []byte, err error) bool {
	if err != nil {
		return w.away != reason(err)
	}
	return !w.seen || !bytes.Equal(text, w.text)
}

func (w *watcher) read(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return w.loader.read(ctx)
}

// reason tells apart errors about which different things are to be done. Their
// texts differ too often: those of a network have another port in them each time.
func reason(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "missing"
	case errors.Is(err, fs.ErrPermission):
		return "not permitted"
	}
	return "unreadable"
}

// sleep reports whether d went by before ctx ended.
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

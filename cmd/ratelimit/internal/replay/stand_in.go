package replay

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// A watched key counts the requests that do not have it. Where the program's own
// key is missing, the rule does not apply. Nor does it before the logs have the key:
// if they never do, all clients would be one.
type watched struct {
	keyfunc.Described
	replay *replay
	rule   *rule
	begun  bool // the logs have the key
}

func (k *watched) Resolve(r *http.Request) (string, error) {
	if k.rule.notReplayed != "" {
		return "", keyfunc.ErrSkip
	}
	if k.begun = k.begun || !slices.ContainsFunc(k.rule.names, k.replay.lacks); !k.begun {
		k.rule.early++
		return "", keyfunc.ErrSkip
	}
	text, err := k.Described.Resolve(r)
	if errors.Is(err, keyfunc.ErrNoKey) {
		k.rule.absent++
		if k.rule.ownKey() {
			return "", keyfunc.ErrSkip
		}
	}
	return text, err
}

// ownKey reports whether a part of the key is the program's own.
func (r *rule) ownKey() bool { return slices.ContainsFunc(r.names, isOwn) }

func isOwn(name string) bool {
	return name != "ip" && name != "everyone" && !strings.Contains(name, ":")
}

// patient is a Memory without waiting in queues, because the log has the time of each
// request.
type patient struct{ *algorithms.Memory }

func (m patient) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	d, err := m.Memory.Take(ctx, checks...)
	for i := range d.Results {
		d.Results[i].Delay = 0
	}
	return d, err
}

func (m patient) Unwrap() algorithms.Limiter { return m.Memory }

// nowhere is where the responses go.
type nowhere struct{ header http.Header }

func (w nowhere) Header() http.Header         { return w.header }
func (w nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (w nowhere) WriteHeader(int)             {}

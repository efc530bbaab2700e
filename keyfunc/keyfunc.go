package keyfunc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// A Func returns the key that a request is counted under. Requests of one rule
// with equal keys share one count.
//
// It returns [ErrNoKey] for a request that has no key, and [ErrSkip] for one the
// rule does not apply to; both may be wrapped, so test with [errors.Is]. An empty
// key without an error means ErrNoKey. A [StatusError] says that the request must
// be refused. Any other error says that the Func itself failed, and is no reason to
// let the request pass uncounted.
//
// A Func is called by many requests at once and must be safe for that. It must
// not change the request, nor read its body unless it puts back what it has read,
// as [Body] does.
type Func func(*http.Request) (string, error)

var (
	// ErrNoKey says that a request has no key: nobody is logged in, a header is
	// missing, an address cannot be read. The requests without a key share one
	// bucket per rule; [Required] refuses them and [Optional] exempts them instead.
	ErrNoKey = errors.New("keyfunc: no key")

	// ErrSkip says that the rule does not apply to the request, which it then
	// neither counts nor limits.
	ErrSkip = errors.New("keyfunc: rule does not apply")
)

// Everyone is a [Func] that gives all requests the same key, "everyone": for a
// limit on what the server takes in total. It returns no error.
func Everyone(*http.Request) (string, error) { return "everyone", nil }

// Context returns a [Func] whose key is the user ID that authentication
// middleware has put into the context of the request; user reads it from there.
// The middleware has to run before the rate limit does.
//
// The error is [ErrNoKey] if user returns false or an empty ID. It is another if
// user is nil: a mistake, reported on every request.
func Context(user func(context.Context) (string, bool)) Func {
	if user == nil {
		return failing(errors.New("keyfunc: Context of a nil function"))
	}
	missing := fmt.Errorf("%w: no user in the context of the request", ErrNoKey)
	return func(r *http.Request) (string, error) {
		id, ok := user(r.Context())
		if !ok || id == "" {
			return "", missing
		}
		return id, nil
	}
}

// failing returns the Func for arguments that make no Func. Its error wraps
// neither ErrNoKey nor ErrSkip: First and Optional would hide the mistake, and
// with it the limit.
func failing(err error) Func {
	return func(*http.Request) (string, error) { return "", err }
}

package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
)

// A StatusError says that a request must be refused with an HTTP status of its own:
// it is neither over a limit nor is anything broken. It wraps neither [ErrNoKey] nor
// [ErrSkip], so that [First] and [Optional] do not pass over it. Find it with
// [errors.AsType].
type StatusError struct {
	status int
	reason string
}

// Error says why, for logs; a client should only see the status.
func (e *StatusError) Error() string {
	return fmt.Sprintf("keyfunc: refused with status %d: %s", e.status, e.reason)
}

// Status returns the HTTP status to refuse the request with, 400 to 499.
func (e *StatusError) Status() int { return e.status }

// Required returns a [Func] with the key of f that refuses the requests for which f
// has none: it turns [ErrNoKey] into a [StatusError] with this status, such as
// [http.StatusUnauthorized] for users and [http.StatusBadRequest] for fields of the
// body. Without it such requests share one count, which one client can use up for
// all others. Other errors stay as they are.
//
// If f is nil, or the status not among 400 to 499, every request gets an error that
// says so, and is none of those above.
func Required(f Func, status int) Func {
	err := check("Required", []Func{f})
	if status < 400 || status > 499 {
		err = errors.Join(err, fmt.Errorf("keyfunc: Required: status %d: must be 400 to 499", status))
	}
	if err != nil {
		return failing(err)
	}
	return func(r *http.Request) (string, error) {
		key, err := call(f, r)
		if errors.Is(err, ErrNoKey) {
			return "", &StatusError{status, err.Error()}
		}
		return key, err
	}
}

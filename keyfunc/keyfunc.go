package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
)

// A Key identifies the client of a request. The requests of one rule that resolve
// to equal keys share one count.
//
// Most keys are [Described]. [Describe] says what holds for the others.
type Key interface {
	// Resolve returns the key of a request, or [ErrNoKey], [ErrSkip] or a
	// [*StatusError]. The error may be wrapped. An empty key without an error means
	// ErrNoKey. Any other error means that the Key failed, and refuses the request.
	//
	// Resolve is called by many goroutines at once, even for the same request. It must
	// not change the request. [BodyJSON] and [BodyForm] are an exception: without package
	// middleware, they replace the body.
	Resolve(r *http.Request) (string, error)
}

// A Described is a Key that also describes itself to package middleware. All keys of
// this package but [Func] are Described. [Join], [First], [OneOf], [Optional], [Required]
// and [Hashed] pass on what the keys in them say.
//
// A Key that wraps another Key embeds what [Describe] returns for the other, and
// overrides the methods that it changes. Its Keys must change keys as its Resolve does.
type Described interface {
	Key
	// Validate reports everything that is wrong with the key, or nil.
	Validate() error
	// String returns the key's name in listings and rule files, such as "ip".
	String() string
	// ReadsBody reports whether the key reads the body. Such keys are resolved last.
	ReadsBody() bool
	// Values returns how many plain values Keys takes: 0 if all requests have one key.
	Values() int
	// Keys returns the keys that an operator's plain values stand for: "2001:db8::1"
	// is counted as "2001:db8::/64". A key as [APIKey], [Cookie] and [Hashed] store it, such as
	// "apikey:" and 22 letters, stands for itself.
	Keys(values ...string) ([]string, error)
	// Secret reports whether plain values are secret or personal. Such values are not
	// shown, and an Override names its client by the key instead.
	Secret() bool
}

// Describe returns k if it is [Described]. It describes any other Key as valid and not
// secret, as reading no body, and as taking one plain value, which is the key. The name is
// the result of k's method String or, without it, k's type. But Validate reports a mistake
// if k is nil, if k has, besides String, some methods of Described but not all, or if k
// embeds a Key, because the embedded Key's methods of Described would not be used.
func Describe(k Key) Described {
	if k, ok := k.(Described); ok {
		return k
	}
	if k := own(k); k != nil {
		return k
	}
	return &key{name: "nil", takes: 1, mistake: mistake("Describe", "the key is nil")}
}

// A Func is an ordinary function used as a [Key]. It must not read the body, nor call
// methods of the request that do, such as FormValue. To limit by a field of the body,
// use [BodyJSON] or [BodyForm].
type Func func(r *http.Request) (string, error)

// Resolve calls f.
func (f Func) Resolve(r *http.Request) (string, error) { return f(r) }

var (
	// ErrNoKey says that a request has no key: no user is logged in, a header is
	// missing, an address cannot be read. The requests without a key share one count
	// per rule, unless [Required] refuses them or [Optional] exempts them.
	ErrNoKey = errors.New("keyfunc: no key")

	// ErrSkip says that the rule does not apply to the request: the rule neither counts
	// nor limits it.
	ErrSkip = errors.New("keyfunc: rule does not apply")
)

// A StatusError refuses a request with an HTTP status of its own, although the request
// is not over a limit and nothing is broken. [First] and [Optional] return it
// unchanged. Find it with [errors.AsType].
type StatusError struct {
	Status int    // 400 to 499
	Reason string // for logs; clients only see the status
}

// Error returns the status and the reason, for logs.
func (e *StatusError) Error() string {
	return fmt.Sprintf("keyfunc: refused with status %d: %s", e.Status, e.Reason)
}

// Everyone gives all requests one key, "everyone", to limit what the server takes
// in total. It returns no error.
var Everyone Key = everyone()

func everyone() *key {
	const text = "everyone"
	return &key{
		name:    text,
		resolve: func(*http.Request) (string, error) { return text, nil },
		keys: func(values []string) ([]string, error) {
			if len(values) > 0 {
				return nil, fmt.Errorf("keyfunc: %s: takes no value, got %d", text, len(values))
			}
			return []string{text}, nil
		},
		exact: func([]string) (string, error) {
			return "", errors.New("all clients have one key: change the limit")
		},
	}
}

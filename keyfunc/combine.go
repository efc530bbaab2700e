package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
)

// Join returns a [Func] whose key is made of the keys of all fs: one count for
// each combination. Each part is preceded by its length, as in "5:alice,4:eu-1",
// so that no two combinations give one key, whatever the parts contain.
//
// The error is that of the first of fs that fails, as it is. If fs is empty or one
// of them nil, every request gets an error that says so and wraps neither
// [ErrNoKey] nor [ErrSkip].
func Join(fs ...Func) Func {
	if err := check("Join", fs); err != nil {
		return failing(err)
	}
	fs = slices.Clone(fs)
	return func(r *http.Request) (string, error) {
		joined := make([]byte, 0, 64)
		for i, f := range fs {
			part, err := call(f, r)
			if err != nil {
				return "", err
			}
			if i > 0 {
				joined = append(joined, ',')
			}
			joined = strconv.AppendInt(joined, int64(len(part)), 10)
			joined = append(joined, ':')
			joined = append(joined, part...)
		}
		return string(joined), nil
	}
}

// First returns a [Func] whose key is that of the first of fs that has one, such
// as the user's or else the address. The key says which it was, as in "1:alice" and
// "2:203.0.113.9", so that a user by the name of 203.0.113.9 has another. Another
// order of fs therefore starts all counts anew.
//
// Only [ErrNoKey] moves on to the next; where none has a key, the last one's is the
// error. [ErrSkip] and all other errors are returned at once. If fs is empty or one
// of them nil, every request gets an error that says so and wraps neither of the
// two.
func First(fs ...Func) Func {
	if err := check("First", fs); err != nil {
		return failing(err)
	}
	fs = slices.Clone(fs)
	return func(r *http.Request) (string, error) {
		var last error
		for i, f := range fs {
			key, err := call(f, r)
			if err == nil {
				return strconv.Itoa(i+1) + ":" + key, nil
			}
			if !errors.Is(err, ErrNoKey) {
				return "", err
			}
			last = err
		}
		return "", last
	}
}

// Optional returns a [Func] with the key of f, and [ErrSkip] where f has none: the
// rule then does not apply. Other errors stay as they are.
//
// It makes the limit one that a client can leave, by not logging in or by leaving
// out a header, and so needs another rule beside it that counts all requests. If f
// is nil, every request gets an error that says so and wraps neither [ErrNoKey] nor
// ErrSkip.
func Optional(f Func) Func {
	if err := check("Optional", []Func{f}); err != nil {
		return failing(err)
	}
	return func(r *http.Request) (string, error) {
		key, err := call(f, r)
		if errors.Is(err, ErrNoKey) {
			return "", ErrSkip
		}
		return key, err
	}
}

// call returns what f does, and ErrNoKey for an empty key, as Func says.
func call(f Func, r *http.Request) (string, error) {
	key, err := f(r)
	if err == nil && key == "" {
		err = ErrNoKey
	}
	return key, err
}

// check reports every mistake in the arguments of a combinator. It runs when the
// Func is made, for a nil that only some requests reach could stay hidden for long.
func check(combinator string, fs []Func) error {
	if len(fs) == 0 {
		return fmt.Errorf("keyfunc: %s of no Funcs", combinator)
	}
	var errs []error
	for i, f := range fs {
		if f == nil {
			errs = append(errs, fmt.Errorf("keyfunc: %s: Func %d of %d is nil", combinator, i+1, len(fs)))
		}
	}
	return errors.Join(errs...)
}

// Package hint is how keys of package keyfunc tell package middleware what it needs
// to find mistakes in the set-up and to name one client, without a place in the API for it.
package hint

import (
	"cmp"
	"errors"
	"fmt"
)

// ErrNoRoute is wrapped by the errors of [Traits].Route: the route of the request is
// not known, or not yet.
var ErrNoRoute = errors.New("the request matches no route")

// Traits say what a key is made of. The zero value is something that no client can
// choose, such as the user whom the program has authenticated.
type Traits struct {
	Address bool   // it has the client's address
	Route   bool   // it has the route
	Opaque  bool   // it has what a function of the program returns
	Chosen  string // what it has that a client can make up, such as "a header"; "" if nothing
}

// And returns the traits of a key that is made of two.
func (t Traits) And(other Traits) Traits {
	return Traits{t.Address || other.Address, t.Route || other.Route, t.Opaque || other.Opaque, cmp.Or(t.Chosen, other.Chosen)}
}

// Of returns the traits of a key.
func Of(key any) Traits {
	if k, ok := key.(interface{ Traits() Traits }); ok {
		return k.Traits()
	}
	return Traits{Opaque: true}
}

// A Plain is what Keys and Exact need of a keyfunc.Described.
type Plain interface {
	String() string
	Values() int
	Keys(values ...string) ([]string, error)
	Secret() bool
}

// Keys returns the keys that values stand for. A key of a program's own never sees another
// number of values than it takes.
func Keys(key Plain, values []string) ([]string, error) {
	if _, counts := key.(interface {
		Exact([]string) (string, error)
	}); !counts && len(values) != key.Values() {
		return nil, fmt.Errorf("%s: takes %d plain values, got %d", key, key.Values(), len(values))
	}
	return key.Keys(values...)
}

// Exact returns the one key that values stand for. If they could stand for several, or
// hold a secret, the error says what to write instead.
func Exact(key Plain, values []string) (string, error) {
	if k, ok := key.(interface {
		Exact([]string) (string, error)
	}); ok {
		return k.Exact(values)
	}
	keys, err := Keys(key, values)
	switch {
	case err != nil:
		return "", err
	case len(keys) != 1:
		return "", fmt.Errorf("stands for %d keys", len(keys))
	case key.Secret() && (len(values) != 1 || values[0] != keys[0]):
		return "", errors.New("a secret: let the method Keys return a stored form as it is, and write that")
	}
	return keys[0], nil
}

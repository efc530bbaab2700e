// Package hint is how keys of package keyfunc tell package middleware what it needs
// to find mistakes in the set-up, without a place in the API for it.
package hint

import (
	"cmp"
	"errors"
)

// ErrNoRoute is wrapped by the errors of [Traits].Route: the route of the request is
// not known, or not yet.
var ErrNoRoute = errors.New("the request matches no route")

// Traits say what a key is made of. The zero value is something that no client can
// choose, such as the user whom the program has authenticated.
type Traits struct {
	Address bool   // it has the client's address
	Route   bool   // it has the route, by a function of the program
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

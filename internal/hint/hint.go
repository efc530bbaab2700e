// Package hint is how keys of package keyfunc tell package middleware what looks
// like a mistake in the set-up, without a place in the API for it.
package hint

import "errors"

// ErrNoRoute is wrapped by the errors of route keys: the route of the request is not
// known, or not yet.
var ErrNoRoute = errors.New("the request matches no route")

// Of returns what looks like a mistake in how a key was made, and is none for
// certain.
func Of(key any) []string {
	if k, ok := key.(interface{ Hints() []string }); ok {
		return k.Hints()
	}
	return nil
}

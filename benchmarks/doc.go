// Package benchmarks measures what a request costs with the limits of this
// module, in a process and through Redis, beside a bare GET and beside peers.
// Everything is in its tests; results/README.md says what is measured, and
// the Makefile how:
//
//	go test -short -run '^$' -bench . | go run ./report
//
// It is a module of its own so that the peers never enter a user's go.mod.
package benchmarks

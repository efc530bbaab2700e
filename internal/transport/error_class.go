package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// An ErrorClass says how a decision failed. It says nothing about whether the server is
// well: see package monitor.
type ErrorClass string

// The classes.
const (
	// ClassTimeout: no connection, or no answer, in time.
	ClassTimeout ErrorClass = "timeout"
	// ClassConnection: no connection, or one that broke. A Sentinel that does not know the
	// master and a certificate that is not trusted count as that.
	ClassConnection ErrorClass = "connection"
	// ClassAnswer: the server answered with an error, or a limiter that is no Redis
	// returned one.
	ClassAnswer ErrorClass = "answer"
	// ClassRefused: the same, in words that say that it does not accept the credentials or
	// the client's address, or does not permit or know a command. Somebody has to act.
	ClassRefused ErrorClass = "refused"
	// ClassBusy: not sent, because this process had no connection free, too many commands
	// under way, or no time left to send a script that the server has forgotten; or not run,
	// because the key is moving to another server, which the client has not found yet.
	ClassBusy ErrorClass = "busy"
)

// ErrGone says that the node of a cluster has no slots any more, so that there
// is nothing to probe.
var ErrGone = errors.New("algorithms: the node has no slots any more")

// ErrReply says that a script answered what it cannot have: somebody else has
// written the key, or the script is not the one that this module sent.
var ErrReply = errors.New("the script's answer makes no sense")

// ErrForeign says that the value at a key is none of this module's.
var ErrForeign = errors.New("no state of a limit")

// errBusy says that a decision was not sent: this process had too many commands
// under way, for as long as the decision could wait.
var errBusy = errors.New("too many commands are under way")

// An unsentError is why a decision was not sent.
type unsentError struct{ error }

func (e unsentError) Unwrap() error { return e.error }

func isUnsent(err error) bool {
	_, ok := errors.AsType[unsentError](err)
	return ok
}

// unknownScript reports that Redis did not run a script because it has
// forgotten its text: after a restart, a failover or SCRIPT FLUSH.
func unknownScript(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") } // which allocates for none, too

// Moved reports that a server sent a command to another one: its key is moving.
func Moved(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") || redis.HasErrorPrefix(err, "TRYAGAIN"))
}

// ClassOf returns the class of a store's error, "" for nil.
func ClassOf(err error) ErrorClass {
	switch {
	case err == nil:
		return ""
	case isBusy(err), Answered(err) && (unknownScript(err) || Moved(err)):
		return ClassBusy
	case IsTimeout(err):
		return ClassTimeout
	case notConnected(err):
		return ClassConnection
	case Answered(err):
		if text := textOf(err); begins(text, refusals) || refusedInScript(text) {
			return ClassRefused
		}
		return ClassAnswer
	}
	if _, broken := errors.AsType[net.Error](err); broken || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) {
		return ClassConnection
	}
	return ClassAnswer
}

// IsTimeout reports whether no answer came in time.
func IsTimeout(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// isBusy reports that this process could not send a command. It can open no more
// connections if its files or ports ran out. Clients can do all that to it, so it proves
// nothing about Redis.
func isBusy(err error) bool {
	for _, busy := range [...]error{errBusy, redis.ErrPoolTimeout, redis.ErrPoolExhausted, syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS} {
		if errors.Is(err, busy) {
			return true
		}
	}
	return strings.Contains(err.Error(), "redis: autopipeline: queue full") // go-redis exports it since 9.23
}

// notConnected reports that there was no connection on which to send anything.
func notConnected(err error) bool {
	// What the Sentinels said is in this error too, as if Redis had said it.
	if errors.Is(err, redis.ErrClosed) || strings.Contains(err.Error(), "all sentinels specified in configuration are unreachable") {
		return true
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Op == "dial"
	}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	_, noTLS := errors.AsType[tls.RecordHeaderError](err)
	return untrusted || noTLS
}

// Answered reports that an error is what a server said, or what it cannot have meant.
func Answered(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return (ok || errors.Is(err, ErrReply) || errors.Is(err, ErrForeign)) && !notConnected(err)
}

// NotExecuted reports that it is certain that nothing was executed: there was no
// connection, nothing was sent, or the server declined in words of Redis, before it wrote.
func NotExecuted(err error) bool {
	if err == nil {
		return false
	}
	text := textOf(err)
	return isUnsent(err) || isBusy(err) || notConnected(err) || begins(text, declines) || begins(text, refusals) && !refusedInScript(text)
}

// textOf returns what an answer says; "" for what is none. Up to Redis 6.2, what a command
// in a script met comes last.
func textOf(err error) string {
	answer, ok := errors.AsType[redis.Error](err)
	if !ok {
		return ""
	}
	text := strings.TrimPrefix(answer.Error(), "ERR ")
	if strings.HasPrefix(text, "Error running script") {
		if i := strings.LastIndex(text, ": -"); i >= 0 {
			text = text[i+len(": -"):]
		}
	}
	return text
}

func begins(text string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(text, prefix) })
}

// How answers begin by which Redis declines to run a command, or a script's first command
// that writes.
var (
	refusals = []string{
		"NOAUTH", "WRONGPASS", "NOPERM",
		"DENIED",                          // protected mode
		"unknown command",                 // renamed, or not a Redis server but a Sentinel
		"AUTH ",                           // called without any password configured for the default user
		"Protocol error: unauthenticated", // what a long command gets instead of NOAUTH
	}
	declines = []string{
		"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "NOREPLICAS", "MISCONF", "OOM", "BUSY",
		"max number of clients", "NOSCRIPT", "MOVED ", "ASK ", "TRYAGAIN",
	}
)

// refusedInScript reports that a script that was already running was not permitted a
// command, by any version's words. It may have written before.
func refusedInScript(text string) bool {
	return slices.ContainsFunc([]string{
		"ACL failure in script", "The user executing the script can't",
		"Unknown Redis command called from", "Unknown command called from",
	}, func(words string) bool { return strings.Contains(text, words) })
}

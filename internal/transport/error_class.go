package transport

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// An ErrorClass says what an error of a store means for its caller.
type ErrorClass string

// The classes.
const (
	// ClassUnreachable: there was no connection. A Sentinel that does not know
	// the master and a certificate that is not trusted count as that.
	ClassUnreachable ErrorClass = "unreachable"
	// ClassBusy: this process had no connection free, too many commands under
	// way, or no time left to send a script that the server has forgotten.
	ClassBusy ErrorClass = "busy"
	// ClassUnavailable: the server cannot decide now, as while it loads, is a
	// replica, or has no memory left.
	ClassUnavailable ErrorClass = "unavailable"
	// ClassMoved: the key is moving to another server, and the client has not
	// found it yet. The servers are well.
	ClassMoved ErrorClass = "moved"
	// ClassRefused: the server does not accept the credentials or the client's
	// address, or it does not permit or know a command.
	ClassRefused ErrorClass = "refused"
	// ClassMisused: the server answered something else, as where a key holds
	// what is not ours. That concerns the check, not the server.
	ClassMisused ErrorClass = "misused"
	// ClassUnknown: no answer came. The decision may have been executed.
	ClassUnknown ErrorClass = "unknown"
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

// ClassOf returns the class of a store's error, "" for nil. An error that is
// not known, such as one of another store than Redis, is ClassUnknown.
func ClassOf(err error) ErrorClass {
	if err == nil {
		return ""
	}
	if exhausted(err) {
		return ClassBusy
	}
	if notConnected(err) {
		return ClassUnreachable
	}
	if answer, ok := errors.AsType[redis.Error](err); ok {
		return classOfAnswer(answer)
	}
	switch {
	case errors.Is(err, ErrReply), errors.Is(err, ErrForeign):
		return ClassMisused
	case errors.Is(err, errBusy), errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted),
		strings.Contains(err.Error(), "redis: autopipeline: queue full"): // go-redis exports it since 9.23
		return ClassBusy
	}
	return ClassUnknown
}

// exhausted reports that this process can open no more connections: files or
// ports ran out. Clients can do that to it, so it proves nothing about Redis.
func exhausted(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) ||
		errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.ENOBUFS)
}

// notConnected reports that there was no connection on which to send anything.
func notConnected(err error) bool {
	// What the Sentinels said is in this error too, as if Redis had said it.
	if errors.Is(err, redis.ErrClosed) || strings.Contains(err.Error(), "all sentinels specified in configuration are unreachable") {
		return true
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Op == "dial" || op.Op == "remote error" && handshakeAlert(op.Err.Error())
	}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	_, noTLS := errors.AsType[tls.RecordHeaderError](err)
	return untrusted || noTLS
}

// handshakeAlert reports whether a server sends this TLS alert only instead of
// accepting a connection.
func handshakeAlert(alert string) bool {
	for _, cause := range [...]string{"certificate", "handshake failure", "protocol version", "insufficient security"} {
		if strings.Contains(alert, cause) {
			return true
		}
	}
	return false
}

// Answered reports that an error is what a server said.
func Answered(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok && !notConnected(err)
}

// classOfAnswer is about what Redis says after "-".
func classOfAnswer(err redis.Error) ErrorClass {
	text := textOf(err)
	for _, known := range knownAnswers {
		if strings.HasPrefix(text, known.prefix) {
			return known.class
		}
	}
	if refusedInScript(text) {
		return ClassRefused
	}
	return ClassMisused
}

// textOf returns what an answer says. Up to Redis 6.2, what a command in a
// script met comes last.
func textOf(err redis.Error) string {
	text := strings.TrimPrefix(err.Error(), "ERR ")
	if strings.HasPrefix(text, "Error running script") {
		if i := strings.LastIndex(text, ": -"); i >= 0 {
			text = text[i+len(": -"):]
		}
	}
	return text
}

// refusedInScript reports that a server did not permit a command to a script
// that was already running, by any version's words.
func refusedInScript(text string) bool {
	for _, words := range [...]string{
		"ACL failure in script", "The user executing the script can't",
		"Unknown Redis command called from", "Unknown command called from",
	} {
		if strings.Contains(text, words) {
			return true
		}
	}
	return false
}

// NotExecuted reports that it is certain that nothing was executed. It is so for
// unreachable, busy, unavailable and moved; for refused, unless a script was refused
// one of its commands, which has run those before it; and for unknown where no
// connection was ready.
func NotExecuted(err error) bool {
	if isUnsent(err) {
		return true
	}
	switch ClassOf(err) {
	case ClassUnreachable, ClassBusy, ClassUnavailable, ClassMoved:
		return true
	case ClassRefused:
		answer, ok := errors.AsType[redis.Error](err)
		return ok && !refusedInScript(textOf(answer))
	}
	return false
}

// NotPermitted reports that a server accepts the credentials, but does not
// permit the command.
func NotPermitted(err error) bool {
	answer, ok := errors.AsType[redis.Error](err)
	if !ok || ClassOf(err) != ClassRefused {
		return false
	}
	text := textOf(answer)
	return strings.HasPrefix(text, "NOPERM") || strings.HasPrefix(text, "unknown command") || refusedInScript(text)
}

// knownAnswers are how the errors begin that are not about one key.
var knownAnswers = [...]struct {
	prefix string
	class  ErrorClass
}{
	{"NOAUTH", ClassRefused},
	{"WRONGPASS", ClassRefused},
	{"NOPERM", ClassRefused},
	{"DENIED", ClassRefused},                          // protected mode
	{"unknown command", ClassRefused},                 // renamed, or not a Redis server but a Sentinel
	{"AUTH ", ClassRefused},                           // called without any password configured for the default user
	{"Protocol error: unauthenticated", ClassRefused}, // what a long command gets instead of NOAUTH
	{"LOADING", ClassUnavailable},
	{"READONLY", ClassUnavailable},
	{"MASTERDOWN", ClassUnavailable},
	{"CLUSTERDOWN", ClassUnavailable},
	{"NOREPLICAS", ClassUnavailable},
	{"MISCONF", ClassUnavailable},
	{"OOM", ClassUnavailable},
	{"BUSY", ClassUnavailable},
	{"UNBLOCKED", ClassUnavailable},
	{"max number of clients", ClassUnavailable},
	{"NOSCRIPT", ClassBusy}, // and no time was left to send the script
	{"MOVED ", ClassMoved},
	{"ASK ", ClassMoved},
	{"TRYAGAIN", ClassMoved},
}

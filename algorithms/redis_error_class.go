package algorithms

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/internal/bridge"
)

// classOf returns the class of a store's error, "" for nil. An error that is
// not known, such as one of another store than Redis, is ClassUnknown.
func classOf(err error) bridge.ErrorClass {
	if err == nil {
		return ""
	}
	if exhausted(err) {
		return bridge.ClassBusy
	}
	if notConnected(err) {
		return bridge.ClassUnreachable
	}
	if answer, ok := errors.AsType[redis.Error](err); ok {
		return classOfAnswer(answer)
	}
	switch {
	case errors.Is(err, errReply), errors.Is(err, errForeign):
		return bridge.ClassMisused
	case errors.Is(err, errBusy), errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted),
		strings.Contains(err.Error(), "redis: autopipeline: queue full"): // go-redis exports it since 9.23
		return bridge.ClassBusy
	}
	return bridge.ClassUnknown
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

// answered reports that an error is what a server said.
func answered(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok && !notConnected(err)
}

// classOfAnswer is about what Redis says after "-".
func classOfAnswer(err redis.Error) bridge.ErrorClass {
	text := textOf(err)
	for _, known := range knownAnswers {
		if strings.HasPrefix(text, known.prefix) {
			return known.class
		}
	}
	if refusedInScript(text) {
		return bridge.ClassRefused
	}
	return bridge.ClassMisused
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

// notExecuted reports that it is certain that nothing was executed. It is so for
// unreachable, busy, unavailable and moved; for refused, unless a script was refused
// one of its commands, which has run those before it; and for unknown where no
// connection was ready.
func notExecuted(err error) bool {
	if isUnsent(err) {
		return true
	}
	switch classOf(err) {
	case bridge.ClassUnreachable, bridge.ClassBusy, bridge.ClassUnavailable, bridge.ClassMoved:
		return true
	case bridge.ClassRefused:
		answer, ok := errors.AsType[redis.Error](err)
		return ok && !refusedInScript(textOf(answer))
	}
	return false
}

// notPermitted reports that a server accepts the credentials, but does not
// permit the command.
func notPermitted(err error) bool {
	answer, ok := errors.AsType[redis.Error](err)
	if !ok || classOf(err) != bridge.ClassRefused {
		return false
	}
	text := textOf(answer)
	return strings.HasPrefix(text, "NOPERM") || strings.HasPrefix(text, "unknown command") || refusedInScript(text)
}

// knownAnswers are how the errors begin that are not about one key.
var knownAnswers = [...]struct {
	prefix string
	class  bridge.ErrorClass
}{
	{"NOAUTH", bridge.ClassRefused},
	{"WRONGPASS", bridge.ClassRefused},
	{"NOPERM", bridge.ClassRefused},
	{"DENIED", bridge.ClassRefused},                          // protected mode
	{"unknown command", bridge.ClassRefused},                 // renamed, or not a Redis server but a Sentinel
	{"AUTH ", bridge.ClassRefused},                           // called without any password configured for the default user
	{"Protocol error: unauthenticated", bridge.ClassRefused}, // what a long command gets instead of NOAUTH
	{"LOADING", bridge.ClassUnavailable},
	{"READONLY", bridge.ClassUnavailable},
	{"MASTERDOWN", bridge.ClassUnavailable},
	{"CLUSTERDOWN", bridge.ClassUnavailable},
	{"NOREPLICAS", bridge.ClassUnavailable},
	{"MISCONF", bridge.ClassUnavailable},
	{"OOM", bridge.ClassUnavailable},
	{"BUSY", bridge.ClassUnavailable},
	{"UNBLOCKED", bridge.ClassUnavailable},
	{"max number of clients", bridge.ClassUnavailable},
	{"NOSCRIPT", bridge.ClassBusy}, // and no time was left to send the script
	{"MOVED ", bridge.ClassMoved},
	{"ASK ", bridge.ClassMoved},
	{"TRYAGAIN", bridge.ClassMoved},
}

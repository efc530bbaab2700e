package algorithms

import (
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// An ErrorClass says what an error of a store means for whoever asked it.
type ErrorClass string

// The classes. Of all but the last two it is certain that the decision was not
// executed.
const (
	// ClassUnreachable: there was no connection.
	ClassUnreachable ErrorClass = "unreachable"
	// ClassBusy: the client had no connection free.
	ClassBusy ErrorClass = "busy"
	// ClassUnavailable: the server answered that it cannot now, as while it
	// loads, is a replica, or has no memory left.
	ClassUnavailable ErrorClass = "unavailable"
	// ClassMoved: what counts the check is moving to another server, and the
	// client has not found it yet. The servers are well.
	ClassMoved ErrorClass = "moved"
	// ClassRefused: the server does not take the credentials, or they do not
	// permit the command.
	ClassRefused ErrorClass = "refused"
	// ClassMisused: the server answered something else, as where a key holds
	// what is not ours. That concerns the check, not the server.
	ClassMisused ErrorClass = "misused"
	// ClassUnknown: no answer came. The decision may have been executed.
	ClassUnknown ErrorClass = "unknown"
)

// ClassOf returns the class of a store's error, "" for nil. An error that is
// not known, such as one of another store than Redis, is ClassUnknown.
func ClassOf(err error) ErrorClass {
	if err == nil {
		return ""
	}
	if answer, ok := errors.AsType[redis.Error](err); ok {
		return classOfAnswer(answer)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return ClassUnreachable
	}
	switch {
	case errors.Is(err, errReply):
		return ClassMisused
	case errors.Is(err, redis.ErrClosed):
		return ClassUnreachable
	case errors.Is(err, ErrBusy), errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return ClassBusy
	}
	return ClassUnknown
}

// classOfAnswer is about what Redis says after "-".
func classOfAnswer(err redis.Error) ErrorClass {
	text := strings.TrimPrefix(err.Error(), "ERR ")
	if strings.HasPrefix(text, "Error running script") { // up to Redis 6.2: what a command in it met comes last
		if i := strings.LastIndex(text, ": -"); i >= 0 {
			text = text[i+len(": -"):]
		}
	}
	for _, known := range knownAnswers {
		if strings.HasPrefix(text, known.prefix) {
			return known.class
		}
	}
	if strings.Contains(text, "can't run this command") { // ACL, inside a script, up to Redis 7.0
		return ClassRefused
	}
	return ClassMisused
}

// knownAnswers are how the errors begin that are not about one key.
var knownAnswers = [...]struct {
	prefix string
	class  ErrorClass
}{
	{"NOAUTH", ClassRefused},
	{"WRONGPASS", ClassRefused},
	{"NOPERM", ClassRefused},
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
	{"MOVED ", ClassMoved},
	{"ASK ", ClassMoved},
	{"TRYAGAIN", ClassMoved},
}

package algorithms

import (
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/internal/bridge"
)

// classOf returns the class of a store's error, "" for nil. An error that is
// not known, such as one of another store than Redis, is ClassUnknown.
func classOf(err error) bridge.ErrorClass {
	if err == nil {
		return ""
	}
	if answer, ok := errors.AsType[redis.Error](err); ok {
		return classOfAnswer(answer)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return bridge.ClassUnreachable
	}
	switch {
	case errors.Is(err, errReply):
		return bridge.ClassMisused
	case errors.Is(err, redis.ErrClosed):
		return bridge.ClassUnreachable
	case errors.Is(err, errBusy), errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return bridge.ClassBusy
	}
	return bridge.ClassUnknown
}

// answered reports that an error is what a server said.
func answered(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok
}

// classOfAnswer is about what Redis says after "-".
func classOfAnswer(err redis.Error) bridge.ErrorClass {
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
		return bridge.ClassRefused
	}
	return bridge.ClassMisused
}

// knownAnswers are how the errors begin that are not about one key.
var knownAnswers = [...]struct {
	prefix string
	class  bridge.ErrorClass
}{
	{"NOAUTH", bridge.ClassRefused},
	{"WRONGPASS", bridge.ClassRefused},
	{"NOPERM", bridge.ClassRefused},
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
	{"MOVED ", bridge.ClassMoved},
	{"ASK ", bridge.ClassMoved},
	{"TRYAGAIN", bridge.ClassMoved},
}

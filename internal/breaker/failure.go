package breaker

import (
	"context"
	"errors"
	"net"

	"github.com/seed75154129/ratelimit/internal/transport"
)

// A failureKind says what an error proves about the store.
type failureKind int

const (
	noFailure  failureKind = iota // nothing: the error concerns the check, or this process
	failedLate                    // no answer in time: the store may be away, or this process slow
	failedHard                    // the store is away, or answered that it cannot count
)

func failureOf(err error) failureKind {
	switch transport.ClassOf(err) {
	case "", transport.ClassMisused, transport.ClassMoved, transport.ClassBusy:
		return noFailure
	}
	if IsTimeout(err) {
		return failedLate
	}
	return failedHard
}

// IsTimeout reports whether no answer came in time.
func IsTimeout(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// failures are counted by what they prove.
type failures struct {
	all  tally
	hard tally // those that only the store can be to blame for
}

// A tally counts failed decisions, and those of one batch as one.
type tally struct{ decisions, batches int }

func (f *failures) add(kind failureKind, sameBatch bool) {
	f.all.add(sameBatch)
	if kind == failedHard {
		f.hard.add(sameBatch)
	}
}

func (t *tally) add(sameBatch bool) {
	t.decisions++
	if !sameBatch {
		t.batches++
	}
}

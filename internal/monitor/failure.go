package monitor

import (
	"context"
	"errors"
	"net"

	"github.com/seed75154129/ratelimit/internal/transport"
)

// A failureKind says what an error proves about the store.
type failureKind int

const (
	noFailure   failureKind = iota // nothing: this process is busy, or the key moves
	failedMaybe                    // no answer in time, or one in unknown words: the store, this process or the key may be to blame
	failedHard                     // the store is away, or answered that it cannot count
)

func failureOf(err error) failureKind {
	switch transport.ClassOf(err) {
	case "", transport.ClassMoved, transport.ClassBusy:
		return noFailure
	case transport.ClassMisused:
		return failedMaybe
	}
	if IsTimeout(err) {
		return failedMaybe
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

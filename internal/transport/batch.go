package transport

import (
	"context"
	"errors"
	"time"
)

// A pending is what one decision asks of one server.
type pending struct {
	ctx      context.Context // of the decision
	deadline time.Time
	calls    []*Call
	only     [1]*Call // calls of a decision of one call

	turn uint64        // the line that it waits in
	next *pending      // in that line
	in   *batch        // nil while it waits
	done chan struct{} // closed when the answer is there or err is set; nil if the caller itself sends
	err  error         // why there is no answer: it was not sent, or has left its batch

	panicked error // what the client did instead of answering
}

func (p *pending) begin(ctx context.Context, calls []*Call) {
	p.ctx, p.calls = ctx, calls
	p.deadline, _ = ctx.Deadline()
}

// wait waits for the answer of a decision that another goroutine sends. What
// panicked there panics here.
func (p *pending) wait() {
	<-p.done
	if p.panicked != nil {
		panic(p.panicked)
	}
}

// A batch is what goes to a server in one flush. It is also the context of that
// flush, with the values of the first decision and the deadline of the last, and
// needs no timer of its own.
type batch struct {
	id       uint64
	begun    time.Time
	deadline time.Time
	ended    chan struct{} // closed when err is set

	// Guarded by the batcher's mu, but for the first of members.
	members []*pending // nil for those who have left
	calls   []*Call
	at      int // in the batcher's underWay
	slow    bool
	err     error

	first [1]*pending // whose values the context has; the members of a batch of one

	panicked error // what flush panicked with on a goroutine of the batcher
}

// Deadline, Done, Err and Value implement [context.Context].
func (f *batch) Deadline() (time.Time, bool) { return f.deadline, true }
func (f *batch) Done() <-chan struct{}       { return f.ended }
func (f *batch) Value(key any) any           { return f.first[0].ctx.Value(key) }

func (f *batch) Err() error {
	select {
	case <-f.ended:
		return f.err
	default:
		return nil
	}
}

// end ends the context. The caller holds the batcher's mu.
func (f *batch) end(err error) {
	if f.err == nil {
		f.err = err
		close(f.ended)
	}
}

// A batchError is the error that all members of a batch have got, so that nobody
// takes it for as many failures.
type batchError struct {
	error
	id uint64
}

func (e batchError) Unwrap() error { return e.error }

// BatchOf identifies the batch that has failed, 0 if a decision was sent alone.
func BatchOf(err error) uint64 {
	e, _ := errors.AsType[batchError](err)
	return e.id
}

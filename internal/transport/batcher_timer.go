package transport

import (
	"context"
	"time"
)

// What is due in a batcher at some time, by its one timer.

// hopeless reports whether a decision would not be answered in its time: it would
// be charged for nothing. A slow server is still asked by those who have half of
// their budgets left. The caller holds mu.
func (b *batcher) hopeless(p *pending, now time.Time) bool { return !now.Before(b.latest(p)) }

// latest is when a decision must be sent. The caller holds mu.
func (b *batcher) latest(p *pending) time.Time {
	return p.deadline.Add(-max(b.reserve, min(b.takes, b.transport.limit/2)))
}

// wakeBy has wake called at a time, or earlier. The caller holds mu.
func (b *batcher) wakeBy(at time.Time) {
	switch {
	case b.timer == nil:
		b.timer = time.AfterFunc(time.Until(at), b.wake)
	case b.wakes.IsZero() || at.Before(b.wakes):
		b.timer.Reset(time.Until(at))
	default:
		return
	}
	b.wakes = at
}

// wake does what is due: it ends the waits and the contexts whose time is over,
// and gives the places of slow batches to others.
func (b *batcher) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.wakes = time.Time{}
	b.freePlaces(now)
	for _, f := range b.underWay {
		b.expire(f, now)
	}
	for _, p := range b.waiting.remove(func(p *pending) bool { return b.hopeless(p, now) }) {
		b.refuse(p)
	}
	for f := b.gather(now); f != nil; f = b.gather(now) {
		go b.fly(f)
	}
	b.wakeNext(now)
}

// freePlaces gives the places of slow batches to those who wait, if more batches
// may be under way. The caller holds mu.
func (b *batcher) freePlaces(now time.Time) {
	if b.waiting.n == 0 || len(b.underWay) >= b.most {
		return
	}
	for _, f := range b.underWay {
		if !f.slow && now.Sub(f.begun) >= slowBatch {
			f.slow = true
			b.taken--
		}
	}
}

// expire lets members leave whose budget is over, and ends the batch' context if
// all of them are. A batch of a client that heeds deadlines ends with that by
// itself, and knows better what became of its last members. The caller holds mu.
func (b *batcher) expire(f *batch, now time.Time) {
	over := !now.Before(f.deadline)
	for i, p := range f.members {
		if p == nil || p.done == nil || now.Before(p.deadline) || b.transport.direct && p.deadline.Equal(f.deadline) {
			continue
		}
		f.members[i] = nil
		p.err = context.DeadlineExceeded
		close(p.done)
	}
	if over {
		f.end(context.DeadlineExceeded)
	}
}

// wakeNext has wake called when something is due again. The caller holds mu.
func (b *batcher) wakeNext(now time.Time) {
	for _, f := range b.underWay {
		for _, p := range f.members {
			if p != nil && p.deadline.After(now) {
				b.wakeBy(p.deadline)
			}
		}
		if slow := f.begun.Add(slowBatch); !f.slow && b.waiting.n > 0 && slow.After(now) {
			b.wakeBy(slow)
		}
	}
	for _, l := range b.waiting.order {
		for p := l.first; p != nil; p = p.next {
			b.wakeBy(b.latest(p))
		}
	}
}

package transport

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxPlaces is how many batches are under way to one server at a time.
	maxPlaces = 3
	// maxBatch is how many calls go in one batch.
	maxBatch = 64
	// maxKeys is how many keys a batch may have before it gets no further calls. The
	// server runs a batch without a break; so it takes less than a millisecond.
	maxKeys = 128
	// maxSlow is how many batches may be under way if some of them are slow.
	maxSlow = 10
	// slowBatch is after how long a batch frees its place, so that a lost packet
	// does not delay the others. It is also the least of its budget that a decision
	// must have left to join a batch.
	slowBatch = 10 * time.Millisecond
	// maxWaiting is how many decisions wait for a batch to one server.
	maxWaiting = 4096
	// maxUnderWay bounds the commands under way in a client whose commands are
	// sent one by one, those included whose callers have left.
	maxUnderWay = 1024
)

// A batcher sends commands to one server, in batches; doc.go says how. A batch with
// several members, or to a client that does not heed deadlines, runs in a goroutine that
// its members leave behind when their budgets are over.
type batcher struct {
	transport *Transport
	places    int           // for batches under way that are not slow
	most      int           // batches under way, those that are slow included
	size      int           // calls in a batch
	reserve   time.Duration // that a decision must have left when it is sent, at least

	mu       sync.Mutex
	taken    int           // places
	takes    time.Duration // a batch, of late
	underWay []*batch
	waiting  turns
	timer    *time.Timer
	wakes    time.Time     // when the timer calls wake; zero if it does not
	idle     chan struct{} // closed when nothing is under way; nil if nobody wants to know
}

var batches atomic.Uint64 // so many have been sent

// newBatcher returns a batcher that sends several decisions together only where
// it is known what the client does with them.
func newBatcher(t *Transport, shard int) *batcher {
	b := &batcher{transport: t, places: maxUnderWay, most: maxUnderWay, size: 1, reserve: min(slowBatch, t.limit/5)}
	if t.inBatches(shard) {
		pool := t.poolSize()
		b.places, b.most, b.size = min(maxPlaces, pool), min(maxSlow, pool), maxBatch
	}
	return b
}

// batcher returns what sends to a shard, and makes it if there is none.
func (t *Transport) batcher(shard int) *batcher {
	if all := *t.batchers.Load(); shard < len(all) {
		return all[shard]
	}
	t.adding.Lock()
	defer t.adding.Unlock()
	all := slices.Clone(*t.batchers.Load())
	for len(all) <= shard {
		all = append(all, newBatcher(t, len(all)))
	}
	t.batchers.Store(&all)
	return all[shard]
}

// turnOf says in which line a decision waits for its turn: in that of its rules,
// which are what keys end with.
func (t *Transport) turnOf(calls []*Call) (turn uint64) {
	for _, c := range calls {
		for _, key := range c.Keys {
			key := key.(string)
			turn = turn*31 + maphash.String(t.seed, key[strings.LastIndexByte(key, '}')+1:])
		}
	}
	return turn
}

// do sends what is pending, or has it sent, and waits for the answer. inline
// means that this goroutine may send.
func (b *batcher) do(p *pending, inline bool) {
	if f := b.enter(p, inline); f != nil {
		b.flyHere(f)
		return
	}
	p.wait()
}

// flyHere sends a batch on its caller's goroutine. A hook of the client that panics
// there ends the request, and leaves its place to others.
func (b *batcher) flyHere(f *batch) {
	defer func() {
		if next := b.land(f); next != nil {
			go b.fly(next)
		}
	}()
	b.transport.flush(f, b)
}

// enter begins a batch of p if there is a place, and returns it if the caller is
// to send it. Otherwise p waits.
func (b *batcher) enter(p *pending, inline bool) *batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if c, ok := p.ctx.(*decisionContext); ok && c.part && b.hopeless(p, now) {
		p.done = make(chan struct{})
		b.refuse(p)
		return nil
	}
	if b.full() {
		p.done = make(chan struct{})
		p.turn = b.transport.turnOf(p.calls)
		if b.waiting.n == maxWaiting {
			out := b.waiting.giveWay(p.turn)
			if out == nil {
				b.refuse(p)
				return nil
			}
			b.refuse(out)
		}
		b.waiting.push(p)
		b.wakeBy(b.latest(p))
		for _, f := range b.underWay {
			if !f.slow && len(b.underWay) < b.most {
				b.wakeBy(f.begun.Add(slowBatch))
			}
		}
		return nil
	}
	f := &batch{first: [1]*pending{p}, calls: p.calls, deadline: p.deadline}
	f.members = f.first[:]
	b.begin(f, now)
	if inline {
		return f
	}
	p.done = make(chan struct{})
	go b.fly(f)
	return nil
}

// full reports whether there is no place. The caller holds mu.
func (b *batcher) full() bool { return b.taken == b.places || len(b.underWay) == b.most }

// refuse ends the wait of a decision that is not sent. The caller holds mu.
func (b *batcher) refuse(p *pending) {
	p.err = b.transport.busy()
	close(p.done)
}

// busy is why a decision was not sent that has waited too long, or would have to.
func (t *Transport) busy() error {
	return fmt.Errorf("%w: no turn within the budget of %s", errBusy, t.limit)
}

// begin takes a place for a batch. The caller holds mu.
func (b *batcher) begin(f *batch, now time.Time) {
	f.id, f.begun, f.ended = batches.Add(1), now, make(chan struct{})
	for _, p := range f.members {
		p.in = f
		b.wakeBy(p.deadline)
	}
	f.at = len(b.underWay)
	b.underWay = append(b.underWay, f)
	b.taken++
}

// fly sends a batch, and then others while some wait. A hook of the client that
// panics there ends the requests that wait for the batch, and not the process.
func (b *batcher) fly(f *batch) {
	for f != nil {
		f.panicked = recovered(func() error {
			b.transport.flush(f, b)
			return nil
		})
		f = b.land(f)
	}
}

// land gives the members of a batch their answers, and begins the next batch if
// some wait.
func (b *batcher) land(f *batch) (next *batch) {
	b.mu.Lock()
	f.end(context.Canceled)
	last := b.underWay[len(b.underWay)-1]
	b.underWay[f.at], last.at = last, f.at
	b.underWay[len(b.underWay)-1] = nil
	b.underWay = b.underWay[:len(b.underWay)-1]
	if !f.slow {
		b.taken--
	}
	if b.waiting.n > 0 { // or nobody asks how long it took
		now := time.Now()
		b.takes += (now.Sub(f.begun) - b.takes) / 8
		b.freePlaces(now)
		next = b.gather(now)
	}
	if b.idle != nil && len(b.underWay) == 0 {
		close(b.idle)
		b.idle = nil
	}
	b.mu.Unlock()
	for _, p := range f.members {
		if p != nil && p.done != nil {
			p.panicked = f.panicked
			close(p.done)
		}
	}
	return next
}

// gather begins a batch of those who wait, if there is a place, and refuses those
// who have no time left. The caller holds mu.
func (b *batcher) gather(now time.Time) *batch {
	if b.full() || b.waiting.n == 0 {
		return nil
	}
	f := &batch{members: make([]*pending, 0, min(b.waiting.n, b.size)), calls: make([]*Call, 0, min(b.waiting.n, b.size))}
	for keys := 0; len(f.calls) < b.size && keys < maxKeys; {
		p := b.waiting.pop()
		if p == nil {
			break
		}
		if b.hopeless(p, now) {
			b.refuse(p)
			continue
		}
		f.members, f.calls = append(f.members, p), append(f.calls, p.calls...)
		if p.deadline.After(f.deadline) {
			f.deadline = p.deadline
		}
		for _, c := range p.calls {
			keys += c.weight()
		}
	}
	if len(f.members) == 0 {
		return nil
	}
	f.first[0] = f.members[0]
	b.begin(f, now)
	return f
}

// unfinished returns the calls of a batch that Redis certainly did not run and that
// are to be sent again, but for those of callers who have left.
func (b *batcher) unfinished(f *batch) (again []*Call) {
	if !slices.ContainsFunc(f.calls, toSendAgain) {
		return nil // the usual case
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range f.members {
		if p == nil {
			continue
		}
		for _, c := range p.calls {
			if toSendAgain(c) {
				again = append(again, c)
			}
		}
	}
	return again
}

// drop refuses all who wait: the server is away.
func (b *batcher) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.waiting.remove(func(*pending) bool { return true }) {
		b.refuse(p)
	}
}

// whenIdle returns a channel that is closed as soon as nothing is under way.
func (b *batcher) whenIdle() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	idle := b.idle
	if idle == nil {
		idle = make(chan struct{})
	}
	if len(b.underWay) == 0 {
		close(idle)
	} else {
		b.idle = idle
	}
	return idle
}

// Drop refuses the decisions that wait to be sent to a shard.
func (t *Transport) Drop(shard int) { t.batcher(shard).drop() }

// Idle returns for each server a channel that is closed as soon as no
// decision is under way there.
func (t *Transport) Idle() (all []<-chan struct{}) {
	for _, b := range *t.batchers.Load() {
		all = append(all, b.whenIdle())
	}
	return all
}

// inBatches reports whether decisions for a shard may share a batch: where it is
// one server, and known what the client does.
func (t *Transport) inBatches(shard int) bool { return t.only != nil || t.own && shard > 0 }

// poolSize is how many connections the client may have to one server.
func (t *Transport) poolSize() int {
	if t.options.PoolSize > 0 {
		return t.options.PoolSize
	}
	return maxSlow
}

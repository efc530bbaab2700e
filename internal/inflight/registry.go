// Package inflight knows which requests this process has under way that a store counts:
// it renews their leases while they run, and tells the store when they have ended. It
// knows neither checks nor limits.
//
// A request is a member of a set in the store, by a random number of its own. So every
// command may be sent again, and is, until its answer is there or the lease is over.
package inflight

import (
	"container/heap"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Place is what one request holds.
type Place struct {
	Key   string // of the set
	ID    int64
	Lease time.Duration
}

// A Store has the sets.
type Store interface {
	// ShardOf is the part of the store that has a key, as a small number.
	ShardOf(key string) int
	// Release takes members out, in bounded time: the ids by key. It returns the keys
	// that have answered.
	Release(ctx context.Context, ids map[string][]int64) (released []string, err error)
	// Renew puts members off, or back in, in bounded time. It returns those that failed.
	Renew(ctx context.Context, places []Place) (failed []Place, err error)
}

// A Registry is the requests under way. Its fields must not change after first use.
type Registry struct {
	Store  Store
	Open   func(shard int) bool     // nothing can be sent there now
	Begin  func(func()) bool        // runs a function in the background, unless there are too many
	Safely func(func() error) error // makes an error of a panic of the store's
	Logger *slog.Logger

	Failed, Dropped atomic.Int64 // renewals, and releases that were left to the lease

	mu       sync.Mutex // over all below
	closed   bool
	holders  map[int64]*holder
	due      agenda // the holders, but for those that are being renewed
	renewing bool
	timer    *time.Timer
	releases map[int]*queue // by shard

	renewed int64     // since, for the hint
	since   time.Time // zero before the first renewal
	hinted  bool
}

// A holder is a request under way.
type holder struct {
	Place
	due    time.Time // when it is renewed
	at     int       // in the agenda; below 0 while it is being renewed
	sent   bool      // the store may know it
	unsure bool      // a command about it may yet arrive, any time
	ended  bool      // while it was being renewed
}

// Hold begins to renew what a request holds. known says that the store has counted it;
// unsure, that it may have.
func (r *Registry) Hold(p Place, known, unsure bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return // it lapses, unless it ends before
	}
	if r.holders == nil {
		r.holders = make(map[int64]*holder)
	}
	h := &holder{Place: p, sent: known || unsure, unsure: unsure}
	r.holders[p.ID] = h
	if now := time.Now(); known || r.Open(r.Store.ShardOf(p.Key)) { // Tell will tell the store
		r.renewAt(h, now.Add(h.Lease/renewedPart))
	} else {
		r.renewAt(h, now)
	}
	if h.at == 0 {
		r.arm(0)
	}
}

// End ends a request, and has the store told. It returns at once; false if the request
// is not known here, or the Registry is closed.
func (r *Registry) End(id int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.holders[id]
	if h == nil || r.closed {
		return false
	}
	delete(r.holders, id)
	if h.ended = h.at < 0; !h.ended { // else the release must not overtake the renewal
		heap.Remove(&r.due, h.at)
		r.release(h)
	}
	return true
}

// Drop has a place released of which it is unknown whether the store has given it.
func (r *Registry) Drop(p Place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.release(&holder{Place: p, sent: true, unsure: true})
}

// Tell tells a part of the store that is back what runs here, all or only what it was
// never told.
func (r *Registry) Tell(shard int, all bool) {
	r.mu.Lock()
	var due []*holder
	for _, h := range r.holders {
		if h.at >= 0 && (all || !h.sent) && r.Store.ShardOf(h.Key) == shard {
			due = append(due, r.take(h))
		}
	}
	r.mu.Unlock()
	for chunk := range slices.Chunk(due, 4*leastRenewed) {
		r.renew(chunk)
	}
}

// Close frees every place: the process is about to end. It calls wait first, which must
// return when all that was begun is done, because a renewal must not come after the release.
func (r *Registry) Close(wait func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed = true; r.timer != nil {
		r.timer.Stop()
	}
	r.mu.Unlock()
	wait()
	r.mu.Lock()
	var held []released
	for _, q := range r.releases {
		held = append(held, q.waiting...)
	}
	for _, h := range r.holders {
		if h.sent {
			held = append(held, released{h.Place, time.Now().Add(h.Lease)})
		}
	}
	r.sendReleases(held)
}

func (r *Registry) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

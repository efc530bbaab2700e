package inflight

import (
	"container/heap"
	"context"
	"slices"
	"strings"
	"time"
)

// Hold begins to renew what a request holds. known says that the store has counted it;
// unsure, that it may have.
func (r *Registry) Hold(p Place, known, unsure bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
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

// Close frees every place, as far as it can in a second: the process is about to end. It
// calls wait first, which must return when all that was begun is done, because a renewal
// must not come after the release.
func (r *Registry) Close(wait func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed = true; r.timer != nil {
		r.timer.Stop()
	}
	r.mu.Unlock()
	wait()
	r.mu.Lock()
	r.ended = true
	var held []released
	for _, q := range r.releases {
		held = append(held, q.waiting...)
	}
	for _, h := range r.holders {
		if h.sent {
			held = append(held, released{h.Place, time.Now().Add(h.Lease)})
		}
	}
	slices.SortFunc(held, func(a, b released) int { return strings.Compare(a.Key, b.Key) })
	begun, sent := time.Now(), 0
	for piece := range slices.Chunk(held, maxFlush) {
		failed := r.send(context.Background(), r.newSending(piece))
		if sent += len(piece) - len(failed); len(failed) > 0 || time.Since(begun) > time.Second {
			break
		}
	}
	r.Dropped.Add(int64(len(held) - sent))
}

package inflight

import (
	"context"
	"slices"
	"time"
)

const (
	// A flush begins this long after the first release that waits.
	flushAfter = 5 * time.Millisecond
	maxFlush   = 256
	// retryRelease is when what failed is sent again.
	retryRelease = 50 * time.Millisecond
	// maxReleases is how many wait for a part of the store; the oldest makes room.
	maxReleases = 1 << 16
)

// repeated is when a release is sent once more of which an earlier command may have come
// late: it may have added what was taken out before.
var repeated = [...]time.Duration{time.Second, 5 * time.Second}

// release has the store told that a holder has ended, unless it never heard of it. It
// requires mu.
func (r *Registry) release(h *holder) {
	if !h.sent {
		return
	}
	r.enqueue(h.Place)
	if !h.unsure {
		return
	}
	for _, after := range repeated {
		time.AfterFunc(after, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.enqueue(h.Place)
		})
	}
}

// enqueue requires mu.
func (r *Registry) enqueue(p Place) {
	if r.ended {
		return
	}
	shard := r.Store.ShardOf(p.Key)
	q := r.releases[shard]
	if q == nil {
		if r.releases == nil {
			r.releases = make(map[int]*queue)
		}
		q = new(queue)
		r.releases[shard] = q
	}
	if len(q.waiting) >= maxReleases {
		q.waiting = q.waiting[1:]
		r.Dropped.Add(1)
	}
	q.waiting = append(q.waiting, released{p, time.Now().Add(p.Lease)})
	if !q.busy && !r.closed { // else Close sends it
		q.busy = true
		r.flushIn(flushAfter, shard, q)
	}
}

// flushIn has a queue flushed in the background, after a while.
func (r *Registry) flushIn(after time.Duration, shard int, q *queue) {
	time.AfterFunc(after, func() {
		if !r.Begin(func() { r.flush(shard, q) }) && !r.isClosed() {
			r.flushIn(retryRelease, shard, q)
		}
	})
}

func (r *Registry) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// flush sends what waits until all is acknowledged, or something failed.
func (r *Registry) flush(shard int, q *queue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(q.waiting) > 0 && !r.closed {
		if r.Open(shard) {
			r.flushIn(retryRelease, shard, q)
			return
		}
		n := min(len(q.waiting), maxFlush)
		sent := q.waiting[:n:n]
		q.waiting = q.waiting[n:]
		if failed := r.sendReleases(sent); len(failed) > 0 {
			q.waiting = append(failed, q.waiting...)
			r.flushIn(retryRelease, shard, q)
			return
		}
		if n < maxFlush && len(q.waiting) > 0 { // which came meanwhile: let them gather
			r.flushIn(flushAfter, shard, q)
			return
		}
	}
	q.busy = false
}

// sendReleases sends releases that have not lapsed, and returns those that were not
// acknowledged. It releases mu meanwhile.
func (r *Registry) sendReleases(sent []released) (failed []released) {
	now, ids := time.Now(), make(map[string][]int64)
	for _, e := range sent {
		if now.Before(e.until) {
			ids[e.Key] = append(ids[e.Key], e.ID)
		} else {
			r.Dropped.Add(1)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	r.mu.Unlock()
	defer r.mu.Lock()
	_ = r.Safely(func() error {
		acknowledged, err := r.Store.Release(context.Background(), ids)
		for _, key := range acknowledged {
			delete(ids, key)
		}
		return err
	})
	return slices.DeleteFunc(sent, func(e released) bool { return !now.Before(e.until) || ids[e.Key] == nil })
}

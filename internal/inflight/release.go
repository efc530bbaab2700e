package inflight

import (
	"context"
	"slices"
	"time"
)

const (
	// A flush begins this long after the one before, so that releases gather.
	flushEvery = 5 * time.Millisecond
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
		r.flushIn(flushEvery-time.Since(q.flushed), shard, q)
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
		q.waiting, q.flushed = q.waiting[n:], time.Now()
		s := r.newSending(sent)
		q.note(s, r.Patience)
		if failed := r.send(context.Background(), s); len(failed) > 0 {
			q.waiting = append(failed, q.waiting...)
			r.flushIn(retryRelease, shard, q)
			return
		}
		if n < maxFlush && len(q.waiting) > 0 { // which came meanwhile: let them gather
			r.flushIn(flushEvery-time.Since(q.flushed), shard, q)
			return
		}
	}
	q.busy = false
}

// Free has the store told now that requests of a key have ended here, if it has not
// heard of that yet. It reports whether the store has heard since a time that a place is
// free of which no other call of Free was told: a request that was denied since then may
// ask again. It waits for others' calls until the Patience after that time is over.
func (r *Registry) Free(ctx context.Context, key string, since time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.releases[r.Store.ShardOf(key)]
	if q == nil || r.closed {
		return false
	}
	for _, s := range q.sent {
		if s.left[key] > 0 && (s.answered.IsZero() || s.answered.After(since)) {
			s.left[key]--
			return r.await(s, since) && s.ids[key] == nil
		}
	}
	own := q.take(key)
	if len(own) == 0 {
		return false
	}
	s := r.newSending(own)
	s.left[key]-- // this call is told of it
	q.note(s, r.Patience)
	failed := r.send(ctx, s)
	if q.waiting = append(failed, q.waiting...); len(failed) > 0 && !q.busy && !r.closed {
		q.busy = true
		r.flushIn(retryRelease, r.Store.ShardOf(key), q)
	}
	return len(failed) == 0
}

// await waits until the store has answered. It releases mu meanwhile.
func (r *Registry) await(s *sending, since time.Time) (answered bool) {
	r.mu.Unlock()
	defer r.mu.Lock()
	over := time.NewTimer(r.Patience - time.Since(since))
	defer over.Stop()
	select {
	case <-s.done:
		return true
	case <-over.C:
		return false
	}
}

// newSending makes a sending of those releases that have not lapsed.
func (r *Registry) newSending(all []released) *sending {
	s := &sending{ids: make(map[string][]int64), left: make(map[string]int), done: make(chan struct{})}
	now := time.Now()
	for _, e := range all {
		if now.Before(e.until) {
			s.releases = append(s.releases, e)
			s.ids[e.Key] = append(s.ids[e.Key], e.ID)
			s.left[e.Key]++
		} else {
			r.Dropped.Add(1)
		}
	}
	return s
}

// send sends releases, and returns those that were not acknowledged. It releases mu
// meanwhile.
func (r *Registry) send(ctx context.Context, s *sending) (failed []released) {
	if len(s.ids) > 0 {
		r.mu.Unlock()
		var acknowledged []string
		_ = r.Safely(func() (err error) {
			acknowledged, err = r.Store.Release(ctx, s.ids)
			return err
		})
		r.mu.Lock()
		for _, key := range acknowledged {
			delete(s.ids, key)
		}
	}
	s.answered = time.Now()
	close(s.done)
	return slices.DeleteFunc(s.releases, func(e released) bool { return s.ids[e.Key] == nil })
}

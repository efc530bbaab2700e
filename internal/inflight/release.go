package inflight

import (
	"context"
	"time"
)

const (
	// A flush begins when flushAt releases wait, or flushAfter the first.
	flushAt    = 64
	flushAfter = 5 * time.Millisecond
	maxFlush   = 256
	// retryRelease is when what failed is sent again.
	retryRelease = 250 * time.Millisecond
	// maxReleases is how many wait for a part of the store; the oldest makes room.
	maxReleases = 1 << 16
)

// repeated is when a release is sent once more of which an earlier command may have come
// late: it may have added what was taken out before.
var repeated = [...]time.Duration{time.Second, 5 * time.Second}

// A queue is the releases that are to be sent to one part of the store.
type queue struct {
	waiting []released
	flying  bool
	timer   *time.Timer
	wakes   time.Time // zero if it does not
}

type released struct {
	Place
	until time.Time // it lapses
}

// release has the store told that a holder has ended, unless it never heard of it. It
// requires mu.
func (r *Registry) release(h *holder, now time.Time) {
	if !h.sent {
		return
	}
	e := released{h.Place, now.Add(h.Lease)}
	r.enqueue(e, now)
	if !h.unsure {
		return
	}
	for _, after := range repeated {
		if r.repeats >= maxReleases {
			r.Dropped.Add(1)
			continue
		}
		r.repeats++
		time.AfterFunc(after, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.repeats--
			if !r.closed {
				r.enqueue(released{e.Place, e.until.Add(after)}, time.Now())
			}
		})
	}
}

// enqueue requires mu.
func (r *Registry) enqueue(e released, now time.Time) {
	shard := r.Store.ShardOf(e.Key)
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
	q.waiting = append(q.waiting, e)
	switch {
	case q.flying:
	case len(q.waiting) == flushAt:
		r.flushSoon(shard, q, now)
	default:
		r.flushBy(shard, q, now.Add(flushAfter), now)
	}
}

// flushBy has a queue flushed at a time, or before. It requires mu.
func (r *Registry) flushBy(shard int, q *queue, at, now time.Time) {
	switch {
	case !q.wakes.IsZero() && !at.Before(q.wakes):
		return
	case q.timer == nil:
		q.timer = time.AfterFunc(at.Sub(now), func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			q.wakes = time.Time{}
			r.flushSoon(shard, q, time.Now())
		})
	default:
		q.timer.Reset(at.Sub(now))
	}
	q.wakes = at
}

// flushSoon flushes a queue in the background. It requires mu.
func (r *Registry) flushSoon(shard int, q *queue, now time.Time) {
	if q.flying || len(q.waiting) == 0 || r.closed {
		return
	}
	if q.flying = r.Begin(func() { r.flush(shard, q) }); !q.flying {
		r.flushBy(shard, q, now.Add(retryRelease), now)
	}
}

// flush sends what waits until all is acknowledged, or something failed.
func (r *Registry) flush(shard int, q *queue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { q.flying = false }()
	for len(q.waiting) > 0 && !r.closed {
		now := time.Now()
		var sent []released
		for len(sent) < maxFlush && len(q.waiting) > 0 {
			e := q.waiting[0]
			if q.waiting = q.waiting[1:]; now.Before(e.until) {
				sent = append(sent, e)
			} else {
				r.Dropped.Add(1)
			}
		}
		if !r.Open(shard) {
			sent = r.sendReleases(sent)
		}
		if len(sent) > 0 {
			q.waiting = append(sent, q.waiting...)
			r.flushBy(shard, q, now.Add(retryRelease), now) // or Tell does
			return
		}
	}
}

// sendReleases sends releases, and returns those that were not acknowledged. It releases
// mu meanwhile.
func (r *Registry) sendReleases(sent []released) (failed []released) {
	if len(sent) == 0 {
		return nil
	}
	ids := make(map[string][]int64)
	for _, e := range sent {
		ids[e.Key] = append(ids[e.Key], e.ID)
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
	for _, e := range sent {
		if ids[e.Key] != nil {
			failed = append(failed, e)
		}
	}
	return failed
}

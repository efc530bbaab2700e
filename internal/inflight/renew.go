package inflight

import (
	"container/heap"
	"context"
	"slices"
	"strings"
	"time"
)

const (
	// renewedPart is the part of a lease after which it is renewed.
	renewedPart = 3
	// retryRenewal is when a renewal that failed is tried again.
	retryRenewal = time.Second
	// renewEvery and leastRenewed are how leases that are due together are spread: in
	// each interval this many of them, or as many as are needed to be done in a sixth of
	// the lease.
	renewEvery   = 50 * time.Millisecond
	leastRenewed = 256
)

// renewAt has a holder renewed at a time. It requires mu.
func (r *Registry) renewAt(h *holder, due time.Time) {
	h.due, h.at = due, len(r.due)
	heap.Push(&r.due, h)
}

// arm sets the timer for what is due next, after a pause. A holder that has ended leaves
// the timer behind, which finds nothing to do. It requires mu.
func (r *Registry) arm(pause time.Duration) {
	switch {
	case r.closed || r.renewing || len(r.due) == 0:
	case r.timer == nil:
		r.timer = time.AfterFunc(max(pause, time.Until(r.due[0].due)), r.wake)
	default:
		r.timer.Reset(max(pause, time.Until(r.due[0].due)))
	}
}

// wake renews what is due, in the background.
func (r *Registry) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.renewing || r.closed {
		return
	}
	if r.renewing = r.Begin(r.renewDue); !r.renewing {
		r.arm(renewEvery)
	}
}

// renewDue renews what is due, as much as is to be renewed at once. What cannot be sent
// waits.
func (r *Registry) renewDue() {
	now := time.Now()
	r.mu.Lock()
	var due []*holder
	for most := 1; len(r.due) > 0 && !r.due[0].due.After(now) && len(due) < most; {
		h := r.due[0]
		if r.Open(r.Store.ShardOf(h.Key)) {
			h.due = now.Add(h.Lease / renewedPart)
			heap.Fix(&r.due, 0)
			continue
		}
		most = max(leastRenewed, int(int64(len(r.due))*int64(renewEvery)/int64(h.Lease/(2*renewedPart))))
		due = append(due, r.take(h))
	}
	r.mu.Unlock()
	r.renew(due)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.renewing = false
	r.arm(renewEvery)
}

// take takes a holder from the agenda, to be renewed. It requires mu.
func (r *Registry) take(h *holder) *holder {
	heap.Remove(&r.due, h.at)
	h.sent = true
	return h
}

// renew renews holders that were taken.
func (r *Registry) renew(due []*holder) {
	if len(due) == 0 {
		return
	}
	slices.SortFunc(due, func(a, b *holder) int { return strings.Compare(a.Key, b.Key) })
	now, places := time.Now(), make([]Place, len(due))
	for i, h := range due {
		places[i] = h.Place
	}
	lost := places
	_ = r.Safely(func() (err error) {
		lost, err = r.Store.Renew(context.Background(), places)
		return err
	})
	missing := make(map[int64]bool, len(lost))
	for _, p := range lost {
		missing[p.ID] = true
	}
	r.Failed.Add(int64(len(lost)))
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range due {
		h.unsure = h.unsure || missing[h.ID]
		switch {
		case h.ended:
			r.release(h)
		case missing[h.ID]:
			r.renewAt(h, now.Add(retryRenewal))
		default:
			r.renewAt(h, now.Add(h.Lease/renewedPart))
		}
	}
	r.arm(0)
}

// Package inflight knows which requests this process has under way that a store counts:
// it renews their leases while they run, and tells the store when they have ended. It
// knows neither checks nor limits.
//
// A request is a member of a set in the store, by a random number of its own. So every
// command may be sent again, and is, until its answer is there or the lease is over.
package inflight

import (
	"context"
	"log/slog"
	"slices"
	"strings"
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
	// ManyRenewals is how many renewals a second are worth a hint.
	ManyRenewals = 2000
	hintEvery    = 10 * time.Second
)

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
	leases   map[time.Duration]*line // by when they are due
	soon     line                    // what the store does not know, or what failed
	renewing bool
	timer    *time.Timer
	wakes    time.Time // zero if it does not
	releases map[int]*queue
	repeats  int // releases that are to be sent once more, later

	renewed int64     // since, for the hint
	since   time.Time // zero before the first renewal
	hinted  bool
}

// A holder is a request under way.
type holder struct {
	Place
	due        time.Time
	sent       bool // the store may know it
	unsure     bool // a command about it may yet arrive, any time
	renewing   bool
	ended      bool // while it is being renewed
	line       *line
	next, prev *holder
}

// A line is holders, the next that is due first.
type line struct {
	first, last *holder
	n           int
}

func (l *line) push(h *holder) {
	h.line, h.prev, h.next = l, l.last, nil
	if l.last != nil {
		l.last.next = h
	} else {
		l.first = h
	}
	l.last = h
	l.n++
}

func (l *line) pushFirst(h *holder) {
	h.line, h.prev, h.next = l, nil, l.first
	if l.first != nil {
		l.first.prev = h
	} else {
		l.last = h
	}
	l.first = h
	l.n++
}

// remove takes a holder out of its line.
func (h *holder) remove() {
	l := h.line
	if l == nil {
		return
	}
	if h.prev != nil {
		h.prev.next = h.next
	} else {
		l.first = h.next
	}
	if h.next != nil {
		h.next.prev = h.prev
	} else {
		l.last = h.prev
	}
	h.line, h.next, h.prev = nil, nil, nil
	l.n--
}

// Hold begins to renew what a request holds. known says that the store has counted it;
// unsure, that it may have.
func (r *Registry) Hold(p Place, known, unsure bool) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return // it lapses
	}
	if r.holders == nil {
		r.holders, r.leases = make(map[int64]*holder), make(map[time.Duration]*line)
	}
	h := &holder{Place: p, sent: known || unsure, unsure: unsure}
	r.holders[p.ID] = h
	if known || r.Open(r.Store.ShardOf(p.Key)) { // Tell will tell the store
		r.wait(h, now)
	} else {
		r.hurry(h, now)
	}
	r.arm(now)
}

// wait puts a holder behind those of its lease. It requires mu.
func (r *Registry) wait(h *holder, now time.Time) {
	l := r.leases[h.Lease]
	if l == nil {
		l = new(line)
		r.leases[h.Lease] = l
	}
	h.due = now.Add(h.Lease / renewedPart)
	l.push(h)
}

// hurry makes a holder the next to be renewed. It requires mu.
func (r *Registry) hurry(h *holder, now time.Time) {
	h.due = now
	r.soon.pushFirst(h)
}

// End ends a request, and has the store told. It returns at once; false if the request
// is not known here, or the Registry is closed.
func (r *Registry) End(id int64) bool {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.holders[id]
	if h == nil || r.closed {
		return false
	}
	delete(r.holders, id)
	switch {
	case h.renewing: // the release must not overtake it
		h.ended = true
	default:
		h.remove()
		r.release(h, now)
	}
	return true
}

// Drop has a place released of which it is unknown whether the store has given it.
func (r *Registry) Drop(p Place) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.release(&holder{Place: p, sent: true, unsure: true}, now)
	}
}

// Len is how many requests are under way.
func (r *Registry) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.holders)
}

// arm sets the timer for what is due next. It requires mu.
func (r *Registry) arm(now time.Time) {
	if r.renewing || r.closed {
		return
	}
	var next time.Time
	soonest := func(l *line) {
		if l.first != nil && (next.IsZero() || l.first.due.Before(next)) {
			next = l.first.due
		}
	}
	soonest(&r.soon)
	for _, l := range r.leases {
		soonest(l)
	}
	switch {
	case next.IsZero(), !r.wakes.IsZero() && !next.Before(r.wakes):
		return // those that have ended leave a timer behind, which finds nothing to do
	case r.timer == nil:
		r.timer = time.AfterFunc(next.Sub(now), r.wake)
	default:
		r.timer.Reset(next.Sub(now))
	}
	r.wakes = next
}

// wake renews what is due, in the background.
func (r *Registry) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wakes = time.Time{}
	if r.renewing || r.closed {
		return
	}
	if r.renewing = true; !r.Begin(r.renew) {
		r.renewing = false
		r.pause(time.Now())
	}
}

// pause sets the timer for the next interval. It requires mu.
func (r *Registry) pause(now time.Time) {
	if r.closed {
		return
	}
	r.wakes = now.Add(renewEvery)
	if r.timer == nil {
		r.timer = time.AfterFunc(renewEvery, r.wake)
	} else {
		r.timer.Reset(renewEvery)
	}
}

// renew renews what is due, as much as is to be renewed at once.
func (r *Registry) renew() {
	now := time.Now()
	r.mu.Lock()
	due, more := r.take(now)
	r.mu.Unlock()
	r.send(due, now)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.renewing = false; more {
		r.pause(now)
		return
	}
	r.arm(time.Now())
}

// take takes what is due out of the lines. What cannot be sent waits. It requires mu.
func (r *Registry) take(now time.Time) (due []*holder, more bool) {
	from := func(l *line, most int) {
		for l.first != nil && !l.first.due.After(now) {
			h := l.first
			if most == 0 {
				more = true
				return
			}
			most--
			h.remove()
			if r.Open(r.Store.ShardOf(h.Key)) {
				r.wait(h, now)
				continue
			}
			h.renewing, h.sent = true, true
			due = append(due, h)
		}
	}
	from(&r.soon, leastRenewed)
	for lease, l := range r.leases {
		from(l, max(leastRenewed, int(int64(l.n)*int64(renewEvery)/max(int64(lease/(2*renewedPart)), 1))))
	}
	return due, more
}

// send renews holders that were taken.
func (r *Registry) send(due []*holder, now time.Time) {
	if len(due) == 0 {
		return
	}
	slices.SortFunc(due, func(a, b *holder) int { return strings.Compare(a.Key, b.Key) })
	places := make([]Place, len(due))
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
		h.renewing = false
		h.unsure = h.unsure || missing[h.ID]
		switch {
		case h.ended:
			r.release(h, now)
		case missing[h.ID]:
			h.due = now.Add(retryRenewal)
			r.soon.push(h)
		default:
			r.wait(h, now)
		}
	}
	r.count(len(due), now)
}

// Hinted reports whether there were so many renewals that a hint was logged.
func (r *Registry) Hinted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hinted
}

// count counts renewals, for the hint. It requires mu.
func (r *Registry) count(n int, now time.Time) {
	if r.since.IsZero() {
		r.since = now
	}
	r.renewed += int64(n)
	took := now.Sub(r.since)
	if took < hintEvery {
		return
	}
	if each := r.renewed * int64(time.Second) / int64(took); each > ManyRenewals && !r.hinted {
		r.hinted = true
		longest := time.Duration(0)
		most := 0
		for lease, l := range r.leases {
			if l.n > most {
				longest, most = lease, l.n
			}
		}
		r.Logger.Warn("ratelimit: many renewals of requests in flight; give their rule a longer lease, such as \"20/5m in_flight\"",
			"renewals_per_second", each, "lease", longest, "in_flight", len(r.holders))
	}
	r.renewed, r.since = 0, now
}

// Tell tells a part of the store that is back what runs here, all or only what it was
// never told, and what has ended.
func (r *Registry) Tell(shard int, all bool) {
	now := time.Now()
	r.mu.Lock()
	var due []*holder
	for _, h := range r.holders {
		if !h.renewing && (all || !h.sent) && r.Store.ShardOf(h.Key) == shard {
			h.remove()
			h.renewing, h.sent = true, true
			due = append(due, h)
		}
	}
	r.mu.Unlock()
	for chunk := range slices.Chunk(due, 4*leastRenewed) {
		r.send(chunk, now)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if q := r.releases[shard]; q != nil {
		r.flushSoon(shard, q, now)
	}
	r.arm(now)
}

// Close sends what was not released yet, once, and renews nothing more: what still runs
// lapses.
func (r *Registry) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.timer != nil {
		r.timer.Stop()
	}
	ids := make(map[string][]int64)
	for _, q := range r.releases {
		if q.timer != nil {
			q.timer.Stop()
		}
		for _, e := range q.waiting {
			ids[e.Key] = append(ids[e.Key], e.ID)
		}
	}
	if len(ids) > 0 {
		r.mu.Unlock()
		_ = r.Safely(func() error {
			_, err := r.Store.Release(context.Background(), ids)
			return err
		})
		r.mu.Lock()
	}
	r.releases = nil
}

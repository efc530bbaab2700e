package denials

import (
	"slices"

	"github.com/seed75154129/ratelimit/algorithms"
)

// Learn takes the store's answer about a check. An entry begins if the answer is a
// denial that says something about other requests.
func (d *Cache) Learn(asked Moment, l *Lookup, r *algorithms.Result) {
	if passes(&r.Check) {
		return
	}
	denied := begins(r)
	if l.entry == nil && !denied && (!asksAlways(&r.Check) || !d.used.Load()) {
		return // no entry is as good as one that has room
	}
	a := lastAnswer{at: r.At.UnixMicro(), sent: asked.since, received: d.now(), room: r.Remaining}
	a.state, a.exact = internal.Result(r).Trace().State, internal.Result(r).Known()
	s, h := d.place(&r.Check)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.entry != nil {
		l.entry.pending -= l.reserved
		if l.entry.pending == 0 || r.Charged == 0 { // otherwise as much room is reserved as before
			defer l.entry.wakeAll()
		}
	}
	if s.forgotten > asked.forgotten {
		return
	}
	e := d.find(s, h, &r.Check)
	switch {
	case e == nil && !denied:
		return
	case e == nil:
		e = s.add(&entry{ID: d.id(&r.Check), lastAnswer: a})
		d.used.Store(true)
	case e.newer(&a):
		e.lastAnswer = a
	}
	if e != l.entry {
		e.wakeAll()
	}
	if e.at != a.at { // it was not the newer one
		return
	}
	before := e.denied
	if e.denied = (denial{}); r.BannedFor > 0 || denied && !a.exact {
		e.denied = denialOf(r, &a)
		if e.denied.costs = before.costs; e.denied.cost != before.cost {
			e.denied.costs++
		}
	}
}

// begins reports whether a result begins an entry. Without a state, a denial for MaxDelay
// alone says nothing about other requests, and neither does Never.
func begins(r *algorithms.Result) bool {
	switch {
	case !r.Denies() || r.RetryAfter <= 0:
		return false
	case r.BannedFor > 0 || internal.Result(r).Known():
		return true
	}
	byDelay := r.Err == nil && internal.Limit(r.Check.Limit).Row().DeniedByDelay(r.Check.MaxDelay > 0, r.Remaining, r.Check.Cost)
	return !byDelay && r.RetryAfter != algorithms.Never
}

// newer reports whether an answer is newer than the entry's. If both came at the
// same time on the store's clock, the one by which more is used is.
func (e *entry) newer(a *lastAnswer) bool {
	switch {
	case a.sent >= e.received: // whatever the clocks say: another server may have taken over
		return true
	case a.at != e.at:
		return a.at > e.at
	case a.exact && e.exact:
		return slices.Compare(a.state[:], e.state[:]) >= 0
	}
	return a.room <= e.room
}

// Forget drops what is known of a key, and later what the store answers to requests
// that were sent before. changed says that the key was banned, unbanned or reset.
func (d *Cache) Forget(c *algorithms.Check, changed bool) {
	now := d.forgotten.Add(1)
	s, h := d.place(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgotten = max(s.forgotten, now)
	if changed {
		s.changed = s.forgotten
	}
	if e := d.find(s, h, c); e != nil {
		s.remove(e)
	}
}

// NoneForgotten reports whether no key was forgotten since a moment.
func (d *Cache) NoneForgotten(since Moment) bool { return d.forgotten.Load() == since.forgotten }

// UnlessChanged calls f, which uses an answer of the store, and reports whether it
// did. It does not if the key was banned, unbanned or reset since the store was asked.
// Such a change waits for f.
func (d *Cache) UnlessChanged(asked Moment, c *algorithms.Check, f func()) bool {
	s, _ := d.place(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed > asked.forgotten {
		return false
	}
	f()
	return true
}

package denials

import (
	"context"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/inside"
	"github.com/seed75154129/ratelimit/internal/step"
)

const (
	// recheckInterval is how often the store is asked about a key that is denied
	// here, because another process may have reset it. recheckPause bounds that for
	// all keys together, since there may be thousands of them in a flood.
	recheckInterval = time.Second
	recheckPause    = time.Second / 200
)

// A Lookup is what is known of a check before the store is asked. The zero value
// knows nothing.
type Lookup struct {
	set        *set
	entry      *entry // nil if nothing is known
	next       next
	recheckDue bool          // the answer is old: the store may be asked again, if the same is true of all that denies the request
	reserved   int64         // units of the entry's room
	at         int64         // on the store's clock, in µs, of the verdict
	banned     time.Duration // for how long the key is still banned
	verdict    step.Verdict
	wake       chan struct{}
}

// A next says what to do with a check.
type next int

const (
	ask  next = iota
	deny      // the store would deny it
	wait      // other requests have asked for all that fits
)

// An Outcome says what to do with a request.
type Outcome int

// The outcomes.
const (
	Ask        Outcome = iota // send it to the store, and pass the answers to Learn or Release
	Denied                    // the Decision is final
	Unanswered                // the request waited for others, and those got no answer from the store
)

// Decide decides the checks of a request that is known to be denied, and fills in
// lookups, one for each check. It waits for requests that have asked for all that
// fits, for no longer than the budget. Checks of which nothing is known have no Source.
// If it has waited, until is when the budget ends.
func (d *Cache) Decide(ctx context.Context, checks []algorithms.Check, lookups []Lookup, budget time.Duration) (_ algorithms.Decision, _ Outcome, until time.Time) {
	var timer *time.Timer
	for {
		var waiting *Lookup
		denied, now := false, d.now()
		for i := range checks {
			c, l := &checks[i], &lookups[i]
			*l = Lookup{}
			if passes(c) {
				continue
			}
			switch *l = d.lookUp(c, now); l.next {
			case deny:
				denied = true
			case wait:
				waiting = l
			}
		}
		switch {
		case denied && (waiting != nil || !d.recheck(checks, lookups, now)):
			d.releaseAll(lookups)
			return decision(checks, lookups), Denied, until
		case waiting == nil:
			return algorithms.Decision{}, Ask, until
		}
		d.releaseAll(lookups)
		if timer == nil {
			until = inside.EndOf(ctx, time.Now().Add(budget))
			timer = time.NewTimer(time.Until(until))
			defer timer.Stop()
		}
		select {
		case <-waiting.wake:
		case <-timer.C:
			waiting.next = deny // others have taken the room
			return decision(checks, lookups), Denied, until
		}
		if waiting.unanswered() {
			return algorithms.Decision{}, Unanswered, until
		}
	}
}

// decision is the denial of a request.
func decision(checks []algorithms.Check, lookups []Lookup) algorithms.Decision {
	d := algorithms.Decision{Results: make([]algorithms.Result, len(checks))}
	for i := range checks {
		r := &d.Results[i]
		if r.Check = checks[i]; lookups[i].next == deny {
			lookups[i].fill(r)
		}
	}
	return d
}

// fill fills in the empty result of a check that is denied here.
func (l *Lookup) fill(r *algorithms.Result) {
	r.Source, r.At, r.BannedFor = algorithms.SourceDenyCache, time.UnixMicro(l.at), l.banned
	r.Remaining, r.RetryAfter, r.ResetAfter = l.verdict.Remaining, l.verdict.RetryAfter, l.verdict.ResetAfter
}

// MayAsk reports whether the store may be asked about a check at a moment. If so,
// the caller must pass the answer to Learn, or the Lookup to Release. It never
// rechecks: that is for requests.
func (d *Cache) MayAsk(c *algorithms.Check, at Moment) (Lookup, bool) {
	if !d.used.Load() {
		return Lookup{}, true
	}
	l := d.lookUp(c, at.since)
	return l, l.next == ask
}

// lookUp returns what is known of an enforced check, and reserves the room for it
// if the store may be asked about it.
func (d *Cache) lookUp(c *algorithms.Check, now time.Duration) (l Lookup) {
	s, h := d.place(c)
	if !d.mayKnow(h) {
		return l
	}
	l.set = s
	s.mu.Lock()
	defer s.mu.Unlock()
	e := d.find(s, h, c)
	if e == nil {
		return l
	}
	l.at = e.at + (now - e.received).Microseconds()
	l.verdict, l.banned = e.banned(c, now)
	if l.banned > 0 && now-e.received < recheckInterval && !internal.Check(c).Holds() {
		l.entry, l.next = e, deny
		return l
	}
	if l.banned == 0 || !asksAlways(c) {
		l.verdict = e.verdict(c, now, 0)
	}
	l.banned = 0 // or known for too long: the store is asked
	switch {
	case asksAlways(c) || !l.verdict.Known:
		return l
	case !l.verdict.Room:
		l.next = deny
		l.recheckDue = now-max(e.received, e.rechecked) >= recheckInterval
	case d.refuses(*c):
		return l
	default:
		if e.pending > 0 {
			if l.verdict = e.verdict(c, now, e.pending); !l.verdict.Room {
				if e.wake == nil {
					e.wake = make(chan struct{})
				}
				l.entry, l.next, l.wake = e, wait, e.wake
				return l
			}
		}
		l.reserved = min(max(c.Cost, 1), c.Limit.Quota())
		e.pending += l.reserved
	}
	l.entry = e
	return l
}

// recheck reports whether to ask the store about a request that is known to be denied. All
// that denies it must be due, and the store must take requests: otherwise it would be
// denied all the same, and have used up the rechecks of others.
func (d *Cache) recheck(checks []algorithms.Check, lookups []Lookup, now time.Duration) bool {
	last := d.rechecked.Load()
	if last != 0 && now-time.Duration(last) < recheckPause {
		return false
	}
	for i := range lookups {
		if l := &lookups[i]; l.next == deny && (!l.recheckDue || d.refuses(checks[i])) {
			return false
		}
	}
	if !d.rechecked.CompareAndSwap(last, int64(now)) {
		return false
	}
	for i := range lookups {
		if l := &lookups[i]; l.next == deny {
			l.set.mu.Lock()
			l.entry.rechecked = now
			l.set.mu.Unlock()
			l.next = ask
		}
	}
	return true
}

// Find returns the denial of a check, if its key is known to be over the limit. The
// store is not asked again, however old the denial is.
func (d *Cache) Find(c *algorithms.Check) (algorithms.Result, bool) {
	if !d.used.Load() || passes(c) {
		return algorithms.Result{}, false
	}
	now := d.now()
	s, h := d.place(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := d.find(s, h, c)
	if e == nil {
		return algorithms.Result{}, false
	}
	l := Lookup{at: e.at + (now - e.received).Microseconds()}
	if l.verdict, l.banned = e.banned(c, now); l.banned == 0 {
		l.verdict = e.verdict(c, now, 0)
	}
	if !l.verdict.Known || l.verdict.Room {
		return algorithms.Result{}, false
	}
	r := algorithms.Result{Check: *c}
	l.fill(&r)
	return r, true
}

// Release ends a reservation without an answer of the store. If the store was
// asked, the requests that wait must not ask one after the other what gets no
// answer.
func (d *Cache) Release(l *Lookup, asked bool) {
	if l.entry == nil || l.next != ask {
		return
	}
	l.set.mu.Lock()
	defer l.set.mu.Unlock()
	e := l.entry
	e.pending -= l.reserved
	if asked && l.reserved > 0 {
		e.unanswered = true
		l.set.remove(e)
		return
	}
	e.wakeAll()
}

func (d *Cache) releaseAll(lookups []Lookup) {
	for i := range lookups {
		d.Release(&lookups[i], false)
	}
}

// unanswered reports whether the requests that asked got no answer.
func (l *Lookup) unanswered() bool {
	l.set.mu.Lock()
	defer l.set.mu.Unlock()
	return l.entry.unanswered
}

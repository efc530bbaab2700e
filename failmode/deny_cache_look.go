package failmode

import (
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/step"
)

// How the cache of denials is asked before the store is.

const (
	// secondLook is how often a key that is denied here is asked for even so:
	// another process may have reset it. secondLooks bounds that for all keys
	// together, since there may be thousands of them in a flood.
	secondLook  = time.Second
	secondLooks = time.Second / 200
)

// A lookup is what is known of a check before the store is asked.
type lookup struct {
	set      *denySet
	entry    *denyEntry // nil if nothing is known
	outcome  lookOutcome
	due      bool          // a second look is, if all that denies the request is due for one
	reserved int64         // units of the entry's room
	at       int64         // on the store's clock, in µs, of the verdict
	banned   time.Duration // by a ban, for so long
	verdict  step.Verdict
	wake     chan struct{}
}

type lookOutcome int

const (
	mayAsk  lookOutcome = iota
	mustNot             // the store would deny
	mayWait             // others have asked for what there is room for
)

// look says what is known of an enforced check, and reserves the room for it if
// it may be asked for: the caller must pass the answer to learn.
func (d *denyCache) look(c *algorithms.Check, now time.Duration) (l lookup) {
	s, h := d.place(c)
	if !d.mayKnow(h) {
		return l
	}
	l.set = s
	s.mu.Lock()
	defer s.mu.Unlock()
	e := d.entry(s, h, c)
	if e == nil {
		return l
	}
	l.at = e.at + (now - e.received).Microseconds()
	if l.verdict, l.banned = e.banned(c, now); l.banned > 0 && now-e.received < secondLook {
		l.entry, l.outcome = e, mustNot
		return l
	}
	l.banned = 0 // or known for too long: the store is asked
	if asksAlways(c) {
		return l
	}
	l.verdict = e.verdict(c, now, 0)
	switch {
	case !l.verdict.Known:
		return l
	case !l.verdict.Room:
		l.outcome = mustNot
		l.due = now-max(e.received, e.looked) >= secondLook && !d.refuses(c)
	case d.refuses(c):
		return l
	default:
		if e.asking > 0 {
			if l.verdict = e.verdict(c, now, e.asking); !l.verdict.Room {
				if e.wake == nil {
					e.wake = make(chan struct{})
				}
				l.entry, l.outcome, l.wake = e, mayWait, e.wake
				return l
			}
		}
		l.reserved = max(c.Cost, 1)
		e.asking += l.reserved
	}
	l.entry = e
	return l
}

// lookAgain reports whether the request is to be asked about though it is known to
// be denied. It is where all that denies it is due: otherwise it would be denied all
// the same, and have used up the looks of others.
func (d *denyCache) lookAgain(looks []lookup, now time.Duration) bool {
	for i := range looks {
		if looks[i].outcome == mustNot && !looks[i].due {
			return false
		}
	}
	last := d.looked.Load()
	if last != 0 && now-time.Duration(last) < secondLooks || !d.looked.CompareAndSwap(last, int64(now)) {
		return false
	}
	for i := range looks {
		if l := &looks[i]; l.outcome == mustNot {
			l.set.mu.Lock()
			l.entry.looked = now
			l.set.mu.Unlock()
			l.outcome = mayAsk
		}
	}
	return true
}

// find returns the denial of a check, if its key is known to be over.
func (d *denyCache) find(c *algorithms.Check) (algorithms.Result, bool) {
	if !d.used.Load() || c.Shadow {
		return algorithms.Result{}, false
	}
	now := d.now()
	s, h := d.place(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := d.entry(s, h, c)
	if e == nil {
		return algorithms.Result{}, false
	}
	l := lookup{at: e.at + (now - e.received).Microseconds()}
	if l.verdict, l.banned = e.banned(c, now); l.banned == 0 {
		l.verdict = e.verdict(c, now, 0)
	}
	if !l.verdict.Known || l.verdict.Room {
		return algorithms.Result{}, false
	}
	r := algorithms.Result{Check: *c}
	l.deny(&r)
	return r, true
}

// deny fills in the empty result of a check that is denied here.
func (l *lookup) deny(r *algorithms.Result) {
	r.Source, r.At, r.BannedFor = algorithms.SourceDenyCache, time.UnixMicro(l.at), l.banned
	r.Remaining, r.RetryAfter, r.ResetAfter = l.verdict.Remaining, l.verdict.RetryAfter, l.verdict.ResetAfter
}

// release ends a reservation without an answer of the store. If the store was
// asked, those who wait must not ask one after the other what nobody answers.
func (d *denyCache) release(l *lookup, asked bool) {
	if l.entry == nil || l.outcome != mayAsk {
		return
	}
	l.set.mu.Lock()
	defer l.set.mu.Unlock()
	e := l.entry
	e.asking -= l.reserved
	if asked && l.reserved > 0 {
		e.lost = true
		l.set.remove(e)
		return
	}
	e.tell()
}

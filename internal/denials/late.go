package denials

import (
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// Answers may overtake each other, and come after what an operator did meanwhile.

// A sending is when a question was sent, for its answer.
type sending struct {
	at      time.Duration // since start
	emptied uint64
}

// newer reports whether an answer is newer than the entry's. If both came at the
// same time on the store's clock, the one by which more is used is.
func (e *denyEntry) newer(a *lastAnswer) bool {
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

// forget drops what is known of a key, and what the store will answer to
// questions that were sent before. changed says that it was banned, lifted or reset.
func (d *denyCache) forget(c *algorithms.Check, changed bool) {
	now := d.emptied.Add(1)
	s, h := d.place(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.emptied = max(s.emptied, now)
	if changed {
		s.changed = s.emptied
	}
	if e := d.entry(s, h, c); e != nil {
		s.remove(e)
	}
}

// unlessChanged calls f, which uses an answer of the store, and reports whether it
// did: not if the key was banned, lifted or reset since the question was sent. Such
// a change waits for f.
func (d *denyCache) unlessChanged(sent sending, c *algorithms.Check, f func()) bool {
	s, _ := d.place(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed > sent.emptied {
		return false
	}
	f()
	return true
}

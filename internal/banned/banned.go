// Package banned remembers the bans that a process has begun or met.
package banned

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Max is how many bans a List has. With more, those by hand stay, and those that end
// first go.
const Max = 256

// A Key has a ban.
type Key struct{ Rule, Key string }

// A Ban is one that this process knows of.
type Ban struct {
	Key
	By           string    // ByRule, or an operator; "" if another process began it
	Since, Until time.Time // since this process knows of it; until when at least
}

// Who has begun a ban.
const (
	ByRule     = "the rule"
	ByOperator = "an operator at " // and an address
)

// byHand is 1 for a ban that an operator has begun, and 0 for others.
func (b *Ban) byHand() int {
	if strings.HasPrefix(b.By, ByOperator) {
		return 1
	}
	return 0
}

// compare orders bans by which goes first if there is no room.
func (b *Ban) compare(other *Ban) int {
	return cmp.Or(cmp.Compare(b.byHand(), other.byHand()), b.Until.Compare(other.Until))
}

// A List has bans. The zero value has none. It is safe for concurrent use.
type List struct {
	mu   sync.RWMutex
	bans map[Key]*Ban
	gone time.Time // the latest end of a ban that had no room
}

// precision is how far two reports of one ban's end may differ.
const precision = time.Second

// Note remembers that a key is banned for so long.
func (l *List) Note(key Key, by string, now time.Time, rest time.Duration) {
	b := Ban{Key: key, By: by, Since: now, Until: now.Add(rest)}
	if l.repeats(&b, now) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.bans[key]
	switch {
	case known == nil:
		l.add(b, now)
		return
	case by != "" || known.Until.Before(now):
		known.By, known.Since = by, now
	}
	if b.Until.After(known.Until) {
		known.Until = b.Until
	}
}

// repeats reports whether a ban that was met changes nothing. A flood of banned clients
// gets no further.
func (l *List) repeats(b *Ban, now time.Time) bool {
	if b.By != "" {
		return false
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if known := l.bans[b.Key]; known != nil {
		return known.Until.After(now) && !b.Until.After(known.Until.Add(precision))
	}
	return len(l.bans) >= Max && !b.Until.After(l.gone.Add(precision))
}

// add adds a ban. If there is no room, the first of all goes. It requires mu.
func (l *List) add(b Ban, now time.Time) {
	if l.bans == nil {
		l.bans = make(map[Key]*Ban)
	}
	if len(l.bans) >= Max {
		first := &b
		for _, known := range l.bans {
			if !known.Until.After(now) {
				first = known
				break
			}
			if known.compare(first) < 0 {
				first = known
			}
		}
		if first.Until.After(l.gone) {
			l.gone = first.Until
		}
		if first == &b {
			return
		}
		delete(l.bans, first.Key)
	}
	l.bans[b.Key] = &b
}

// Forget removes the ban of a key, which was lifted.
func (l *List) Forget(key Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.bans, key)
}

// All returns the bans that have not ended: those by hand first, then the newest first.
func (l *List) All(now time.Time) (all []Ban) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, b := range l.bans {
		if b.Until.After(now) {
			all = append(all, *b)
		}
	}
	slices.SortFunc(all, func(a, b Ban) int {
		return cmp.Or(cmp.Compare(b.byHand(), a.byHand()), b.Since.Compare(a.Since), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Key.Key, b.Key.Key))
	})
	return all
}

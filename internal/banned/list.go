package banned

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Max is how many bans a List has. There is no room for others, but a ban by hand takes
// the place of one that is not.
const Max = 256

// A Key has a ban.
type Key struct{ Rule, Key string }

// A Ban is one that this process knows of.
type Ban struct {
	Key
	By           string    // ByRule, ByProgram or an operator; "" if another process began it
	Since, Until time.Time // since this process knows of it; until when at least
}

// Who has begun a ban.
const (
	ByRule     = "the rule"
	ByProgram  = "the program"
	ByOperator = "an operator at " // and an address
)

// byHand is 1 for a ban that an operator has begun, and 0 for others.
func byHand(by string) int {
	if strings.HasPrefix(by, ByOperator) {
		return 1
	}
	return 0
}

// A List has bans. The zero value has none. It is safe for concurrent use.
type List struct {
	mu    sync.Mutex
	bans  map[Key]*Ban
	swept time.Time // when a full list was last searched for bans that have ended
}

// Note remembers that a key is banned for so long.
func (l *List) Note(key Key, by string, now time.Time, rest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.bans[key]
	if b == nil {
		if !l.makeRoom(by, now) {
			return
		}
		b = &Ban{Key: key}
		l.bans[key] = b
	}
	if by != "" || b.Until.Before(now) {
		b.By, b.Since = by, now
	}
	if until := now.Add(rest); until.After(b.Until) {
		b.Until = until
	}
}

// makeRoom reports whether there is room for another ban. A flood of banned clients
// searches a full list once a second.
func (l *List) makeRoom(by string, now time.Time) bool {
	if l.bans == nil {
		l.bans = make(map[Key]*Ban)
	}
	if len(l.bans) >= Max && now.Sub(l.swept) >= time.Second {
		l.swept = now
		maps.DeleteFunc(l.bans, func(_ Key, b *Ban) bool { return !b.Until.After(now) })
	}
	if len(l.bans) >= Max && byHand(by) == 1 {
		for key, b := range l.bans {
			if byHand(b.By) == 0 {
				delete(l.bans, key)
				break
			}
		}
	}
	return len(l.bans) < Max
}

// Forget removes the ban of a key, which was lifted.
func (l *List) Forget(key Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.bans, key)
}

// All returns the bans that have not ended: those by hand first, then the newest first.
func (l *List) All(now time.Time) (all []Ban) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.bans {
		if b.Until.After(now) {
			all = append(all, *b)
		}
	}
	slices.SortFunc(all, func(a, b Ban) int {
		return cmp.Or(cmp.Compare(byHand(b.By), byHand(a.By)), b.Since.Compare(a.Since), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Key.Key, b.Key.Key))
	})
	return all
}

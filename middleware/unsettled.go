package middleware

import (
	"cmp"
	"container/list"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// unsettled knows, for rules with ChargeOn and a Ban, of which keys requests are
// under way in this process whose charges may still be given back. A denial
// meanwhile is no reason to ban: fifteen people behind one address who log in at
// once are no attack. The zero value is ready.
//
// Whether a denial counts is said before it is decided, so that it takes one round
// trip. While a key has fresh unsettled charges, no denial counts, and its requests are
// decided side by side. While it has none, they are decided one after the other:
// of two at once, the first could be charged and the second be denied and counted.
// This ends with the first charge, or with the ban.
//
// A request that has waited in vain for its turn is decided all the same. It is
// spared, and keeps nobody waiting: otherwise who sends more than can be decided in
// turn could never be banned.
type unsettled struct {
	mu   sync.Mutex
	keys map[counted]*underWay
}

// A counted is a count of such a rule.
type counted struct{ rule, key string }

// underWay is what a key has under way. An entry without anything is removed.
type underWay struct {
	counting    bool      // a request is being decided whose denial counts
	sparing     int       // requests are being decided whose denials do not
	charged     int       // charges that may still be given back
	chargedAt   time.Time // the last of them
	bannedUntil time.Time // no denial counts before
	waiting     list.List // of *waiter, in the order in which they came
}

// A part is what a request that is being decided is for its key.
type part int

const (
	late part = iota // it waited in vain
	counting
	sparing
)

// A waiter is a request that waits to be decided.
type waiter struct {
	part part
	turn chan struct{} // closed when part is set
}

// A crossing is a request's part in it: what it has under way. Nil has nothing.
type crossing struct {
	of      *unsettled
	asked   []asked
	charges []counted
}

type asked struct {
	counted
	part part
}

// enter waits until the checks may be decided, at most for so long, and spares
// those whose denial must not count.
func (c *crossing) enter(checks []algorithms.Check, counts func(*algorithms.Check) bool, most time.Duration) {
	var at []int
	for i := range checks {
		if counts(&checks[i]) {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return
	}
	// In one order, so that no two requests wait for each other.
	slices.SortFunc(at, func(i, j int) int {
		return cmp.Or(strings.Compare(checks[i].Rule, checks[j].Rule), strings.Compare(checks[i].Key, checks[j].Key))
	})
	timer := time.NewTimer(most)
	defer timer.Stop()
	patience := timer.C
	for _, i := range at {
		key := counted{checks[i].Rule, checks[i].Key}
		part, over := c.of.enter(key, patience)
		if over {
			patience = closedTimer
		}
		if part != counting {
			lent.Spare(&checks[i])
		}
		c.asked = append(c.asked, asked{key, part})
	}
}

// excuse is for how long a charge that is not settled excuses denials. Otherwise who
// keeps one request waiting, by a body that comes slowly, could never be banned.
const excuse = 10 * time.Second

// closedTimer is one that has fired.
var closedTimer = func() <-chan time.Time { c := make(chan time.Time); close(c); return c }()

// enter waits until a check may be decided. It is spared if the key has unsettled
// charges or is banned, and late if the time is over.
func (u *unsettled) enter(key counted, patience <-chan time.Time) (p part, over bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	w := u.of(key)
	if p := w.next(time.Now()); p != late {
		return p, false
	}
	me := &waiter{turn: make(chan struct{})}
	at := w.waiting.PushBack(me)
	u.mu.Unlock()
	select {
	case <-me.turn:
	case <-patience:
		over = true
	}
	u.mu.Lock()
	w.waiting.Remove(at) // unless its turn has come
	return me.part, over
}

// of is what a key has under way.
func (u *unsettled) of(key counted) *underWay {
	w := u.keys[key]
	if w == nil {
		if u.keys == nil {
			u.keys = make(map[counted]*underWay)
		}
		w = new(underWay)
		u.keys[key] = w
	}
	return w
}

// next begins the decision of a request; late means that none may begin yet.
func (w *underWay) next(now time.Time) part {
	switch {
	case w.charged > 0 && now.Sub(w.chargedAt) < excuse && !w.counting, now.Before(w.bannedUntil):
		w.sparing++
		return sparing
	case !w.counting && w.sparing == 0:
		w.counting = true
		return counting
	}
	return late
}

// decided notes what became of the checks that entered. Charges stay unsettled
// until settled is called, if they may be given back.
func (c *crossing) decided(d *algorithms.Decision, returnable bool) {
	if c == nil {
		return
	}
	for _, a := range c.asked {
		charged, banned := false, time.Duration(0)
		for i := range d.Results {
			if r := &d.Results[i]; r.Check.Rule == a.rule && r.Check.Key == a.key && r.Err == nil {
				charged = r.Charged > 0 && returnable
				if r.BannedFor > 0 { // what a cache remembers, it tells for a moment
					banned = cmp.Or(r.BannedFor, min(r.RetryAfter, time.Second))
				}
			}
		}
		c.of.change(a.counted, func(w *underWay) {
			switch a.part {
			case sparing:
				w.sparing--
			case counting:
				w.counting = false
			}
			w.bannedUntil = time.Time{}
			if banned > 0 {
				w.bannedUntil = time.Now().Add(banned)
			}
			if charged {
				w.charged++
				w.chargedAt = time.Now()
				c.charges = append(c.charges, a.counted)
			}
		})
	}
	c.asked = nil
}

// settled says that nothing of the request will be given back any more. Calling it
// again does nothing.
func (c *crossing) settled() {
	if c == nil {
		return
	}
	c.of.mu.Lock()
	charges := c.charges
	c.charges = nil
	c.of.mu.Unlock()
	for _, key := range charges {
		c.of.change(key, func(w *underWay) { w.charged-- })
	}
}

// end ends what a request has under way, also after a panic.
func (c *crossing) end() {
	c.decided(new(algorithms.Decision), false)
	c.settled()
}

// change changes what a key has under way, and wakes those whose turn has come, each
// once.
func (u *unsettled) change(key counted, f func(*underWay)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	w := u.of(key) // which is new if the request was late and nothing else is under way
	f(w)
	for now := time.Now(); w.waiting.Len() > 0; {
		p := w.next(now)
		if p == late {
			return
		}
		first := w.waiting.Remove(w.waiting.Front()).(*waiter)
		first.part = p
		close(first.turn)
	}
	if !w.counting && w.sparing == 0 && w.charged == 0 {
		delete(u.keys, key)
	}
}

// Package refundable keeps denials from counting towards a ban while charges of the key
// may still be refunded: fifteen people behind one address who log in at once are no
// attack.
//
// Whether a denial counts is decided before the limiter is asked, so that the limiter is
// asked once. While a key has recent refundable charges, no denial counts, and its
// requests are decided concurrently. While it has none, they are decided one after the
// other: of two concurrent requests, the first could be charged and the second be denied
// and counted. That ends with the first charge, or with a ban.
//
// A request that has waited too long is decided all the same. Its denial does not count.
// It does not delay other requests and does not keep their denials from counting.
// Otherwise a client could avoid every ban by sending faster than requests are decided.
package refundable

import (
	"cmp"
	"container/list"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/inside"
)

var lent = algorithms.Internal.Open(&inside.Allow)

// Charges tracks the keys whose charges may be refunded, in this process. The zero value
// is ready. It is safe for concurrent use.
type Charges struct {
	mu   sync.Mutex
	keys map[id]*pending
}

type id struct{ rule, key string }

// pending holds the requests in progress of a key. One without any is removed.
type pending struct {
	counting    bool      // a request is being decided whose denial counts
	ignoring    int       // requests are being decided whose denials do not count
	charged     int       // charges that may be refunded
	chargedAt   time.Time // the last of them
	bannedUntil time.Time // no denial counts before
	waiting     list.List // of *waiter, in the order in which they came
}

// A role says whether a request's denial counts.
type role int

const (
	timedOut     role = iota // it waited too long
	countDenial              // alone
	ignoreDenial             // with others
)

// A waiter is a request that waits to be decided.
type waiter struct {
	role  role
	ready chan struct{} // closed when role is set
}

// A Request tracks what one request holds in Charges. A nil Request holds nothing.
type Request struct {
	of      *Charges
	entered []entered
	charges []id
}

type entered struct {
	id
	role role
}

// NewRequest returns a Request that holds nothing. The caller must End it.
func (c *Charges) NewRequest() *Request { return &Request{of: c} }

// Enter waits until the checks may be decided, at most for maxWait. Only checks for which
// counts reports true wait. If the denial of a check must not count towards its ban, Enter
// marks the check.
func (r *Request) Enter(checks []algorithms.Check, counts func(algorithms.Check) bool, maxWait time.Duration) {
	var at []int
	for i := range checks {
		if counts(checks[i]) {
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
	ended, last := make(chan struct{}), entered{}
	timer := time.AfterFunc(maxWait, func() { close(ended) })
	defer timer.Stop()
	for _, i := range at {
		if k := (id{checks[i].Rule, checks[i].Key}); k != last.id { // once for all windows of a rule
			last = entered{k, r.of.enter(k, ended)}
			r.entered = append(r.entered, last)
		}
		if last.role != countDenial {
			lent.Check(&checks[i]).Spare()
		}
	}
}

// grace is how long a charge keeps denials from counting. Without a bound, a client that
// keeps one request in progress by a slow body could never be banned.
const grace = 10 * time.Second

// enter waits until a check may be decided, or until ended is closed.
func (c *Charges) enter(k id, ended <-chan struct{}) role {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.of(k)
	if r := p.begin(time.Now()); r != timedOut {
		return r
	}
	w := &waiter{ready: make(chan struct{})}
	at := p.waiting.PushBack(w)
	c.mu.Unlock()
	select {
	case <-w.ready:
	case <-ended:
	}
	c.mu.Lock()
	p.waiting.Remove(at) // does nothing if the waiter became ready meanwhile
	return w.role
}

// of returns the requests in progress of a key.
func (c *Charges) of(k id) *pending {
	p := c.keys[k]
	if p == nil {
		if c.keys == nil {
			c.keys = make(map[id]*pending)
		}
		p = new(pending)
		c.keys[k] = p
	}
	return p
}

// begin begins the decision of a request; timedOut means that none may begin yet.
func (p *pending) begin(now time.Time) role {
	switch {
	case p.charged > 0 && now.Sub(p.chargedAt) < grace && !p.counting, now.Before(p.bannedUntil):
		p.ignoring++
		return ignoreDenial
	case !p.counting && p.ignoring == 0:
		p.counting = true
		return countDenial
	}
	return timedOut
}

// Decided records the results of the checks that entered. If canRefund is true, their
// charges may be refunded until Settled is called.
func (r *Request) Decided(d *algorithms.Decision, canRefund bool) {
	if r == nil {
		return
	}
	for _, e := range r.entered {
		charged, banned := false, time.Duration(0)
		for i := range d.Results {
			if res := &d.Results[i]; res.Check.Rule == e.rule && res.Check.Key == e.key && res.Err == nil {
				charged = charged || res.Charged > 0 && canRefund
				if res.BannedFor > 0 { // what a cache remembers is repeated for a moment
					banned = cmp.Or(res.BannedFor, min(res.RetryAfter, time.Second))
				}
			}
		}
		r.of.change(e.id, func(p *pending) {
			switch e.role {
			case ignoreDenial:
				p.ignoring--
			case countDenial:
				p.counting = false
			}
			p.bannedUntil = time.Time{}
			if banned > 0 {
				p.bannedUntil = time.Now().Add(banned)
			}
			if charged {
				p.charged++
				p.chargedAt = time.Now()
				r.charges = append(r.charges, e.id)
			}
		})
	}
	r.entered = nil
}

// Settled records that the request's charges are final. Further calls do nothing.
func (r *Request) Settled() {
	if r == nil {
		return
	}
	r.of.mu.Lock()
	charges := r.charges
	r.charges = nil
	r.of.mu.Unlock()
	for _, k := range charges {
		r.of.change(k, func(p *pending) { p.charged-- })
	}
}

// End releases all that the request holds, also after a panic.
func (r *Request) End() {
	r.Decided(new(algorithms.Decision), false)
	r.Settled()
}

// change changes a key's requests in progress, and wakes the waiters that may begin, each
// once.
func (c *Charges) change(k id, f func(*pending)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.of(k) // new if the request timed out and no other is in progress
	f(p)
	for now := time.Now(); p.waiting.Len() > 0; {
		r := p.begin(now)
		if r == timedOut {
			return
		}
		first := p.waiting.Remove(p.waiting.Front()).(*waiter)
		first.role = r
		close(first.ready)
	}
	if !p.counting && p.ignoring == 0 && p.charged == 0 {
		delete(c.keys, k)
	}
}

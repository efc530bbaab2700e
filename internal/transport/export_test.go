package transport

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// What the tests see of a Transport. They send through an algorithms.Redis, which
// imports this package, so they cannot be inside it.
const (
	MaxPlaces  = maxPlaces
	MaxBatch   = maxBatch
	MaxKeys    = maxKeys
	MaxApart   = maxApart
	MaxWaiting = maxWaiting
	MaxSlow    = maxSlow
	SlowBatch  = slowBatch

	MaxUnderWay = maxUnderWay
)

var ErrBusy = errBusy

// SetReply answers a script that replies with a string.
func SetReply(cmd redis.Cmder, reply string) {
	if text, ok := cmd.(textCmd); ok {
		text.SetVal(reply)
	}
}

// Direct reports whether commands are sent on the goroutine that wants their answer.
func Direct(c Client) bool { return kindOf(c, false).direct }

// UnderWay returns how many batches are under way to the only server, and how many
// places they take.
func (t *Transport) UnderWay() (batches, taken int) {
	b := t.batcher(0)
	return len(b.underWay), b.taken
}

// Wakes reports whether the timer of the only server is set.
func (t *Transport) Wakes() bool { return !t.batcher(0).wakes.IsZero() }

// Connecting returns how many servers are being connected to in the background.
func (t *Transport) Connecting() int {
	c := &t.connector
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.underWay)
}

// SetLimit changes the budget.
func (t *Transport) SetLimit(d time.Duration) { t.limit = d }

// SendLate sends a call whose caller leaves after so long, however little time a
// batch has then.
func (t *Transport) SendLate(ctx context.Context, c *Call, leaves time.Duration, direct bool) error {
	b := t.batcher(0)
	b.reserve = 0
	p := &pending{ctx: t.Within(ctx), deadline: time.Now().Add(leaves), calls: []*Call{c}}
	b.do(p, direct)
	return p.err
}

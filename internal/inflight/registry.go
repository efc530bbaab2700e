// Package inflight knows which requests this process has under way that a store counts:
// it renews their leases while they run, and tells the store when they have ended. It
// knows neither checks nor limits.
//
// A request is a member of a set in the store, by a random number of its own. So every
// command may be sent again, and is, until its answer is there or the lease is over.
package inflight

import (
	"context"
	"slices"
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
	// that have answered. It does not change the ids.
	Release(ctx context.Context, ids map[string][]int64) (released []string, err error)
	// Renew puts members off, or back in, in bounded time. It returns those that failed.
	Renew(ctx context.Context, places []Place) (failed []Place, err error)
}

// A Registry is the requests under way. Its fields must not change after first use.
type Registry struct {
	Store    Store
	Open     func(shard int) bool     // nothing can be sent there now
	Begin    func(func()) bool        // runs a function in the background, unless there are too many
	Safely   func(func() error) error // makes an error of a panic of the store's
	Patience time.Duration            // how long a denied request waits for places that are free

	Failed, Dropped atomic.Int64 // renewals, and releases that were left to the lease

	mu       sync.Mutex // over all below
	closed   bool       // nothing more is begun
	ended    bool       // nothing more is released
	holders  map[int64]*holder
	due      agenda // the holders, but for those that are being renewed
	renewing bool
	timer    *time.Timer
	releases map[int]*queue // by shard
}

// A holder is a request under way.
type holder struct {
	Place
	due    time.Time // when it is renewed
	at     int       // in the agenda; below 0 while it is being renewed
	sent   bool      // the store may know it
	unsure bool      // a command about it may yet arrive, any time
	ended  bool      // while it was being renewed
}

// An agenda is a heap of holders; the next that is due is the first.
type agenda []*holder

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].due.Before(a[j].due) }
func (a agenda) Swap(i, j int)      { a[i], a[j] = a[j], a[i]; a[i].at, a[j].at = i, j }

// Push implements [heap.Interface].
func (a *agenda) Push(h any) { *a = append(*a, h.(*holder)) }

// Pop implements [heap.Interface].
func (a *agenda) Pop() any {
	last := len(*a) - 1
	h := (*a)[last]
	(*a)[last], *a = nil, (*a)[:last]
	h.at = -1
	return h
}

// A queue is the releases that are to be sent to one part of the store.
type queue struct {
	waiting []released
	busy    bool       // a flush was begun, or will be
	flushed time.Time  // when the last one began
	sent    []*sending // without an answer yet, or answered no longer ago than the Patience
}

// take takes the releases of a key out of the queue, as many as are sent at once.
func (q *queue) take(key string) (taken []released) {
	q.waiting = slices.DeleteFunc(q.waiting, func(e released) bool {
		if e.Key != key || len(taken) == maxFlush {
			return false
		}
		taken = append(taken, e)
		return true
	})
	return taken
}

// note has Free find a sending, until it is answered and the patience is over.
func (q *queue) note(s *sending, patience time.Duration) {
	q.sent = append(slices.DeleteFunc(q.sent, func(s *sending) bool { return !s.answered.IsZero() && time.Since(s.answered) > patience }), s)
}

// A sending is releases that were sent together.
type sending struct {
	releases []released
	ids      map[string][]int64 // by key; once answered, those that failed
	left     map[string]int     // by key: how many places no call of Free was told of
	answered time.Time
	done     chan struct{} // closed then
}

type released struct {
	Place
	until time.Time // it lapses
}

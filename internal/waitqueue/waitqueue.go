// Package waitqueue bounds how many requests wait at a time, in total and for each key,
// so that no key takes the places of all others.
package waitqueue

import (
	"net/http"
	"sync"
)

// A Queue holds the requests that wait. It is safe for concurrent use.
type Queue struct {
	max, maxOfKey, maxUnnoticed int

	mu      sync.Mutex
	entered int          // requests with a ticket
	waiting int          // those of them that wait, rather than being decided
	of      map[held]int // tickets by key
}

// A Key is a key of a rule, for which requests wait one after the other.
type Key struct{ Rule, Key string }

// held is what a ticket counts for.
type held struct {
	Key
	unnoticed bool // counts only requests whose client may hang up unnoticed
}

// New returns a Queue for at most size requests. Requests of one key may be half of
// them, and a sixteenth if their clients may hang up unnoticed.
func New(size int) *Queue {
	return &Queue{max: size, maxOfKey: (size + 1) / 2, maxUnnoticed: (size + 15) / 16, of: make(map[held]int)}
}

// A Ticket is a request's place in a Queue. A nil Ticket holds no place.
type Ticket struct {
	queue *Queue
	held  []held // guarded by queue.mu; nil once the request has left
	waits bool   // guarded by queue.mu
}

// MaxBody is the largest body, in bytes, that is to be read while its request waits.
const MaxBody = 8 << 10

// HidesHangUp reports whether net/http may not notice that the client hangs up. It
// notices that once the body of an HTTP/1 request is read. So small bodies are to be read
// while the request waits. Larger ones, and those of unknown length, are the handler's.
func HidesHangUp(r *http.Request) bool {
	return r.ProtoMajor == 1 && r.Body != nil && r.Body != http.NoBody && (r.ContentLength < 0 || r.ContentLength > MaxBody)
}

// Enter returns a ticket for a request with these keys; nil if the queue is full for one
// of them.
func (q *Queue) Enter(r *http.Request, keys []Key) *Ticket {
	unnoticed := HidesHangUp(r)
	var all []held
	for _, k := range keys {
		all = append(all, held{k, false})
		if unnoticed {
			all = append(all, held{k, true})
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.entered >= q.max {
		return nil
	}
	for _, h := range all {
		if n := q.of[h]; n >= q.maxOfKey || h.unnoticed && n >= q.maxUnnoticed {
			return nil
		}
	}
	for _, h := range all {
		q.of[h]++
	}
	q.entered++
	return &Ticket{queue: q, held: all}
}

// Wait notes that the request waits from now on.
func (t *Ticket) Wait() {
	if t == nil {
		return
	}
	t.queue.mu.Lock()
	defer t.queue.mu.Unlock()
	if t.held != nil && !t.waits {
		t.waits = true
		t.queue.waiting++
	}
}

// Leave frees the place. Further calls do nothing.
func (t *Ticket) Leave() {
	if t == nil {
		return
	}
	q := t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.held == nil {
		return
	}
	for _, h := range t.held {
		if q.of[h]--; q.of[h] == 0 {
			delete(q.of, h)
		}
	}
	q.entered--
	if t.waits {
		q.waiting--
	}
	t.held = nil
}

// Waiting returns how many requests wait.
func (q *Queue) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}

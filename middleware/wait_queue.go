package middleware

import (
	"net/http"
	"sync"
)

// A waitQueue bounds how many requests wait at a time, in total and for each key, so that no
// key takes the places of all others. It is safe for concurrent use.
type waitQueue struct {
	max, maxOfKey, maxUnnoticed int

	mu      sync.Mutex
	entered int            // requests with a ticket
	waiting int            // those of them that wait, rather than being decided
	of      map[queued]int // tickets by key
}

// A queueKey is a key of a rule, for which requests wait one after the other.
type queueKey struct{ Rule, Key string }

// queued is what a ticket counts for.
type queued struct {
	queueKey
	unnoticed bool // counts only requests whose client may hang up unnoticed
}

// newWaitQueue returns a queue for at most size requests. Requests of one key may be half of
// them, and a sixteenth if their clients may hang up unnoticed.
func newWaitQueue(size int) *waitQueue {
	return &waitQueue{max: size, maxOfKey: (size + 1) / 2, maxUnnoticed: (size + 15) / 16, of: make(map[queued]int)}
}

// A ticket is a request's place in a waitQueue. A nil ticket holds no place.
type ticket struct {
	queue *waitQueue
	held  []queued // guarded by queue.mu; nil once the request has left
	waits bool     // guarded by queue.mu
}

// maxReadBody is the largest body, in bytes, that is to be read while its request waits.
const maxReadBody = 8 << 10

// hidesHangUp reports whether net/http may not notice that the client hangs up. It
// notices that once the body of an HTTP/1 request is read. So small bodies are to be read
// while the request waits. Larger ones, and those of unknown length, are the handler's.
func hidesHangUp(r *http.Request) bool {
	return r.ProtoMajor == 1 && r.Body != nil && r.Body != http.NoBody && (r.ContentLength < 0 || r.ContentLength > maxReadBody)
}

// enter returns a ticket for a request with these keys; nil if the queue is full for one
// of them.
func (q *waitQueue) enter(r *http.Request, keys []queueKey) *ticket {
	unnoticed := hidesHangUp(r)
	var all []queued
	for _, k := range keys {
		all = append(all, queued{k, false})
		if unnoticed {
			all = append(all, queued{k, true})
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
	return &ticket{queue: q, held: all}
}

// wait notes that the request waits from now on.
func (t *ticket) wait() {
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

// leave frees the place. Further calls do nothing.
func (t *ticket) leave() {
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

// length returns how many requests wait.
func (q *waitQueue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}

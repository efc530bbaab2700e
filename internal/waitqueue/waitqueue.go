package waitqueue

import (
	"slices"
	"sync"
)

// A room is where requests wait for their turn in a leaky_bucket. It bounds them
// in total, and by key, so that no key takes all the places.
type room struct {
	max, maxOfKey, maxUnnoticed int

	mu      sync.Mutex
	taken   int           // places
	waiting int           // requests in them, without those that are being decided
	of      map[place]int // places by key
}

// A place is the queue that a request is in.
type place struct {
	rule, key string
	unnoticed bool // counts only requests whose client may hang up unnoticed
}

// newRoom returns a room with so many places. Requests of one key may have half
// of them, and a sixteenth if their clients may hang up unnoticed.
func newRoom(places int) *room {
	return &room{max: places, maxOfKey: (places + 1) / 2, maxUnnoticed: (places + 15) / 16, of: make(map[place]int)}
}

// A turn is a request's place in the room; a nil turn is that of a request which
// needs none.
type turn struct {
	room   *room
	queues []place // guarded by room.mu; empty if there is no room, or it was left
	waits  bool    // guarded by room.mu
}

// enter takes a place for a request in these queues, if there is one.
func (r *room) enter(queues []place, unnoticed bool) *turn {
	if unnoticed {
		queues = slices.Clip(queues) // the caller may append to them
		for _, q := range queues {
			queues = append(queues, place{q.rule, q.key, true})
		}
	}
	t := &turn{room: r}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken >= r.max {
		return t
	}
	for _, q := range queues {
		if n := r.of[q]; n >= r.maxOfKey || q.unnoticed && n >= r.maxUnnoticed {
			return t
		}
	}
	for _, q := range queues {
		r.of[q]++
	}
	r.taken++
	t.queues = queues
	return t
}

// has reports whether the request has a place.
func (t *turn) has() bool {
	t.room.mu.Lock()
	defer t.room.mu.Unlock()
	return len(t.queues) > 0
}

// wait notes that the request waits from now on. A limiter of the user's own may
// have it wait without a queue.
func (t *turn) wait() {
	if t == nil {
		return
	}
	t.room.mu.Lock()
	defer t.room.mu.Unlock()
	if len(t.queues) > 0 && !t.waits {
		t.waits = true
		t.room.waiting++
	}
}

// leave frees the place. Leaving twice does no harm.
func (t *turn) leave() {
	if t == nil {
		return
	}
	r := t.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(t.queues) == 0 {
		return
	}
	for _, q := range t.queues {
		if r.of[q]--; r.of[q] == 0 {
			delete(r.of, q)
		}
	}
	r.taken--
	if t.waits {
		r.waiting--
	}
	t.queues = nil
}

// count is how many requests wait.
func (r *room) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting
}

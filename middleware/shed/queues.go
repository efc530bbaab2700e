package shed

import (
	"container/list"
	"time"
)

// unqueue takes a slot out of the queue that it is in, if any.
func (s *Shedder) unqueue(p *slot, now time.Duration) {
	if p.queued == nil {
		return
	}
	s.queues.remove(p)
	if p.phase == waiting {
		s.waits.Observe(now - p.arrived)
	}
}

func (q *queues) empty() bool { return q.back+q.new == 0 }

// list is the queue that a slot belongs in, and how many there are of its kind.
func (q *queues) list(p *slot) (*list.List, *int) {
	if p.phase == returning {
		return &q.of[2*p.level+1], &q.back
	}
	return &q.of[2*p.level], &q.new
}

func (q *queues) push(p *slot) {
	l, n := q.list(p)
	p.queued = l.PushBack(p)
	*n++
}

func (q *queues) remove(p *slot) {
	l, n := q.list(p)
	l.Remove(p.queued)
	p.queued = nil
	*n--
}

// first is who goes next; nil if nobody waits.
func (q *queues) first() *slot {
	for i := len(q.of) - 1; i >= 0; i-- {
		if e := q.of[i].Front(); e != nil {
			return e.Value.(*slot)
		}
	}
	return nil
}

// lastBelow is the least important of those that have arrived below a level, and of these
// the last; nil if there is none.
func (q *queues) lastBelow(level int) *slot {
	for l := range level {
		if e := q.of[2*l].Back(); e != nil {
			return e.Value.(*slot)
		}
	}
	return nil
}

// overdue is one that has arrived before a time; nil if there is none.
func (q *queues) overdue(since time.Duration) *slot {
	for l := range levels {
		if e := q.of[2*l].Front(); e != nil && e.Value.(*slot).arrived <= since {
			return e.Value.(*slot)
		}
	}
	return nil
}

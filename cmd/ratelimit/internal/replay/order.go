package replay

import (
	"container/heap"
	"time"
)

// Servers write a line when the response ends, and some with the time at which the
// request began. So lines are out of order by as long as responses take.
const (
	window     = time.Minute // lines that come later than this are left out
	maxWaiting = 1 << 17     // lines that wait for earlier ones
	maxStep    = time.Hour   // a time further ahead must be confirmed by the next line
)

// An order puts the lines of one log in the order of their times. It holds back
// those of the last minute. A line whose time is more than an hour ahead counts
// only if the next one agrees, since one wrong time would make all others too late.
type order struct {
	waiting timeline
	latest  time.Time // of the times that count; zero before the first
	ahead   *numbered // the line that must be confirmed

	late   func(*numbered, time.Duration) // is told of lines that come too late
	jumped func(*numbered)                // is told of lines whose time is wrong
}

// A numbered is a request, with the number of its line.
type numbered struct {
	request
	line int64
}

// add adds the next line. Then ready returns the lines that are in order.
func (o *order) add(r *numbered) {
	if a := o.ahead; a != nil {
		o.ahead = nil
		if r.at.Before(a.at.Add(-window)) {
			o.jumped(a)
		} else {
			o.release(a)
		}
	}
	switch {
	case o.latest.IsZero() || r.at.Sub(o.latest) > maxStep:
		o.ahead = r
	case o.latest.Sub(r.at) > window:
		o.late(r, o.latest.Sub(r.at))
	default:
		o.release(r)
	}
}

func (o *order) release(r *numbered) {
	if r.at.After(o.latest) {
		o.latest = r.at
	}
	heap.Push(&o.waiting, r)
}

// ready returns the earliest line that no other can precede any more; nil if there
// is none. At the end of the log, that is every line.
func (o *order) ready(end bool) *numbered {
	if end && o.ahead != nil {
		o.release(o.ahead)
		o.ahead = nil
	}
	n := len(o.waiting)
	if n == 0 || !end && n < maxWaiting && o.latest.Sub(o.waiting[0].at) <= window {
		return nil
	}
	return heap.Pop(&o.waiting).(*numbered)
}

// A timeline is a heap of requests by time, those of one time in the order of their
// lines.
type timeline []*numbered

func (t timeline) Len() int { return len(t) }
func (t timeline) Less(i, j int) bool {
	if t[i].at.Equal(t[j].at) {
		return t[i].line < t[j].line
	}
	return t[i].at.Before(t[j].at)
}
func (t timeline) Swap(i, j int) { t[i], t[j] = t[j], t[i] }
func (t *timeline) Push(x any)   { *t = append(*t, x.(*numbered)) }
func (t *timeline) Pop() any {
	last := len(*t) - 1
	r := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	return r
}

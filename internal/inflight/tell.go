package inflight

import (
	"cmp"
	"container/heap"
	"context"
	"slices"
	"time"
)

const (
	// renewedPart is the part of a lease after which it is renewed, at the latest.
	renewedPart = 3
	// News gathers for so long, and so much of it is told at once.
	gather  = 5 * time.Millisecond
	maxNews = 100
	// retry is when what failed is told again. It is short beside any lease.
	retry = 50 * time.Millisecond
)

// An agenda is a heap of places; the next that is due is the first.
type agenda []*place

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].due.Before(a[j].due) }
func (a agenda) Swap(i, j int)      { a[i], a[j] = a[j], a[i]; a[i].at, a[j].at = i, j }

// Push implements [heap.Interface].
func (a *agenda) Push(p any) { p.(*place).at, *a = len(*a), append(*a, p.(*place)) }

// Pop implements [heap.Interface].
func (a *agenda) Pop() any {
	p := (*a)[len(*a)-1]
	*a, p.at = slices.Delete(*a, len(*a)-1, len(*a)), -1
	return p
}

func (r *Registry) unschedule(p *place) {
	if p.at >= 0 {
		heap.Remove(&r.due, p.at)
	}
}

// tellAt has the store told after a while: 0 for news, as soon as it has gathered. It
// requires mu.
func (r *Registry) tellAt(p *place, after time.Duration) {
	now := time.Now()
	if after == 0 && p.news.IsZero() {
		p.news = now
	}
	due := now.Add(after)
	if p.at >= 0 && !due.Before(p.due) || r.closed {
		return
	}
	r.unschedule(p)
	p.due = due
	heap.Push(&r.due, p)
	if p.at == 0 {
		r.arm()
	}
}

// arm sets the timer for what is due next. It requires mu.
func (r *Registry) arm() {
	if len(r.due) == 0 || r.closed {
		return
	}
	after := max(time.Until(r.due[0].due), gather-time.Since(r.woken))
	if r.timer == nil {
		r.timer = time.AfterFunc(after, r.wake)
	} else {
		r.timer.Reset(after)
	}
}

// wake tells what is due, in the background, as much as is told at once.
func (r *Registry) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.woken = now
	var news []News
	for len(news) < maxNews && len(r.due) > 0 && !r.due[0].due.After(now) {
		p := r.due[0]
		r.unschedule(p)
		switch {
		case p.idle() && now.Sub(p.news) > p.lease:
			r.Dropped.Add(1)
			r.forget(p)
			continue
		case r.Open(r.Store.ShardOf(p.key)): // Tell will
			r.tellAt(p, p.lease/renewedPart)
			continue
		}
		news = append(news, r.take(p))
	}
	if len(news) > 0 && !r.Begin(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.send(news)
	}) {
		r.back(news, news)
	}
	r.arm()
}

// take makes news of a place. It requires mu.
func (r *Registry) take(p *place) News {
	r.unschedule(p)
	if now := time.Now(); p.asked == 0 {
		p.exact = now
	} else if now.Sub(p.exact) > p.lease/(2*renewedPart) {
		r.begin(p) // or what the store has forgotten of answers on their way stays forgotten
	}
	n := News{p.key, p.lease, r.told(p), p, cmp.Or(p.news, time.Now()), p.due}
	p.heard, p.news = true, time.Time{}
	p.telling++
	return n
}

// send tells news, and returns how many failed. It requires mu, and releases it meanwhile.
func (r *Registry) send(news []News) int {
	r.mu.Unlock()
	failed := news
	_ = r.Safely(func() (err error) {
		failed, err = r.Store.Tell(context.Background(), news)
		return err
	})
	r.mu.Lock()
	r.back(news, failed)
	return len(failed)
}

// back has the news told again that failed, and says what was told too late. It requires mu.
func (r *Registry) back(news, failed []News) {
	for _, n := range news {
		ran := n.since // at the latest
		if p := n.place; p.runs > 0 {
			ran = time.Now()
		} else if !p.news.IsZero() {
			ran = p.news
		}
		if late := ran.Sub(n.due); late > n.Lease-n.Lease/renewedPart {
			r.Late(late)
		}
	}
	r.Failed.Add(int64(len(failed)))
	for _, n := range failed {
		n.place.news = n.since
		r.tellAt(n.place, retry)
	}
	for _, n := range news {
		n.place.telling--
		r.rest(n.place)
	}
}

package shed

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"
)

const (
	patience   = 50 * time.Millisecond // with a client, before its handler is parked
	lookAgain  = 10 * time.Millisecond // for handlers to park
	mostParked = 10_000
	mostBack   = 30 * time.Second // until who comes back goes on
)

// enter waits for a place. It returns false if the request is shed, and a nil slot if the
// request has one of this Shedder already.
func (s *Shedder) enter(r *http.Request) (*slot, bool) {
	ctx := r.Context()
	if ctx.Value(slotKey{s}) != nil {
		return nil, true
	}
	p := &slot{shedder: s, level: Medium.level()}
	if s.Priority != nil {
		p.level = s.Priority(r).level()
	}
	now := s.lock()
	s.arrive(p, now)
	shed := s.report(now)
	admitted := s.Shadow || p.phase == working
	var turn chan bool
	if p.phase == waiting && !s.Shadow {
		turn = make(chan bool, 1)
		p.turn = turn
	}
	s.mu.Unlock()
	if shed > 0 {
		cmp.Or(s.Logger, slog.Default()).Warn("ratelimit: overloaded; the least important requests are shed", "shed", shed, "shadow", s.Shadow)
	}
	if turn != nil {
		admitted = s.await(ctx, p, turn)
	}
	return p, admitted
}

// report returns how many were shed since it last did; 0 if that was a short time ago.
func (s *Shedder) report(now time.Duration) (shed int) {
	if s.unreported > 0 && (s.reported == 0 || now-s.reported >= 10*time.Second) {
		shed, s.unreported, s.reported = s.unreported, 0, now
	}
	return shed
}

// arrive admits a request, lets it wait, or sheds it or one that is less important.
func (s *Shedder) arrive(p *slot, now time.Duration) {
	p.arrived = now
	s.expire(now)
	if !s.limit.room(len(s.working)+1) || !s.queues.empty() {
		s.park(now) // also before it is full, or clients could make the limit grow
	}
	if s.limit.room(len(s.working)) && s.queues.empty() {
		s.admit(p, now)
		return
	}
	if s.queues.new >= int(s.limit.at) {
		least := s.queues.lastBelow(p.level)
		if least == nil {
			s.shedOne(p, queueFull, now)
			return
		}
		s.shedOne(least, queueFull, now)
	}
	s.queues.push(p)
}

// expire is for the shadow, in which no goroutine waits: it frees the places of requests
// that would be over, and sheds those that would have waited too long.
func (s *Shedder) expire(now time.Duration) {
	for s.Shadow {
		at, over := now, (*slot)(nil)
		for _, p := range s.working {
			if p.ends > 0 && p.ends <= at {
				at, over = p.ends, p
			}
		}
		for late := s.queues.overdue(at - s.wait()); late != nil; late = s.queues.overdue(at - s.wait()) {
			s.shedOne(late, waited, at)
		}
		if over == nil {
			return
		}
		s.drop(over)
		over.phase = gone
		s.wake(at)
	}
}

func (s *Shedder) wait() time.Duration { return max(cmp.Or(s.Wait, 100*time.Millisecond), 0) }

// await waits for the request's turn.
func (s *Shedder) await(ctx context.Context, p *slot, turn <-chan bool) bool {
	timer := time.NewTimer(s.wait())
	defer timer.Stop()
	select {
	case admitted := <-turn:
		return admitted
	case <-timer.C:
	case <-ctx.Done():
	}
	now := s.lock()
	if p.phase == waiting {
		s.park(now)
	}
	if p.phase == waiting {
		s.shedOne(p, waited, now)
	}
	s.mu.Unlock()
	return <-turn // what was decided first
}

// admit gives a slot a place.
func (s *Shedder) admit(p *slot, now time.Duration) {
	s.unqueue(p, now)
	if p.phase == returning || p.phase == parked {
		s.parked--
	}
	p.phase, p.admitted, p.at = working, now, len(s.working)
	s.working = append(s.working, p)
	s.limit.most = max(s.limit.most, len(s.working))
	if p.took > 0 {
		p.ends = now + p.took
	}
	p.say(true)
}

// shedOne refuses a request that has arrived.
func (s *Shedder) shedOne(p *slot, reason int, now time.Duration) {
	s.unqueue(p, now)
	p.phase = gone
	s.shed[p.level][reason]++
	s.unreported++
	s.limit.refused = true
	p.say(false)
}

// say tells the request's goroutine what was decided, if it waits. It is said once.
func (p *slot) say(admitted bool) {
	if p.turn != nil {
		p.turn <- admitted
		p.turn = nil
	}
}

// drop takes away a slot's place.
func (s *Shedder) drop(p *slot) {
	last := s.working[len(s.working)-1]
	s.working[p.at], last.at = last, p.at
	s.working[len(s.working)-1] = nil
	s.working = s.working[:len(s.working)-1]
}

// wake admits those whose turn it is.
func (s *Shedder) wake(now time.Duration) {
	for s.limit.room(len(s.working)) {
		p := s.queues.first()
		if p == nil {
			return
		}
		s.admit(p, now)
	}
}

// park takes the places of handlers that wait for their clients.
func (s *Shedder) park(now time.Duration) {
	if now-s.looked < lookAgain {
		return
	}
	s.looked = now
	for _, p := range slices.Backward(s.working) {
		since := p.blocked.Load()
		if since > 0 && now-time.Duration(since) >= patience && p.took == 0 && s.parked < mostParked && p.blocked.CompareAndSwap(since, isParked) {
			s.drop(p)
			p.phase, p.paused = parked, true
			s.parked++
		}
	}
	s.wake(now)
}

// comeBack waits until a request that was parked has a place again, or is over.
func (p *slot) comeBack() {
	s := p.shedder
	now := s.lock()
	if p.phase == parked {
		s.park(now)
		if s.Shadow || s.limit.room(len(s.working)) && s.queues.empty() {
			s.admit(p, now)
		}
	}
	if p.phase != parked {
		s.mu.Unlock()
		return
	}
	turn := make(chan bool, 1)
	p.phase, p.turn = returning, turn
	s.queues.push(p)
	s.mu.Unlock()

	timer := time.NewTimer(mostBack)
	defer timer.Stop()
	select {
	case <-turn:
		return
	case <-timer.C:
	case <-p.ctx.Done():
	}
	now = s.lock()
	if p.phase == returning {
		s.admit(p, now) // one too many
	}
	s.mu.Unlock()
}

// Leave gives the place away for good. It may be called several times. The limit learns
// from how long the request was at work, if it was served.
func (p *slot) Leave(served bool) {
	if p == nil {
		return
	}
	s := p.shedder
	now := s.lock()
	if p.phase == gone || p.took > 0 {
		s.mu.Unlock()
		return
	}
	if took := now - p.admitted; served && p.phase == working && p.tells(took) {
		s.limit.sample(took, now, len(s.working))
	}
	switch p.phase {
	case working, waiting:
		if s.Shadow {
			p.took = max(now-p.arrived, 1)
			p.ends = p.admitted + p.took // read where it is at work
		} else {
			s.drop(p)
			p.phase = gone
		}
	case parked, returning:
		s.unqueue(p, now)
		s.parked--
		p.phase = gone
	}
	p.say(true)
	s.expire(now)
	s.wake(now)
	s.mu.Unlock()
}

// tells reports whether the limit can learn from how long a request was at work. A
// request that was refused by somebody did not do the work.
func (p *slot) tells(took time.Duration) bool {
	refused := p.status == http.StatusTooManyRequests || p.status >= 400 && took < time.Millisecond
	return !p.paused && !refused
}

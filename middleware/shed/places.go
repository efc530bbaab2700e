package shed

import (
	"cmp"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/internal/onstatus"
)

const (
	patience  = 50 * time.Millisecond // with a client, in all, before its handler is parked
	lookAgain = 10 * time.Millisecond // for handlers to park
	mostBack  = 30 * time.Second      // for a place to go on
)

// A slot is a request's place among those at work.
type slot struct {
	shedder *Shedder
	level   int
	waited  atomic.Int64 // for its client, until the wait that is under way
	blocked atomic.Int64 // since when that is, less waited; 0 if there is none, isParked if it lost its place

	// Guarded by shedder.mu.
	phase    phase
	arrived  time.Duration
	admitted time.Duration
	at       int       // in shedder.working
	turn     chan bool // says whether it was admitted; nil if no goroutine waits for that

	// In shadow, a request that is over keeps its place for as long as it would have.
	took time.Duration // once it is over
	ends time.Duration // its place; 0 if that is not known yet

	status int
	body   body
	writer onstatus.Writer
}

type phase uint8

const (
	waiting   phase = iota
	working         // counts towards the limit
	parked          // waits for its client
	returning       // waits for a place to go on
	gone            // is not counted: a stream, shed, or over
)

// isParked in blocked says that the slot has lost its place meanwhile.
const isParked = -1

// enter waits for a place. It returns false if the request is shed.
func (s *Shedder) enter(r *http.Request) (*slot, bool) {
	p := &slot{shedder: s, level: Medium.level()}
	if s.Priority != nil {
		p.level = s.Priority(r).level()
	}
	now := s.lock()
	s.arrive(p, now)
	admitted := s.Shadow || p.phase == working
	turn := s.turnOf(p)
	slow := s.parked >= int(s.limit.at)
	s.mu.Unlock()
	if turn != nil {
		admitted = s.await(p, turn, s.wait(), r.Context().Done())
	}
	s.tell(r, slow)
	return p, admitted
}

// tell logs what operators should know.
func (s *Shedder) tell(r *http.Request, slow bool) {
	logger := cmp.Or(s.Logger, slog.Default())
	if n := s.unreported.Load(); n > 0 {
		s.said.Do(func() {
			logger.Warn("ratelimit: overloaded; the least important requests are shed", "shed", s.unreported.Swap(0), "shadow", s.Shadow)
		})
	}
	if server, ok := r.Context().Value(http.ServerContextKey).(*http.Server); slow && ok && server.ReadTimeout <= 0 {
		s.saidSlow.Do(func() {
			logger.Warn("ratelimit: as many handlers wait for slow clients as may be at work, and may do so for ever: set ReadTimeout and WriteTimeout of the http.Server")
		})
	}
}

// arrive admits a request, lets it wait, or sheds it or one that is less important.
func (s *Shedder) arrive(p *slot, now time.Duration) {
	p.arrived = now
	s.expire(now)
	if !s.limit.room(len(s.working)+1) || len(s.line.all) > 0 {
		s.park(now) // also before it is full, or clients could make the limit grow
	}
	if s.limit.room(len(s.working)) && len(s.line.all) == 0 {
		s.admit(p, now)
		return
	}
	if len(s.line.all)-s.line.back >= int(s.limit.at) {
		least := s.line.lastBelow(p.level)
		if least == nil {
			s.shedOne(p, queueFull, now)
			return
		}
		s.shedOne(least, queueFull, now)
	}
	s.line.push(p)
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
		for _, p := range slices.Clone(s.line.all) {
			if p.phase == waiting && p.arrived <= at-s.wait() {
				s.shedOne(p, waited, at)
			}
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

// turnOf returns what a goroutine of a slot in line waits for; nil if it does not wait.
func (s *Shedder) turnOf(p *slot) chan bool {
	if s.Shadow || p.phase != waiting && p.phase != returning {
		return nil
	}
	p.turn = make(chan bool, 1)
	return p.turn
}

// await waits for a slot's turn, and returns false if it does not come. When its time is over,
// or its client has left, a request that has arrived is shed. One that comes back is at work
// beyond the limit, because others may need a lock that it holds, but with an error.
func (s *Shedder) await(p *slot, turn <-chan bool, most time.Duration, left <-chan struct{}) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case admitted := <-turn:
		return admitted
	case <-timer.C:
	case <-left:
	}
	now := s.lock()
	if p.phase == waiting {
		s.park(now)
	}
	switch p.phase {
	case waiting:
		s.shedOne(p, waited, now)
	case returning:
		p.say(false)
		s.admit(p, now) // one too many
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
	s.unreported.Add(1)
	p.say(false)
}

// unqueue takes a slot out of the line, if it is in it.
func (s *Shedder) unqueue(p *slot, now time.Duration) {
	if s.line.remove(p) && p.phase == waiting {
		s.waits.Observe(now - p.arrived)
	}
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
	for s.limit.room(len(s.working)) && len(s.line.all) > 0 {
		s.admit(s.line.all[0], now)
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
		if since > 0 && now-time.Duration(since) >= patience && p.took == 0 && p.blocked.CompareAndSwap(since, isParked) {
			s.drop(p)
			p.phase = parked
			p.waited.Store(int64(now) - since)
			s.parked++
		}
	}
	s.wake(now)
}

// comeBack waits until a request that was parked has a place again, or is over. It returns
// false if that takes too long.
func (p *slot) comeBack() bool {
	s := p.shedder
	now := s.lock()
	if p.phase == parked {
		s.park(now)
		if s.Shadow || s.limit.room(len(s.working)) && len(s.line.all) == 0 {
			s.admit(p, now)
		} else {
			p.phase = returning
			s.line.push(p)
		}
	}
	turn := s.turnOf(p)
	s.mu.Unlock()
	return turn == nil || s.await(p, turn, mostBack, nil)
}

// leave gives the place away for good. It may be called several times. The limit learns
// from how long the request was at work, if it was served.
func (p *slot) leave(served bool) {
	s := p.shedder
	now := s.lock()
	defer s.mu.Unlock()
	if p.phase == gone || p.took > 0 {
		return
	}
	if took := now - p.admitted; served && p.phase == working && p.tells(took, now) {
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
}

// tells reports whether the limit can learn from how long a request was at work. A
// request that was refused by somebody did not do the work. The status says so, whoever
// refused it: this module's limiter, another one, or an upstream. One that has waited for its
// client says how slow that is.
func (p *slot) tells(took, now time.Duration) bool {
	refused := p.status == http.StatusTooManyRequests || p.status >= 400 && took < time.Millisecond
	waited := time.Duration(p.waited.Load())
	if since := p.blocked.Load(); since > 0 { // in another goroutine
		waited = now - time.Duration(since)
	}
	return !refused && waited < patience
}

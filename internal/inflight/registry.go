// Package inflight knows how many requests of a key this process has under way that a store
// counts, and tells the store. It knows neither checks nor limits.
//
// Of each key it tells two totals that only rise: how many places the store has granted,
// and how many have ended. So it does not matter in which order, how late or how often the
// store hears them, and what was lost is in what comes next. The store adds one to the
// first itself when it grants a place, and its answer has the place counted here, too. If no
// answer comes, or a place is taken without the store, an epoch with new totals begins, which
// take the place of those before. They include what was asked for and is not answered yet,
// until it is: a question of an earlier epoch adds nothing to them.
package inflight

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// A Store has the counts.
type Store interface {
	// ShardOf is the part of the store that has a key, as a small number.
	ShardOf(key string) int
	// Tell tells the store, in bounded time. It returns what failed.
	Tell(ctx context.Context, news []News) (failed []News, err error)
}

// News is what a store is told of a key: "process epoch granted ended". Then it counts what
// runs until the lease ends.
type News struct {
	Key   string
	Lease time.Duration
	Told  string
	place *place
	since time.Time // when there was something to tell
	due   time.Time // when it was to be told
}

// A Registry is the requests under way. Its fields must not change after first use.
type Registry struct {
	Store  Store
	Open   func(shard int) bool     // nothing can be sent there now
	Begin  func(func()) bool        // runs a function in the background, unless there are too many
	Safely func(func() error) error // makes an error of a panic of the store's
	Late   func(by time.Duration)   // hears that this process stood still until leases were over

	Failed  atomic.Int64 // news that will be told again
	Dropped atomic.Int64 // keys whose last end was left to the lease

	mu      sync.Mutex // over all below
	closed  bool
	process int64 // a random number
	epochs  int64 // of all keys, so that none comes twice
	places  map[string]*place
	running map[int64]*place // by request
	due     agenda
	timer   *time.Timer
	woken   time.Time
}

// A place is what this process has of a key.
type place struct {
	key            string
	lease          time.Duration
	epoch          int64
	granted, ended int64     // in the epoch
	asked          int64     // without an answer, in any epoch
	runs           int64     // requests
	telling        int       // how often it is being told
	heard          bool      // the store may know of it
	exact          time.Time // when the epoch began, or the store was told and nothing was asked
	news           time.Time // since when the store is to hear something; zero if it has
	due            time.Time // when it does
	at             int       // in the agenda; below 0 if it is not there
}

// idle reports whether nothing but news may keep the place.
func (p *place) idle() bool { return p.runs == 0 && p.asked == 0 && p.telling == 0 }

// told requires mu.
func (r *Registry) told(p *place) string {
	return fmt.Sprint(r.process, p.epoch, p.granted, p.ended)
}

// A Ticket is for a place that the store is asked for.
type Ticket struct {
	place *place
	epoch int64
	Told  *string // with the question; nil if the Registry is closed
}

// Ask is called before the store is asked for a place, and Answered afterwards.
func (r *Registry) Ask(key string, lease time.Duration) Ticket {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return Ticket{}
	}
	p := r.places[key]
	if p == nil {
		if r.places == nil {
			r.process, r.places, r.running = 1+rand.Int64N(1<<52-1), make(map[string]*place), make(map[int64]*place)
		}
		p = &place{key: key, lease: lease, at: -1}
		r.places[key] = p
		r.begin(p)
	}
	p.asked++
	return Ticket{p, p.epoch, new(r.told(p))}
}

// begin begins an epoch. It requires mu.
func (r *Registry) begin(p *place) {
	r.epochs++
	p.epoch, p.granted, p.ended, p.exact = r.epochs, p.runs+p.asked, 0, time.Now()
}

// An Answer is what the store has said.
type Answer int

// The answers.
const (
	Denied  Answer = iota // or it was never asked
	Granted               // and counts the place, which runs
	Unknown               // nothing, and may count the place now or later
)

// Answered says what became of a Ticket, and whether the request runs, counted by the store
// or not. If so, it returns a name for End.
func (r *Registry) Answered(t Ticket, a Answer, runs bool) (id int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := t.place
	if p == nil || r.closed {
		return 0
	}
	p.asked--
	p.heard = p.heard || a != Denied
	if runs {
		p.runs++
		id = 1 + rand.Int64N(1<<52-1)
		r.running[id] = p
	}
	switch current := t.epoch == p.epoch; {
	case current && (a == Unknown || runs && a == Denied):
		r.begin(p)
		r.tellAt(p, 0)
	case current && a == Granted:
		p.granted++
	case !current && !runs: // it counts as granted
		r.end(p)
	}
	r.rest(p)
	return id
}

// End ends a request, and has the store told. It returns at once; false if the request
// is not known here.
func (r *Registry) End(id int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.running[id]
	if p == nil {
		return false
	}
	delete(r.running, id)
	p.runs--
	r.end(p)
	r.rest(p)
	return true
}

// end requires mu.
func (r *Registry) end(p *place) {
	p.ended++
	r.tellAt(p, 0)
}

// rest forgets a place that nobody needs, and has the lease of others renewed. It requires
// mu.
func (r *Registry) rest(p *place) {
	switch {
	case p.idle() && (p.news.IsZero() || !p.heard):
		r.forget(p)
	case p.runs > 0 && p.at < 0:
		r.tellAt(p, p.lease/renewedPart-rand.N(p.lease/(4*renewedPart)))
	}
}

// forget requires mu.
func (r *Registry) forget(p *place) {
	delete(r.places, p.key)
	r.unschedule(p)
}

// Keys is how many keys the store may count something of, for this process.
func (r *Registry) Keys() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.places)
}

// Tell tells a part of the store that is back of all that runs here, or only what it has
// not heard.
func (r *Registry) Tell(shard int, all bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var news []News
	for _, p := range r.places {
		if (all && p.runs > 0 || !p.news.IsZero()) && r.Store.ShardOf(p.key) == shard {
			news = append(news, r.take(p))
		}
	}
	for len(news) > 0 {
		n := min(maxNews, len(news))
		r.send(news[:n])
		news = news[n:]
	}
}

// Close frees every place, as far as it can in a second: the process is about to end. It
// calls wait first, which must return when all that was begun is done.
func (r *Registry) Close(wait func()) {
	r.mu.Lock()
	if r.closed = true; r.timer != nil {
		r.timer.Stop()
	}
	r.mu.Unlock()
	wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	var news []News
	for _, p := range r.places {
		if p.asked, p.runs = 0, 0; p.heard {
			r.begin(p) // what was not answered is granted no more
			news = append(news, r.take(p))
		}
	}
	clear(r.running)
	begun := time.Now()
	for len(news) > 0 && time.Since(begun) < time.Second {
		n := min(maxNews, len(news))
		if r.send(news[:n]) > 0 {
			break
		}
		news = news[n:]
	}
	r.Dropped.Add(int64(len(news)))
}

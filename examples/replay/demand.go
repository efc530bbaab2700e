package main

import (
	"context"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// A demand finds how large the limits would have to be: it counts the requests as
// if nothing was ever denied. That takes as long as replaying them, so it is done
// in a goroutine of its own.
type demand struct {
	memory algorithms.Memory
	now    time.Time
	next   *asked
	full   chan *asked
	empty  chan *asked
}

// asked is some requests in their order, in the checks of all candidates.
type asked struct {
	checks   []algorithms.Check
	of       []wanted
	requests []askedAt
}

// A wanted need is that of one client, for one candidate of a rule.
type wanted struct {
	client *client
	which  int
	free   bool // the response is not charged
}

type askedAt struct {
	time time.Time
	end  int // of its checks
}

const (
	askedBatch   = 256 // requests
	askedBatches = 4
)

func newDemand() *demand {
	d := &demand{next: new(asked), full: make(chan *asked, askedBatches), empty: make(chan *asked, askedBatches+1)}
	d.memory.MaxKeys = maxKeys
	d.memory.Now = func() time.Time { return d.now }
	for range askedBatches {
		d.empty <- new(asked)
	}
	return d
}

// start counts the requests of send in the background. end returns when all of them are
// counted.
func (d *demand) start() (end func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for a := range d.full {
			d.count(a)
			a.checks, a.of, a.requests = a.checks[:0], a.of[:0], a.requests[:0]
			d.empty <- a
		}
	}()
	return func() {
		d.full <- d.next
		close(d.full)
		<-done
	}
}

// ask adds the current request's checks of a rule's candidates.
func (d *demand) ask(r *rule, c *client, check *algorithms.Check, status int) {
	free := r.ChargeOn != nil && answered(status) && !slices.Contains(r.ChargeOn, status)
	for i, candidate := range r.candidates {
		d.next.checks = append(d.next.checks, algorithms.Check{Rule: candidate.name, Key: check.Key, Cost: check.Cost, Limit: candidate.limit, Shadow: true})
		d.next.of = append(d.next.of, wanted{c, i, free})
	}
}

// send ends a request.
func (d *demand) send(now time.Time) {
	a := d.next
	if a.requests = append(a.requests, askedAt{now, len(a.checks)}); len(a.requests) == askedBatch {
		d.full <- a
		d.next = <-d.empty
	}
}

// count counts requests, and finds the quotas that their clients need.
func (d *demand) count(a *asked) {
	begin := 0
	for _, r := range a.requests {
		if d.now = r.time; r.end > begin {
			d.countOne(a.checks[begin:r.end], a.of[begin:r.end])
		}
		begin = r.end
	}
}

func (d *demand) countOne(checks []algorithms.Check, of []wanted) {
	counted, err := d.memory.Take(context.Background(), checks...)
	if err != nil {
		panic(err) // the checks are valid
	}
	var free []algorithms.Charge
	for i := range counted.Results {
		res, w := &counted.Results[i], &of[i]
		need := int64(unreachable)
		if res.HasRoom {
			need = res.Check.Limit.Quota() - res.Remaining
		}
		w.client.needs[w.which] = max(w.client.needs[w.which], need)
		if w.free && res.Charged > 0 {
			free = append(free, algorithms.Charge{Result: *res})
		}
	}
	if len(free) > 0 {
		_, _ = d.memory.Settle(context.Background(), free...) // what stays charged errs towards larger limits
	}
}

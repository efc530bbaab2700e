package outages

import (
	"fmt"
	"time"
)

// grace is how much longer than it should a request may take.
const grace = 10 * time.Millisecond

// quiet is how long Redis must have decided everything to be back.
const quiet = 500 * time.Millisecond

// checkTimes is about how long requests took, and when Redis did not decide.
func (r *run) checkTimes(v *verdict, p promise) {
	waits, spared, alone, tooLong := 0, 0, 0, 0
	for i := range r.records {
		rec := &r.records[i]
		if rec.begin < 0 {
			continue
		}
		v.summary.requests++
		if rec.status != 0 {
			v.summary.answered++
		}
		end := rec.begin + rec.took
		late := r.machine.late(rec.begin-budget, end) // what was held up before may hold this up
		v.summary.slowest = max(v.summary.slowest, rec.took-late)
		took, isSpared := rec.took-2*late, p.spared != nil && p.spared(rec.client)
		switch {
		case took > grace && isSpared:
			spared++
		case took > grace:
			waits++
		}
		if took > budget+grace {
			tooLong++
			v.late("took longer than the budget", rec)
		}
		if !rec.undecided() {
			continue
		}
		v.summary.alone++
		if since := rec.begin - r.over; r.over > 0 && since > v.summary.recovered && since < v.summary.recovered+quiet {
			v.summary.recovered = since
		}
		during := r.away.Load() && end >= r.began && (r.over == 0 || rec.begin <= r.over+p.back)
		if (!during || isSpared) && !r.excused(p, rec.begin, end) {
			if alone++; alone > p.alone {
				v.late("not decided by Redis although it was there", rec)
			}
		}
	}
	if spared > r.strays() {
		v.late(fmt.Sprintf("so many requests took longer than %v that it does not concern", grace), spared)
	}
	if waits > p.waits {
		v.late(fmt.Sprintf("so many requests took longer than %v, want at most %d", grace, p.waits), waits)
	}
	if n := v.summary.requests; waits > 5*p.waits || tooLong > n/20 {
		v.late("no machine is so busy: took longer than they should", fmt.Sprintf("%d, and %d longer than the budget", waits, tooLong))
	}
}

// excused reports whether the machine was so late that Redis was, too, and the
// limiter may still be noticing.
func (r *run) excused(p promise, from, to time.Duration) bool {
	return p.latency+2*r.machine.late(from-time.Second, to) > budget
}

// busy reports whether the machine was so late at any time that it may be to blame
// for what took too long: between a request and its answer several processes have
// to run, and each may be late.
func (r *run) busy() bool { return 4*r.machine.late(0, r.length) > budget }

// checkOpened is about how often something was down.
func (r *run) checkOpened(v *verdict, p promise) {
	opened := 0
	for _, at := range r.opened {
		if !r.excused(p, at, at) {
			opened++
		}
	}
	if opened > p.opens {
		v.late(fmt.Sprintf("something was down more than %d times", p.opens), r.opened)
	}
}

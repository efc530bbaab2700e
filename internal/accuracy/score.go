package accuracy

import (
	"math"
	"time"
)

// An outcome is what became of a request.
type outcome struct {
	allowed   bool
	served    time.Duration // when, if it was allowed
	remaining int64         // what the client was told
}

// A score is an algorithm's errors on some traffic, by the package's
// definitions.
type score struct {
	requests, admitted        int
	falseAdmits, falseDenials int
	units                     int64 // served in all
	worst                     int64 // most units served in a span of a period
	room                      int64 // most units left at a false denial
	totalDelay, maxDelay      time.Duration
	estimateErrors            float64 // sum of the relative errors of rate-remaining
	estimates                 int
}

// judge compares outcomes with the exact limit.
func judge(requests []request, outcomes []outcome, rate int64) score {
	s := score{requests: len(requests)}
	served := make(logs)
	for i, q := range requests {
		o, log := outcomes[i], served.of(q.client)
		if o.allowed {
			units := log.units(o.served) + q.cost
			if units > rate {
				s.falseAdmits++
			}
			log.add(o.served, q.cost)
			s.admitted, s.units, s.worst = s.admitted+1, s.units+q.cost, max(s.worst, units)
			s.totalDelay, s.maxDelay = s.totalDelay+o.served-q.at, max(s.maxDelay, o.served-q.at)
		} else if room := rate - log.units(q.at); room >= q.cost {
			s.falseDenials++
			s.room = max(s.room, room)
		}
		if units := log.units(q.at); units > 0 {
			s.estimateErrors += math.Abs(float64(rate-o.remaining-units)) / float64(units)
			s.estimates++
		}
	}
	return s
}

// The shares are in percent.

func (s score) falseAdmitShare() float64  { return 100 * float64(s.falseAdmits) / float64(s.requests) }
func (s score) falseDenialShare() float64 { return 100 * float64(s.falseDenials) / float64(s.requests) }
func (s score) estimateError() float64    { return 100 * s.estimateErrors / float64(s.estimates) }

func (s score) overshoot() float64  { return 100 * float64(max(s.worst-rate, 0)) / rate }
func (s score) undershoot() float64 { return 100 * float64(s.room) / rate }

func (s score) meanDelay() time.Duration { return s.totalDelay / time.Duration(max(s.admitted, 1)) }

package simulate

import (
	"math"
	"time"
)

// A Score is an algorithm's errors on some traffic, by the package's
// definitions.
type Score struct {
	Requests, Admitted        int
	FalseAdmits, FalseDenials int
	Units                     int64 // served in all
	Worst                     int64 // most units served in a span of a period
	Room                      int64 // most units left at a false denial
	TotalDelay, MaxDelay      time.Duration
	EstimateErrors            float64 // sum of the relative errors of rate-remaining
	Estimates                 int
}

// Judge compares outcomes with the exact limit: rate units in any span of a
// period. wrong, if there is one, is called with the position of each false admit
// and each false denial.
func Judge(requests []Request, outcomes []Outcome, rate int64, period time.Duration, wrong func(int)) Score {
	s := Score{Requests: len(requests)}
	served := make(Logs)
	for i, q := range requests {
		o, log := outcomes[i], served.Of(q.Client)
		if o.Allowed {
			units := log.Units(o.Served, period) + q.Cost
			if units > rate {
				s.FalseAdmits++
				tell(wrong, i)
			}
			log.Add(o.Served, q.Cost)
			s.Admitted, s.Units, s.Worst = s.Admitted+1, s.Units+q.Cost, max(s.Worst, units)
			s.TotalDelay, s.MaxDelay = s.TotalDelay+o.Served-q.At, max(s.MaxDelay, o.Served-q.At)
		} else if room := rate - log.Units(q.At, period); room >= q.Cost {
			s.FalseDenials++
			tell(wrong, i)
			s.Room = max(s.Room, room)
		}
		if units := log.Units(q.At, period); units > 0 {
			s.EstimateErrors += math.Abs(float64(rate-o.Remaining-units)) / float64(units)
			s.Estimates++
		}
	}
	return s
}

func tell(wrong func(int), i int) {
	if wrong != nil {
		wrong(i)
	}
}

// Denied is how many requests were denied.
func (s Score) Denied() int { return s.Requests - s.Admitted }

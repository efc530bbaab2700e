package accuracy

import (
	"time"

	"github.com/seed75154129/ratelimit/internal/simulate"
)

// A score is an algorithm's errors as the document shows them. The shares are in
// percent.
type score struct{ simulate.Score }

func judge(requests []simulate.Request, outcomes []simulate.Outcome, rate int64) score {
	return score{simulate.Judge(requests, outcomes, rate, period, nil)}
}

func (s score) falseAdmitShare() float64  { return 100 * float64(s.FalseAdmits) / float64(s.Requests) }
func (s score) falseDenialShare() float64 { return 100 * float64(s.FalseDenials) / float64(s.Requests) }
func (s score) estimateError() float64    { return 100 * s.EstimateErrors / float64(s.Estimates) }

func (s score) overshoot() float64  { return 100 * float64(max(s.Worst-rate, 0)) / rate }
func (s score) undershoot() float64 { return 100 * float64(s.Room) / rate }

func (s score) meanDelay() time.Duration { return s.TotalDelay / time.Duration(max(s.Admitted, 1)) }

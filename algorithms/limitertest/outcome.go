package limitertest

import (
	"fmt"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// An outcome is what a check has to come to.
type outcome struct {
	allowed, isBanned      bool
	charged, remaining     int64
	retryAfter, resetAfter time.Duration
	delay                  time.Duration
}

// delayed is the outcome with a turn to wait for.
func (o outcome) delayed(delay time.Duration) outcome {
	o.delay = delay
	return o
}

// charged is the outcome of a check that took units and left some.
func charged(units, remaining int64, resetAfter time.Duration) outcome {
	return outcome{allowed: true, charged: units, remaining: remaining, resetAfter: resetAfter}
}

// passed is the outcome of a check that had room, but was not charged.
func passed(remaining int64, resetAfter time.Duration) outcome {
	return outcome{allowed: true, remaining: remaining, resetAfter: resetAfter}
}

// denied is the outcome of a check that had no room.
func denied(remaining int64, retryAfter, resetAfter time.Duration) outcome {
	return outcome{remaining: remaining, retryAfter: retryAfter, resetAfter: resetAfter}
}

// An expectation is a check with what it has to come to.
type expectation struct {
	algorithms.Check
	outcome
}

// compare says in which fields a result is not as expected at this time.
func compare(got algorithms.Result, want expectation, at time.Time) (differences []string) {
	differ := func(field string, equal bool, got, want any) {
		if !equal {
			differences = append(differences, fmt.Sprintf("%s = %v, want %v", field, got, want))
		}
	}
	differ("HasRoom", got.HasRoom == want.allowed, got.HasRoom, want.allowed)
	differ("BannedFor", got.BannedFor > 0 == want.isBanned, got.BannedFor, want.isBanned)
	differ("Charged", got.Charged == want.charged, got.Charged, want.charged)
	differ("Remaining", got.Remaining == want.remaining, got.Remaining, want.remaining)
	differ("RetryAfter", got.RetryAfter == want.retryAfter, got.RetryAfter, want.retryAfter)
	differ("ResetAfter", got.ResetAfter == want.resetAfter, got.ResetAfter, want.resetAfter)
	differ("Delay", got.Delay == want.delay, got.Delay, want.delay)
	differ("At", got.At.Equal(at), got.At, at)
	differ("Check", got.Check == want.Check, got.Check, want.Check)
	differ("Source", got.Source != algorithms.SourceNone, "SourceNone", "a name")
	differ("Err", got.Err == nil, got.Err, nil)
	return differences
}

func name(check algorithms.Check) string {
	s := fmt.Sprintf("(rule %.40q, key %.40q, %s, cost %d", check.Rule, check.Key, check.Limit, check.Cost)
	if check.Shadow {
		s += ", shadow"
	}
	return s + ")"
}

func names(checks []algorithms.Check) []string {
	all := make([]string, len(checks))
	for i := range checks {
		all[i] = name(checks[i])
	}
	return all
}

// Package naming names the counts of checks.
package naming

import (
	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/step"
)

// Of returns the name of a check's count.
func Of(c *algorithms.Check) step.Name {
	return step.Name{Rule: c.Rule, Key: c.Key, Window: Limit(c.Limit).Window()}
}

// Limit returns a limit in the terms of package step.
func Limit(l algorithms.Limit) step.Limit {
	return step.Limit{Rate: l.Rate, Period: l.Period, Burst: l.Burst, Calendar: l.Calendar, Algorithm: uint16(l.Algorithm)}
}

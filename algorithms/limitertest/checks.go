package limitertest

import (
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

func fixed(rate int64, period time.Duration) algorithms.Limit {
	return algorithms.Limit{Rate: rate, Period: period, Algorithm: algorithms.FixedWindow}
}

func sliding(rate int64, period time.Duration) algorithms.Limit {
	return algorithms.Limit{Rate: rate, Period: period, Algorithm: algorithms.SlidingWindow}
}

// limit reads a limit that is valid.
func limit(text string) algorithms.Limit {
	l, err := algorithms.ParseLimit(text)
	if err != nil {
		panic("limitertest: " + err.Error())
	}
	return l
}

// of is a check of the rule and key that most cases use.
func of(l algorithms.Limit) algorithms.Check {
	return check("rule", "key", l)
}

func check(rule, key string, l algorithms.Limit) algorithms.Check {
	return algorithms.Check{Rule: rule, Key: key, Limit: l, Cost: 1}
}

func costing(c algorithms.Check, units int64) algorithms.Check {
	c.Cost = units
	return c
}

func shadowed(c algorithms.Check) algorithms.Check {
	c.Shadow = true
	return c
}

func impatient(c algorithms.Check, longest time.Duration) algorithms.Check {
	c.MaxDelay = longest
	return c
}

func limitedTo(c algorithms.Check, l algorithms.Limit) algorithms.Check {
	c.Limit = l
	return c
}

// banning is a check with a ban.
func banning(c algorithms.Check, after int64, within, length time.Duration) algorithms.Check {
	c.Ban = algorithms.Ban{After: after, Within: within, For: length}
	return c
}

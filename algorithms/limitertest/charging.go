package limitertest

import (
	"context"
	"fmt"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

var chargingCases = []testCase{
	{name: "no checks are allowed", run: noChecks},
	{name: "all checks of an admitted request are charged", run: allCharged},
	{name: "a request that one check denies charges nothing, in any order", run: denialChargesNothing},
	{name: "each check that denies says when it would not", run: eachDenies},
	{name: "a check that denies for MaxDelay alone charges nothing", run: impatientChargesNothing},
	{name: "a request whose context has ended is counted", run: contextEnded},
	{name: "Peek decides several checks and shadow checks as Take then does", run: peekSeveral},
	{name: "calendar windows begin at midnight of their zone, and forget debts", run: calendarWindows},
}

func noChecks(c *trial) {
	c.takeAll()
}

func allCharged(c *trial) {
	all := c.allSamples()
	for n := range int64(10) {
		var want []expectation
		for _, s := range all {
			want = append(want, expectation{s.Check, s.charged(1, n+1)})
		}
		c.takeAll(want...)
	}
	// The costs are each check's own.
	var want []expectation
	for i, s := range all {
		s, units := s.under("of different cost"), int64(i+1)
		want = append(want, expectation{costing(s.Check, units), s.charged(units, units)})
	}
	c.takeAll(want...)
}

// denialChargesNothing lets each algorithm deny in each place, beside others
// that are new or in use.
func denialChargesNothing(c *trial) {
	all := c.allSamples()
	for range all {
		for denier := range all {
			c.denies(all, denier)
		}
		all = append(all[1:], all[0])
	}
}

// denies takes all samples, of which one is used up.
func (c *trial) denies(all []sample, denier int) {
	c.Helper()
	var want []expectation
	used := make([]int64, len(all))
	for i, s := range all {
		s = s.under(fmt.Sprintf("%s first, %s denies", all[0].Key, all[denier].Key))
		if used[i] = int64(i%3) * 2; i == denier {
			used[i] = 10
		}
		if used[i] > 0 {
			c.take(costing(s.Check, used[i]), s.charged(used[i], used[i]))
		}
		want = append(want, expectation{s.Check, s.passed(used[i])})
		if i == denier {
			want[i].outcome = s.exhausted()
		}
	}
	c.takeAll(want...)
	c.takeAll(want...)
	for i, s := range all {
		if i != denier {
			c.take(want[i].Check, s.charged(1, used[i]+1))
		}
	}
}

func eachDenies(c *trial) {
	all := c.allSamples()
	var want []expectation
	for _, s := range all {
		c.take(costing(s.Check, 10), s.charged(10, 10))
		want = append(want, expectation{s.Check, s.exhausted()})
	}
	above := all[0].under("that is too small")
	want = append(want, expectation{costing(above.Check, 11), denied(10, algorithms.Never, 0)})
	c.takeAll(want...)
}

// impatientChargesNothing asks for places in a queue that begin too late.
func impatientChargesNothing(c *trial) {
	const place = 100 * time.Millisecond
	check, beside := of(limit("10/1s burst 10 leaky_bucket")), sampleOf(sliding(10, time.Second))
	c.align(time.Second, 250*time.Millisecond)
	c.take(impatient(check, 1*time.Nanosecond), charged(1, 9, place)) // need not wait
	c.take(costing(check, 2), charged(2, 7, 3*place).delayed(place))
	c.take(impatient(check, 1*time.Nanosecond), denied(7, 3*place, 3*place))
	c.peek(impatient(check, 3*place), passed(7, 3*place).delayed(3*place))
	for range 20 {
		c.takeAll(expectation{impatient(check, place), denied(7, 2*place, 3*place)}, expectation{beside, passed(10, 0)})
	}
	c.take(check, charged(1, 6, 4*place).delayed(3*place))
	c.holds(beside, 10, 0)
}

func peekSeveral(c *trial) {
	c.peekAll()
	all := c.allSamples()
	var want []expectation
	for _, s := range all {
		want = append(want, expectation{s.Check, s.passed(0)})
	}
	c.peekAll(want...)

	// A shadow check that is exhausted does not deny, an enforced one does.
	first := all[0]
	c.take(costing(first.Check, 10), first.charged(10, 10))
	want[0] = expectation{shadowed(first.Check), first.exhausted()}
	c.peekAll(want...)
	want[0] = expectation{first.Check, first.exhausted()}
	c.peekAll(want...)
	c.takeAll(want...)
	c.peekAll(want...)
}

// contextEnded is about clients that hang up: they must not get away uncounted.
// How long a decision may take is the limiter's own to say.
func contextEnded(c *trial) {
	cancelled, cancel := context.WithCancel(c.Context())
	cancel()
	overdue, cancel := context.WithDeadline(c.Context(), time.Now().Add(-time.Hour))
	defer cancel()
	c.eachSample(func(s sample) {
		c.decide(cancelled, "Take", c.limiter.Take, []expectation{{s.Check, s.charged(1, 1)}})
		c.decide(overdue, "Take", c.limiter.Take, []expectation{{s.Check, s.charged(1, 2)}})
		c.take(costing(s.Check, 8), s.charged(8, 10))
		c.decide(cancelled, "Take", c.limiter.Take, []expectation{{s.Check, s.exhausted()}})
	})
}

// calendarWindows has a zone that is 5:45 hours ahead all year, and a month beside its days.
func calendarWindows(c *trial) {
	const day = 24 * time.Hour
	c.align(day, 12*time.Hour) // 17:45 in Kathmandu
	daily, monthly := of(algorithms.PerDay(3, "Asia/Kathmandu")), of(algorithms.PerMonth(100, "Asia/Kathmandu"))
	midnight := 6*time.Hour + 15*time.Minute
	now := c.begin.Add(c.elapsed + 5*time.Hour + 45*time.Minute).UTC()
	monthEnds := time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, time.UTC).Sub(now)
	r := c.takeAll(expectation{costing(daily, 2), charged(2, 1, midnight)}, expectation{costing(monthly, 2), charged(2, 98, monthEnds)})
	c.take(costing(daily, 2), denied(1, midnight, midnight))
	c.settleAll(5, r...)
	c.peekAll(expectation{daily, denied(-2, midnight, midnight)}, expectation{monthly, passed(95, monthEnds)})
	c.wait(midnight - µs)
	c.take(daily, denied(-2, µs, µs))
	c.wait(µs)
	c.take(daily, charged(1, 2, day))
}

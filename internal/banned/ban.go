// Package banned bans keys by two limits of their own, and remembers the bans that a process
// has begun or met.
//
// A rule's strikes take units of a sliding_log, which has one unit less than a ban needs. The
// strike for which there is no unit takes a whole token bucket, with one unit for each second
// of the ban. Every request of the rule looks at that bucket in the same command as it is
// decided by (see [algorithms.Check.Look]), so all processes obey a ban at once.
package banned

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/step"
)

// A Terms says which strikes ban a key, and for how long.
type Terms struct {
	After       int64
	Within, For time.Duration
}

// suffix is behind the name of a rule in that of its bans. No rule's name has it.
const suffix = "~ban"

// Look is the check that has room unless the key of c is banned by its rule.
func Look(c *algorithms.Check) algorithms.Check {
	return algorithms.Check{Rule: c.Rule + suffix, Key: c.Key, Limit: bucket(1), Look: true, Fail: c.Fail}
}

// IsFor reports whether a look is at the bans of a rule.
func IsFor(look *algorithms.Check, rule string) bool {
	name, ok := strings.CutSuffix(look.Rule, suffix)
	return ok && look.Look && name == rule
}

// bucket is the limit of a ban of so many seconds. All of them share one count.
func bucket(seconds int64) algorithms.Limit {
	return algorithms.Limit{Rate: 1, Period: time.Second, Burst: seconds, Algorithm: algorithms.TokenBucket}
}

// seconds rounds up.
func seconds(d time.Duration) int64 { return int64(math.Ceil(d.Seconds())) }

// taking is the check that takes units of a key's bans. The store decides it or nobody does.
func taking(c *algorithms.Check, units, burst int64) algorithms.Check {
	return algorithms.Check{Rule: c.Rule + suffix, Key: c.Key, Limit: bucket(burst), Cost: units, StoreOnly: true, Fail: c.Fail}
}

// strikes is the check that counts those of a key; none if the first one bans.
func (t Terms) strikes(c *algorithms.Check) []algorithms.Check {
	if t.After <= 1 {
		return nil
	}
	log := algorithms.Limit{Rate: t.After - 1, Period: t.Within, Algorithm: algorithms.SlidingLog}
	return []algorithms.Check{{Rule: c.Rule + "~strikes", Key: c.Key, Limit: log, StoreOnly: true}}
}

// Checks are what counts the bans of a key.
func (t Terms) Checks(c *algorithms.Check) []algorithms.Check { return append(t.strikes(c), Look(c)) }

// Validate says which field is wrong, and why.
func (t Terms) Validate() error {
	var errs []error
	switch most := int64(step.MaxLog + 1); {
	case t.After < 1:
		errs = append(errs, fmt.Errorf("after: must be at least 1, the strikes that lead to the ban; got %d", t.After))
	case t.After > most:
		errs = append(errs, fmt.Errorf("after: must be at most %d, since each strike is remembered; got %d", most, t.After))
	}
	if d := t.Within; d < time.Microsecond || d%time.Microsecond != 0 || d.Microseconds() >= step.MaxDuration {
		errs = append(errs, fmt.Errorf("within: must be whole microseconds, at least 1µs and below 2^52 of them, got %s", d))
	}
	if err := length(t.For); err != nil {
		errs = append(errs, fmt.Errorf("for: %w", err))
	}
	return errors.Join(errs...)
}

// longest is how long a ban may last: about as long as a bucket can count.
const longest = 70 * 365 * 24 * time.Hour

func length(d time.Duration) error {
	switch {
	case d <= 0:
		return fmt.Errorf("must be positive, got %s", d)
	case d > longest:
		return fmt.Errorf("must be at most 70 years (%s), got %s", longest, d)
	}
	return nil
}

// Rest returns for how long the result of a look says that the key is banned. What else denies
// looks, such as a limiter that denies everything for a while, is no ban.
func Rest(look *algorithms.Result) time.Duration {
	switch look.Source {
	case algorithms.SourceRedis, algorithms.SourceMemory, algorithms.SourceDenyCache, algorithms.SourceFallback:
		if look.Denies() {
			return look.RetryAfter
		}
	}
	return 0
}

// Strike counts a strike of the key of c. It returns for how long the key is banned then, and
// whether this strike has begun the ban. Without an answer of the store, nobody is banned.
func (t Terms) Strike(ctx context.Context, l algorithms.Limiter, c *algorithms.Check) (rest time.Duration, began bool) {
	strikes := t.strikes(c)
	if strikes != nil {
		d, err := take(ctx, l, append(strikes, Look(c))...)
		switch {
		case err != nil || d.Allowed:
			return 0, false
		case !d.Results[1].HasRoom: // it was banned meanwhile, and the strike is not counted
			return Rest(&d.Results[1]), false
		}
	}
	units := seconds(t.For)
	d, err := take(ctx, l, taking(c, units, units))
	if err != nil {
		return 0, false
	}
	if rest, err = look(ctx, l, c); err != nil && d.Allowed { // there was no time for it
		rest = time.Duration(units) * time.Second
	}
	if strikes != nil {
		_ = l.Reset(ctx, strikes...) // after the ban, they count anew
	}
	return rest, d.Allowed && rest > 0
}

// take returns an error unless the limiter has decided all checks.
func take(ctx context.Context, l algorithms.Limiter, checks ...algorithms.Check) (algorithms.Decision, error) {
	d, err := l.Take(ctx, checks...)
	return decided(d, err, len(checks))
}

func decided(d algorithms.Decision, err error, checks int) (algorithms.Decision, error) {
	if err == nil && len(d.Results) < checks {
		err = fmt.Errorf("the limiter answered %d checks with %d results", checks, len(d.Results))
	}
	for i := range d.Results {
		err = errors.Join(err, d.Results[i].Err)
	}
	return d, err
}

// look returns for how long a key is banned. What a Guard is told, it also knows in an outage.
func look(ctx context.Context, l algorithms.Limiter, c *algorithms.Check) (time.Duration, error) {
	d, err := take(ctx, l, Look(c))
	if err != nil {
		return 0, err
	}
	return Rest(&d.Results[0]), nil
}

// Set bans the key of c for d from now, and up to a second more. It shortens no ban. To call
// it again changes nothing more.
func Set(ctx context.Context, l algorithms.Limiter, c *algorithms.Check, d time.Duration) error {
	if err := length(d); err != nil {
		return err
	}
	units := seconds(d)
	for range 4 { // others may ban the key at the same time
		peek, err := l.Peek(ctx, taking(c, 1, units+1))
		if peek, err = decided(peek, err, 1); err != nil {
			return err
		}
		left := peek.Results[0].Remaining
		if left <= 0 {
			break
		}
		took, err := take(ctx, l, taking(c, min(left, units), units+1))
		if err != nil {
			return err
		}
		if took.Allowed {
			break
		}
	}
	rest, err := look(ctx, l, c)
	if err == nil && rest <= 0 {
		err = errors.New("the ban is not kept: no entry is free in the Memory; raise its MaxKeys")
	}
	return err
}

// Lift ends the ban of the key of c, and forgets its strikes.
func (t Terms) Lift(ctx context.Context, l algorithms.Limiter, c *algorithms.Check) error {
	return l.Reset(ctx, t.Checks(c)...)
}

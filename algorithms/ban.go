package algorithms

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/seed75154129/ratelimit/internal/step"
)

// A Ban says what follows repeated denials by one check: a key that was denied
// After times is denied for a time, whatever room there is, by all checks of its
// rule that have a Ban. The zero value bans nobody; any other needs After and For.
//
// Denials that come Within the first of them count, in every process. Denials
// during a ban do not count, so they do not extend it; neither do denials for
// MaxDelay alone, those of a shadow check, nor what a fallback denies while the
// store is away. A shadow check is not banned either.
//
// A ban belongs to the rule and the key, not to the limit: it stays if the limit
// changes. Where two bans meet on one key, as during a roll-out, both count the
// same denials and obey what either began. Each begins anew after its own Within,
// and both after that of the check that counted the last denial.
//
// Within and For are whole
// microseconds below 2^52.
type Ban struct {
	After  int64         // denials; 1 is the first
	Within time.Duration // in which they must come; 0 means the limit's period
	For    time.Duration // how long the key is denied
}

// Validate reports everything that is wrong with the ban, or nil.
func (b Ban) Validate() error { return errors.Join(b.invalid()...) }

// invalid lists what Validate reports.
func (b Ban) invalid() (errs []error) {
	if b == (Ban{}) {
		return nil
	}
	if b.After < 1 {
		errs = append(errs, fmt.Errorf("after: must be at least 1, the denials that lead to the ban; got %d", b.After))
	}
	if err := banDuration(b.Within); b.Within != 0 && err != nil {
		errs = append(errs, fmt.Errorf("within: %w", err))
	}
	if err := banDuration(b.For); err != nil {
		errs = append(errs, fmt.Errorf("for: %w", err))
	}
	return errs
}

func banDuration(d time.Duration) error {
	switch {
	case d < time.Microsecond:
		return fmt.Errorf("must be at least 1µs, got %s", d)
	case d%time.Microsecond != 0:
		return fmt.Errorf("must be whole microseconds, got %s", d)
	case d.Microseconds() >= step.MaxDuration:
		return fmt.Errorf("must be below 2^52 µs (%s), got %s", time.Duration(step.MaxDuration)*time.Microsecond, d)
	}
	return nil
}

func (b Ban) ok() bool { return b.invalid() == nil }

// bans reports whether the check reads and counts bans.
func (c *Check) bans() bool { return c.Ban != (Ban{}) && !c.Shadow }

// day bounds how far ahead a clock may be where no period does.
const day = 24 * time.Hour

func (c *Check) banRule() step.Ban {
	b := step.Ban{After: c.Ban.After, Within: cmp.Or(c.Ban.Within, c.Limit.Period, day).Microseconds(), Length: c.Ban.For.Microseconds()}
	switch {
	case c.Shadow:
		b.After = -1
	case c.spared:
		b.After = 0
	}
	return b
}

// counts reports whether a check's denial counts, by its own answer.
func (r *Result) counts(b step.Ban) bool { return b.After > 0 && !r.impatient() }

// ban makes an answer say that the key is banned until a time, if that is to come.
// A time that is negative says that the ban begins with this denial.
func (r *Result) ban(until, now int64) {
	rest := step.Micros(max(until, -until) - now)
	if rest <= 0 {
		return
	}
	r.HasRoom, r.Delay, r.BannedFor, r.BanBegan = false, 0, rest, until < 0
	r.Remaining = min(r.Remaining, 0)
	r.RetryAfter, r.ResetAfter = max(r.RetryAfter, rest), max(r.ResetAfter, rest)
}

// banLength is how long Ban is to ban, in µs; 0 lifts.
func banLength(d time.Duration) (int64, error) {
	if d == 0 {
		return 0, nil
	}
	if err := banDuration(d); err != nil {
		return 0, fmt.Errorf("%w: ban: %w", ErrInvalidCheck, err)
	}
	return d.Microseconds(), nil
}

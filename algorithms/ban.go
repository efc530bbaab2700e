package algorithms

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed75154129/ratelimit/internal/step"
)

// A Ban denies a key for longer after repeated denials. A key that was denied After times
// is banned: all checks of the rule that have a Ban deny it, even if their limits have
// units left. The zero value is no ban. Any other value needs After and For.
//
// The denials of all processes count together. A request is one denial, even if several
// checks with the rule and the key deny it. A denial counts if it comes no later than
// Within after the first one. Some denials do not count: those during a ban, so they do
// not extend it; those because of MaxDelay alone; those of a shadow check; and those of a
// Guard's fallback. A shadow check obeys no ban.
//
// A ban belongs to the rule and the key. It stays when the limit changes. If two processes
// have different Bans for a key, as during a roll-out, both count the same denials, and
// both obey a ban that either of them began. If the first denial is older than the Within
// of the check that denies now, the count starts anew. The store keeps the denials until
// the first is older than the Within of the check that denied last.
//
// Within and For are whole microseconds below 2^52.
type Ban struct {
	After  int64         // denials that lead to the ban; 1 bans at the first
	Within time.Duration // the time in which the denials must come; 0 means the limit's period
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

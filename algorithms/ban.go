package algorithms

import (
	"cmp"
	"fmt"
	"time"
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
// Check.Validate reports what is wrong with a Ban. Within and For are whole
// microseconds below 2^52.
type Ban struct {
	After  int64         // denials; 1 is the first
	Within time.Duration // in which they must come; 0 means the limit's period
	For    time.Duration // how long the key is denied
}

// invalid lists everything that is wrong with a ban that is not zero.
func (b Ban) invalid() (errs []error) {
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
	case d.Microseconds() >= maxDuration:
		return fmt.Errorf("must be below 2^52 µs (%s), got %s", time.Duration(maxDuration)*time.Microsecond, d)
	}
	return nil
}

func (b Ban) ok() bool { return b == (Ban{}) || b.invalid() == nil }

// bans reports whether the check reads and counts bans.
func (c *Check) bans() bool { return c.Ban != (Ban{}) && !c.Shadow }

// A banState is what is remembered of a key's denials. The zero value is a key
// that was not denied. Twin: lua/ban.lua.
type banState struct {
	since int64 // when the first of the denials came or, of a ban, when it began
	until int64 // when the ban ends; 0 if there was none
	count int64 // denials since; 0 during a ban
	// byHand says that the ban is not a rule's own: checks without a Ban obey it,
	// too. In Redis, they meet it in the place of their count.
	byHand bool
}

// A banRule is a check's Ban as numbers. Times are in µs. Denials do not count
// where after is 0, and where it is -1, for a shadow check, no ban does.
type banRule struct{ after, within, length int64 }

func (c *Check) banRule() banRule {
	b := banRule{c.Ban.After, cmp.Or(c.Ban.Within, c.Limit.Period).Microseconds(), c.Ban.For.Microseconds()}
	switch {
	case c.Shadow:
		b.after = -1
	case c.spared:
		b.after = 0
	}
	return b
}

// at returns the state as it stands at now. healed says that a clock wrote it
// that was more than Within ahead: it is as if it had been written now.
func (b banRule) at(s banState, now int64) (current banState, healed bool) {
	if s.since > now+b.within {
		if s.count == 0 {
			s.until = now + max(s.until-s.since, 0)
		}
		s.since = now
		return s, true
	}
	return s, false
}

// deny counts a denial in a current state in which the key is not banned.
func (b banRule) deny(s banState, now int64) banState {
	if s.count == 0 || now-s.since >= b.within {
		s = banState{since: now}
	}
	if s.count++; s.count >= b.after {
		s = banState{since: now, until: now + b.length}
	}
	return s
}

// extended is a state in which the key is banned for at least length from now.
func (b banRule) extended(s banState, now, length int64) banState {
	return banState{since: now, until: max(s.until, now+length), byHand: true}
}

// forgotten is when a state equals that of a key that was not denied.
func (b banRule) forgotten(s banState) int64 {
	if s.count > 0 {
		return max(s.until, s.since+b.within)
	}
	return s.until
}

// counts reports whether a check's denial counts, by its own answer.
func (b banRule) counts(r *Result) bool { return b.after > 0 && !r.impatient() }

// ban makes an answer say that the key is banned until a time, if that is to come.
// A time that is negative says that the ban begins with this denial.
func (r *Result) ban(until, now int64) {
	rest := micros(max(until, -until) - now)
	if rest <= 0 {
		return
	}
	r.Allowed, r.Banned, r.Delay, r.bannedFor, r.banBegins = false, true, 0, rest, until < 0
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

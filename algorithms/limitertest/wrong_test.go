package limitertest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// A mistake is a limiter of which one method is wrong, the one that is not nil.
type mistake struct {
	name    string
	foundBy string // a part of the name of a case that has to find it

	take, peek decideFunc
	settle     func(ctx context.Context, m *algorithms.Memory, charges ...algorithms.Charge) ([]algorithms.Result, error)
	reset      func(ctx context.Context, m *algorithms.Memory, checks ...algorithms.Check) error
	ban        func(ctx context.Context, m *algorithms.Memory, d time.Duration, checks ...algorithms.Check) error
}

type decideFunc func(ctx context.Context, m *algorithms.Memory, checks ...algorithms.Check) (algorithms.Decision, error)

// A wrongLimiter makes a mistake, and is a Memory otherwise.
type wrongLimiter struct {
	*algorithms.Memory
	mistake *mistake
}

func (w wrongLimiter) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	if w.mistake.take == nil {
		return w.Memory.Take(ctx, checks...)
	}
	return w.mistake.take(ctx, w.Memory, checks...)
}

func (w wrongLimiter) Peek(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	if w.mistake.peek == nil {
		return w.Memory.Peek(ctx, checks...)
	}
	return w.mistake.peek(ctx, w.Memory, checks...)
}

func (w wrongLimiter) Settle(ctx context.Context, charges ...algorithms.Charge) ([]algorithms.Result, error) {
	if w.mistake.settle == nil {
		return w.Memory.Settle(ctx, charges...)
	}
	return w.mistake.settle(ctx, w.Memory, charges...)
}

func (w wrongLimiter) Reset(ctx context.Context, checks ...algorithms.Check) error {
	if w.mistake.reset == nil {
		return w.Memory.Reset(ctx, checks...)
	}
	return w.mistake.reset(ctx, w.Memory, checks...)
}

func (w wrongLimiter) Ban(ctx context.Context, d time.Duration, checks ...algorithms.Check) error {
	if w.mistake.ban == nil {
		return w.Memory.Ban(ctx, d, checks...)
	}
	return w.mistake.ban(ctx, w.Memory, d, checks...)
}

// asking asks for something else than it is asked for.
func asking(change func(*algorithms.Check)) decideFunc {
	return func(ctx context.Context, m *algorithms.Memory, checks ...algorithms.Check) (algorithms.Decision, error) {
		asked := slices.Clone(checks)
		for i := range asked {
			change(&asked[i])
		}
		d, err := m.Take(ctx, asked...)
		for i := range d.Results {
			d.Results[i].Check = checks[i]
		}
		return d, err
	}
}

// telling tells something else than it decided.
func telling(change func(*algorithms.Decision)) decideFunc {
	return func(ctx context.Context, m *algorithms.Memory, checks ...algorithms.Check) (algorithms.Decision, error) {
		d, err := m.Take(ctx, checks...)
		change(&d)
		return d, err
	}
}

// tellingEach is telling of each result.
func tellingEach(change func(*algorithms.Result)) decideFunc {
	return telling(func(d *algorithms.Decision) {
		for i := range d.Results {
			change(&d.Results[i])
		}
	})
}

// uncharged admits requests with several checks of which one without room is of a kind, and
// charges none.
func uncharged(of func(*algorithms.Result) bool) decideFunc {
	return func(ctx context.Context, m *algorithms.Memory, checks ...algorithms.Check) (algorithms.Decision, error) {
		d, _ := m.Peek(ctx, checks...)
		for i := range d.Results {
			if r := &d.Results[i]; len(checks) > 1 && d.Allowed && !r.HasRoom && of(r) {
				return d, nil
			}
		}
		return m.Take(ctx, checks...)
	}
}

// settled has what Settle_settles_each_copy has settled.
var settled sync.Map

type charged struct {
	m     *algorithms.Memory
	check algorithms.Check
}

var mistakes = []mistake{

	{name: "admits_one_too_many", take: asking(func(c *algorithms.Check) {
		if q := c.Limit.Quota(); q == c.Limit.Rate && c.Limit.Burst == 0 {
			c.Limit.Rate++
		} else {
			c.Limit.Burst++
		}
	}), foundBy: "up to the limit and over it"},
	{name: "ignores_Burst", take: asking(func(c *algorithms.Check) { c.Limit.Burst = 0 }), foundBy: "a burst at once, then the rate"},
	{name: "ignores_Cost", take: asking(func(c *algorithms.Check) { c.Cost = min(c.Cost, 1) }), foundBy: "a cost takes all of its units"},
	{name: "ignores_negative_Cost", take: asking(func(c *algorithms.Check) { c.Cost = max(c.Cost, 0) }), foundBy: "a negative cost or MaxDelay is an error"},
	{name: "ignores_MaxDelay", take: asking(func(c *algorithms.Check) { c.MaxDelay = 0 }), foundBy: "MaxDelay denies who would wait longer"},
	{name: "MaxDelay_in_ms", take: asking(func(c *algorithms.Check) { c.MaxDelay = c.MaxDelay.Truncate(time.Millisecond) }), foundBy: "MaxDelay denies who would wait longer"},
	{name: "ignores_Shadow", take: asking(func(c *algorithms.Check) { c.Shadow = false }), foundBy: "a shadow check is decided and charged but never"},
	{name: "ignores_Key", take: asking(func(c *algorithms.Check) { c.Key = "" }), foundBy: "keys that look alike are counted apart"},
	{name: "ignores_Rule", take: asking(func(c *algorithms.Check) { c.Rule = "" }), foundBy: "keys that look alike are counted apart"},
	{name: "ignores_case", take: asking(func(c *algorithms.Check) { c.Key = strings.ToLower(c.Key) }), foundBy: "look alike"},
	{name: "joins_names", take: asking(func(c *algorithms.Check) { c.Key, c.Rule = c.Rule+":"+c.Key, "" }), foundBy: "look alike"},
	{name: "truncates_keys", take: asking(func(c *algorithms.Check) { c.Key = c.Key[:min(len(c.Key), 64)] }), foundBy: "look alike"},
	{name: "repairs_keys", take: asking(func(c *algorithms.Check) { c.Key = strings.ToValidUTF8(c.Key, "\ufffd") }), foundBy: "look alike"},
	{name: "counts_each_rate_apart", take: asking(func(c *algorithms.Check) { c.Rule += c.Limit.String() }), foundBy: "a limit that changes keeps its count"},

	{name: "RetryAfter_late_by_1µs", take: tellingEach(func(r *algorithms.Result) {
		if !r.HasRoom && r.RetryAfter != algorithms.Never {
			r.RetryAfter += time.Microsecond
		}
	}), foundBy: "RetryAfter is tight"},
	{name: "RetryAfter_early_by_1µs", take: tellingEach(func(r *algorithms.Result) {
		if !r.HasRoom && r.RetryAfter != algorithms.Never {
			r.RetryAfter -= time.Microsecond
		}
	}), foundBy: "RetryAfter is tight"},
	{name: "ResetAfter_in_ms", take: tellingEach(func(r *algorithms.Result) {
		r.ResetAfter = r.ResetAfter.Truncate(time.Millisecond)
	}), foundBy: "ResetAfter is when"},
	{name: "At_in_ms", take: tellingEach(func(r *algorithms.Result) { r.At = r.At.Truncate(time.Millisecond) }), foundBy: "RetryAfter is tight"},
	{name: "Check_not_as_asked", take: tellingEach(func(r *algorithms.Result) { r.Check.Cost = max(r.Check.Cost, 1) }), foundBy: "a cost of 0"},
	{name: "Remaining_negative", take: tellingEach(func(r *algorithms.Result) {
		if !r.HasRoom {
			r.Remaining = -1
		}
	}), foundBy: "up to the limit and over it"},
	{name: "Remaining_hides_debts", take: tellingEach(func(r *algorithms.Result) { r.Remaining = max(r.Remaining, 0) }), foundBy: "goes into any debt"},
	{name: "results_reversed", take: telling(func(d *algorithms.Decision) { slices.Reverse(d.Results) }), foundBy: "all checks of an admitted request"},
	{name: "only_denials_told", take: telling(func(d *algorithms.Decision) {
		if !d.Allowed {
			d.Results = slices.DeleteFunc(d.Results, func(r algorithms.Result) bool { return r.HasRoom })
		}
	}), foundBy: "a request that one check denies"},
	{name: "a_result_twice", take: telling(func(d *algorithms.Decision) {
		if len(d.Results) > 1 {
			d.Results = append(d.Results, d.Results[0])
		}
	}), foundBy: "all checks of an admitted request"},

	{name: "charges_what_it_denies", foundBy: "a request that one check denies charges nothing", take: func(ctx context.Context, m *algorithms.Memory, checks ...algorithms.Check) (algorithms.Decision, error) {
		d, err := m.Take(ctx, checks...)
		if !d.Allowed {
			for _, r := range d.Results {
				_, _ = m.Take(ctx, r.Check)
			}
		}
		return d, err
	}},
	{name: "looks_before_it_charges", foundBy: "requests at the same time are admitted exactly", take: func(ctx context.Context, m *algorithms.Memory, checks ...algorithms.Check) (algorithms.Decision, error) {
		looked, err := m.Peek(ctx, checks...)
		if !looked.Allowed {
			return looked, err
		}
		time.Sleep(time.Nanosecond) // until the others have looked too
		d, err := m.Take(ctx, checks...)
		d.Allowed = true
		return d, err
	}},
	{name: "heeds_cancellation", foundBy: "context has ended", take: func(ctx context.Context, m *algorithms.Memory, checks ...algorithms.Check) (algorithms.Decision, error) {
		if err := ctx.Err(); err != nil {
			return algorithms.Decision{}, err
		}
		return m.Take(ctx, checks...)
	}},
	{name: "merges_duplicates", foundBy: "two checks that share a count", take: func(ctx context.Context, m *algorithms.Memory, checks ...algorithms.Check) (algorithms.Decision, error) {
		d, err := m.Take(ctx, checks...)
		if errors.Is(err, algorithms.ErrInvalidCheck) {
			return m.Take(ctx, checks[0])
		}
		return d, err
	}},

	{name: "Peek_charges", foundBy: "Peek charges nothing and decides as Take then does", peek: func(ctx context.Context, m *algorithms.Memory, checks ...algorithms.Check) (algorithms.Decision, error) {
		return m.Take(ctx, checks...)
	}},
	{name: "Peek_tells_denials_only", foundBy: "Peek decides several checks", peek: func(ctx context.Context, m *algorithms.Memory, checks ...algorithms.Check) (algorithms.Decision, error) {
		d, err := m.Peek(ctx, checks...)
		if !d.Allowed {
			d.Results = slices.DeleteFunc(d.Results, func(r algorithms.Result) bool { return r.HasRoom })
		}
		return d, err
	}},
	{name: "Settle_does_nothing", foundBy: "Settle to less gives back", settle: func(_ context.Context, _ *algorithms.Memory, charges ...algorithms.Charge) ([]algorithms.Result, error) {
		results := make([]algorithms.Result, len(charges))
		for i, c := range charges {
			results[i] = c.Result
			results[i].Charged = c.Cost
		}
		return results, nil
	}},
	{name: "Settle_returns_what_was", foundBy: "Settle to less gives back", settle: func(ctx context.Context, m *algorithms.Memory, charges ...algorithms.Charge) ([]algorithms.Result, error) {
		_, err := m.Settle(ctx, charges...)
		results := make([]algorithms.Result, len(charges))
		for i := range charges {
			results[i] = charges[i].Result
		}
		return results, err
	}},
	{name: "Settle_gives_back_all_at_any_time", foundBy: "Settle gives back what was not refilled since", settle: func(ctx context.Context, m *algorithms.Memory, charges ...algorithms.Charge) ([]algorithms.Result, error) {
		results, err := m.Settle(ctx, charges...)
		for _, c := range charges {
			if c.Cost == 0 {
				err = errors.Join(err, m.Reset(ctx, c.Result.Check))
			}
		}
		return results, err
	}},
	{name: "Settle_settles_each_copy", foundBy: "all copies of a result as one charge", settle: func(ctx context.Context, m *algorithms.Memory, charges ...algorithms.Charge) ([]algorithms.Result, error) {
		results, err := m.Settle(ctx, charges...)
		for _, c := range charges {
			_, before := settled.LoadOrStore(charged{m, c.Result.Check}, true)
			if before && c.Result.Charged > c.Cost {
				err = errors.Join(err, m.Reset(ctx, c.Result.Check))
			}
		}
		return results, err
	}},
	{name: "Settle_owes_at_most_a_quota", foundBy: "goes into any debt", settle: func(ctx context.Context, m *algorithms.Memory, charges ...algorithms.Charge) ([]algorithms.Result, error) {
		for i, c := range charges {
			charges[i].Cost = min(c.Cost, c.Result.Charged+c.Result.Check.Limit.Quota())
		}
		return m.Settle(ctx, charges...)
	}},
	{name: "Reset_forgets_keys_of_all_rules", foundBy: "Reset forgets only the checks named", reset: func(ctx context.Context, m *algorithms.Memory, checks ...algorithms.Check) error {
		for _, c := range checks {
			for _, c.Rule = range []string{"sample", "another"} {
				if err := m.Reset(ctx, c); err != nil {
					return err
				}
			}
		}
		return nil
	}},
	{name: "Peek_of_invalid_checks", foundBy: "an invalid limit is an error", peek: func(ctx context.Context, m *algorithms.Memory, checks ...algorithms.Check) (algorithms.Decision, error) {
		d, err := m.Peek(ctx, checks...)
		if errors.Is(err, algorithms.ErrInvalidCheck) {
			err = nil
		}
		return d, err
	}},
	{name: "Reset_of_invalid_checks", foundBy: "a negative cost or MaxDelay is an error", reset: func(ctx context.Context, m *algorithms.Memory, checks ...algorithms.Check) error {
		for _, c := range checks {
			_ = m.Reset(ctx, c)
		}
		return nil
	}},
	{name: "Ban_for_less_than_a_microsecond", foundBy: "an invalid ban is an error", ban: func(ctx context.Context, m *algorithms.Memory, d time.Duration, checks ...algorithms.Check) error {
		return m.Ban(ctx, d.Truncate(time.Microsecond), checks...)
	}},
	{name: "ignores_Ban", take: asking(func(c *algorithms.Check) { c.Ban = algorithms.Ban{} }), foundBy: "denied After times is banned"},
	{name: "bans_one_too_late", take: asking(func(c *algorithms.Check) {
		if c.Ban.After > 0 {
			c.Ban.After++
		}
	}), foundBy: "denials during a ban do not extend it"},
	{name: "ignores_Within", take: asking(func(c *algorithms.Check) {
		if c.Ban.Within > 0 {
			c.Ban.Within = 1000 * time.Hour
		}
	}), foundBy: "Within the first"},
	{name: "counts_a_denial_for_each_check", foundBy: "a request is one denial", take: func(ctx context.Context, m *algorithms.Memory, checks ...algorithms.Check) (algorithms.Decision, error) {
		d, err := m.Take(ctx, checks...)
		for i := range d.Results { // each but the first is counted behind the request
			if r := &d.Results[i]; i > 0 && !r.HasRoom && r.Check.Ban != (algorithms.Ban{}) {
				_, _ = m.Take(ctx, checks[i])
			}
		}
		return d, err
	}},
	{name: "bans_without_saying", take: tellingEach(func(r *algorithms.Result) { r.BannedFor = 0 }), foundBy: "denied After times is banned"},
	{name: "Peek_counts_denials", foundBy: "Peek counts no denial", peek: func(ctx context.Context, m *algorithms.Memory, checks ...algorithms.Check) (algorithms.Decision, error) {
		d, err := m.Peek(ctx, checks...)
		if err == nil && !d.Allowed {
			return m.Take(ctx, checks...)
		}
		return d, err
	}},
	{name: "Ban_of_the_first_check", foundBy: "a ban by hand denies charges nothing", ban: func(ctx context.Context, m *algorithms.Memory, d time.Duration, checks ...algorithms.Check) error {
		if d > 0 {
			checks = checks[:1]
		}
		return m.Ban(ctx, d, checks...)
	}},
	{name: "admits_beside_shadow_and_charges_nothing", foundBy: "a shadow check changes no", take: uncharged(func(r *algorithms.Result) bool { return r.Check.Shadow && r.RetryAfter == algorithms.Never })},
	{name: "Ban_shortens", foundBy: "never for less than before", ban: func(ctx context.Context, m *algorithms.Memory, d time.Duration, checks ...algorithms.Check) error {
		if d > 0 && m.Ban(ctx, 0, checks...) != nil {
			return algorithms.ErrInvalidCheck
		}
		return m.Ban(ctx, d, checks...)
	}},
	{name: "Ban_only_of_checks_with_a_Ban", foundBy: "bans a check without a Ban", ban: func(ctx context.Context, m *algorithms.Memory, d time.Duration, checks ...algorithms.Check) error {
		return m.Ban(ctx, d, slices.DeleteFunc(slices.Clone(checks), func(c algorithms.Check) bool { return c.Ban == (algorithms.Ban{}) })...)
	}},
	{name: "Ban_0_resets", foundBy: "counts stay", ban: func(ctx context.Context, m *algorithms.Memory, d time.Duration, checks ...algorithms.Check) error {
		if d == 0 {
			return m.Reset(ctx, checks...)
		}
		return m.Ban(ctx, d, checks...)
	}},
	{name: "Reset_keeps_bans", foundBy: "Reset lifts a ban", reset: func(ctx context.Context, m *algorithms.Memory, checks ...algorithms.Check) error {
		other := slices.Clone(checks)
		for i := range other {
			other[i].Ban = algorithms.Ban{After: 1, For: time.Hour}
		}
		d, err := m.Peek(ctx, other...)
		if err == nil {
			err = m.Reset(ctx, checks...)
		}
		for i, r := range d.Results {
			if r.BannedFor > 0 {
				err = errors.Join(err, m.Ban(ctx, r.RetryAfter, checks[i]))
			}
		}
		return err
	}},
}

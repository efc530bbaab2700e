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

// A wrongLimiter makes one mistake.
type wrongLimiter struct {
	algorithms.Limiter

	take   func(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error)
	peek   func(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error)
	settle func(ctx context.Context, charges ...algorithms.Charge) ([]algorithms.Result, error)
	reset  func(ctx context.Context, checks ...algorithms.Check) error
	ban    func(ctx context.Context, d time.Duration, checks ...algorithms.Check) error
}

func (w *wrongLimiter) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	return w.take(ctx, checks...)
}

func (w *wrongLimiter) Peek(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	return w.peek(ctx, checks...)
}

func (w *wrongLimiter) Settle(ctx context.Context, charges ...algorithms.Charge) ([]algorithms.Result, error) {
	return w.settle(ctx, charges...)
}

func (w *wrongLimiter) Reset(ctx context.Context, checks ...algorithms.Check) error {
	return w.reset(ctx, checks...)
}

func (w *wrongLimiter) Ban(ctx context.Context, d time.Duration, checks ...algorithms.Check) error {
	return w.ban(ctx, d, checks...)
}

// wrong is a limiter with one method made wrong.
func wrong(m *algorithms.Memory, mistake func(*wrongLimiter)) algorithms.Limiter {
	w := &wrongLimiter{m, m.Take, m.Peek, m.Settle, m.Reset, m.Ban}
	mistake(w)
	return w
}

// asking is a limiter that asks for something else than it is asked for.
func asking(change func(*algorithms.Check)) func(*algorithms.Memory) algorithms.Limiter {
	return func(m *algorithms.Memory) algorithms.Limiter {
		return wrong(m, func(w *wrongLimiter) {
			w.take = func(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
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
		})
	}
}

// telling is a limiter that tells something else than it decided.
func telling(change func(*algorithms.Decision)) func(*algorithms.Memory) algorithms.Limiter {
	return func(m *algorithms.Memory) algorithms.Limiter {
		return wrong(m, func(w *wrongLimiter) {
			w.take = func(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
				d, err := m.Take(ctx, checks...)
				change(&d)
				return d, err
			}
		})
	}
}

// tellingEach is telling of each result.
func tellingEach(change func(*algorithms.Result)) func(*algorithms.Memory) algorithms.Limiter {
	return telling(func(d *algorithms.Decision) {
		for i := range d.Results {
			change(&d.Results[i])
		}
	})
}

// wrongLimiters come with a part of the name of a case that has to find them.
var wrongLimiters = []struct {
	name    string
	limiter func(*algorithms.Memory) algorithms.Limiter
	foundBy string
}{
	{"admits_one_too_many", asking(func(c *algorithms.Check) {
		if q := c.Limit.Quota(); q == c.Limit.Rate && c.Limit.Burst == 0 {
			c.Limit.Rate++
		} else {
			c.Limit.Burst++
		}
	}), "up to the limit and over it"},
	{"ignores_Burst", asking(func(c *algorithms.Check) { c.Limit.Burst = 0 }), "a burst at once, then the rate"},
	{"ignores_Cost", asking(func(c *algorithms.Check) { c.Cost = min(c.Cost, 1) }), "a cost takes all of its units"},
	{"ignores_negative_Cost", asking(func(c *algorithms.Check) { c.Cost = max(c.Cost, 0) }), "a negative cost or MaxDelay is an error"},
	{"ignores_AtLeast", asking(func(c *algorithms.Check) { c.AtLeast = 0 }), "AtLeast takes what is left"},
	{"takes_AtLeast_only", asking(func(c *algorithms.Check) {
		if c.AtLeast > 0 {
			c.Cost = c.AtLeast
		}
	}), "AtLeast takes of all checks"},
	{"ignores_MaxDelay", asking(func(c *algorithms.Check) { c.MaxDelay = 0 }), "MaxDelay denies who would wait longer"},
	{"MaxDelay_in_ms", asking(func(c *algorithms.Check) { c.MaxDelay = c.MaxDelay.Truncate(time.Millisecond) }), "MaxDelay denies who would wait longer"},
	{"ignores_Soft", asking(func(c *algorithms.Check) { c.Limit.Soft = false }), "a soft check is charged beyond its limit"},
	{"ignores_Shadow", asking(func(c *algorithms.Check) { c.Shadow = false }), "a shadow check is decided and charged but never"},
	{"ignores_Key", asking(func(c *algorithms.Check) { c.Key = "" }), "keys that look alike are counted apart"},
	{"ignores_Rule", asking(func(c *algorithms.Check) { c.Rule = "" }), "keys that look alike are counted apart"},
	{"ignores_case", asking(func(c *algorithms.Check) { c.Key = strings.ToLower(c.Key) }), "look alike"},
	{"joins_names", asking(func(c *algorithms.Check) { c.Key, c.Rule = c.Rule+":"+c.Key, "" }), "look alike"},
	{"truncates_keys", asking(func(c *algorithms.Check) { c.Key = c.Key[:min(len(c.Key), 64)] }), "look alike"},
	{"repairs_keys", asking(func(c *algorithms.Check) { c.Key = strings.ToValidUTF8(c.Key, "\ufffd") }), "look alike"},
	{"counts_each_rate_apart", asking(func(c *algorithms.Check) { c.Rule += c.Limit.String() }), "a limit that changes keeps its count"},

	{"RetryAfter_late_by_1µs", tellingEach(func(r *algorithms.Result) {
		if !r.HasRoom && r.RetryAfter != algorithms.Never {
			r.RetryAfter += time.Microsecond
		}
	}), "RetryAfter is tight"},
	{"RetryAfter_early_by_1µs", tellingEach(func(r *algorithms.Result) {
		if !r.HasRoom && r.RetryAfter != algorithms.Never {
			r.RetryAfter -= time.Microsecond
		}
	}), "RetryAfter is tight"},
	{"ResetAfter_in_ms", tellingEach(func(r *algorithms.Result) {
		r.ResetAfter = r.ResetAfter.Truncate(time.Millisecond)
	}), "ResetAfter is when"},
	{"At_in_ms", tellingEach(func(r *algorithms.Result) { r.At = r.At.Truncate(time.Millisecond) }), "RetryAfter is tight"},
	{"Check_not_as_asked", tellingEach(func(r *algorithms.Result) { r.Check.Cost = max(r.Check.Cost, 1) }), "a cost of 0"},
	{"Remaining_negative", tellingEach(func(r *algorithms.Result) {
		if !r.HasRoom {
			r.Remaining = -1
		}
	}), "up to the limit and over it"},
	{"Remaining_hides_debts", tellingEach(func(r *algorithms.Result) { r.Remaining = max(r.Remaining, 0) }), "goes into any debt"},
	{"results_reversed", telling(func(d *algorithms.Decision) { slices.Reverse(d.Results) }), "all checks of an admitted request"},
	{"only_denials_told", telling(func(d *algorithms.Decision) {
		if !d.Allowed {
			d.Results = slices.DeleteFunc(d.Results, func(r algorithms.Result) bool { return r.HasRoom })
		}
	}), "a request that one check denies"},
	{"a_result_twice", telling(func(d *algorithms.Decision) {
		if len(d.Results) > 1 {
			d.Results = append(d.Results, d.Results[0])
		}
	}), "all checks of an admitted request"},

	{"charges_what_it_denies", func(m *algorithms.Memory) algorithms.Limiter {
		return wrong(m, func(w *wrongLimiter) {
			w.take = func(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
				d, err := m.Take(ctx, checks...)
				if !d.Allowed {
					for _, r := range d.Results {
						_, _ = m.Take(ctx, r.Check)
					}
				}
				return d, err
			}
		})
	}, "a request that one check denies charges nothing"},
	{"looks_before_it_charges", func(m *algorithms.Memory) algorithms.Limiter {
		return wrong(m, func(w *wrongLimiter) {
			w.take = func(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
				looked, err := m.Peek(ctx, checks...)
				if !looked.Allowed {
					return looked, err
				}
				time.Sleep(time.Nanosecond) // until the others have looked too
				d, err := m.Take(ctx, checks...)
				d.Allowed = true
				return d, err
			}
		})
	}, "requests at the same time are admitted exactly"},
	{"heeds_cancellation", func(m *algorithms.Memory) algorithms.Limiter {
		return wrong(m, func(w *wrongLimiter) {
			w.take = func(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
				if err := ctx.Err(); err != nil {
					return algorithms.Decision{}, err
				}
				return m.Take(ctx, checks...)
			}
		})
	}, "context has ended"},
	{"merges_duplicates", func(m *algorithms.Memory) algorithms.Limiter {
		return wrong(m, func(w *wrongLimiter) {
			w.take = func(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
				d, err := m.Take(ctx, checks...)
				if errors.Is(err, algorithms.ErrInvalidCheck) {
					return m.Take(ctx, checks[0])
				}
				return d, err
			}
		})
	}, "two checks that share a count"},

	{"Peek_charges", func(m *algorithms.Memory) algorithms.Limiter {
		return wrong(m, func(w *wrongLimiter) { w.peek = m.Take })
	}, "Peek charges nothing and decides as Take then does"},
	{"Peek_tells_denials_only", func(m *algorithms.Memory) algorithms.Limiter {
		return wrong(m, func(w *wrongLimiter) {
			w.peek = func(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
				d, err := m.Peek(ctx, checks...)
				if !d.Allowed {
					d.Results = slices.DeleteFunc(d.Results, func(r algorithms.Result) bool { return r.HasRoom })
				}
				return d, err
			}
		})
	}, "Peek decides several checks"},
	{"Settle_does_nothing", func(m *algorithms.Memory) algorithms.Limiter {
		return wrong(m, func(w *wrongLimiter) {
			w.settle = func(_ context.Context, charges ...algorithms.Charge) ([]algorithms.Result, error) {
				results := make([]algorithms.Result, len(charges))
				for i, c := range charges {
					results[i] = c.Result
					results[i].Charged = c.Cost
				}
				return results, nil
			}
		})
	}, "Settle to less gives back"},
	{"Settle_returns_what_was", func(m *algorithms.Memory) algorithms.Limiter {
		return wrong(m, func(w *wrongLimiter) {
			w.settle = func(ctx context.Context, charges ...algorithms.Charge) ([]algorithms.Result, error) {
				_, err := m.Settle(ctx, charges...)
				results := make([]algorithms.Result, len(charges))
				for i := range charges {
					results[i] = charges[i].Result
				}
				return results, err
			}
		})
	}, "Settle to less gives back"},
	{"Settle_gives_back_all_at_any_time", func(m *algorithms.Memory) algorithms.Limiter {
		return wrong(m, func(w *wrongLimiter) {
			w.settle = func(ctx context.Context, charges ...algorithms.Charge) ([]algorithms.Result, error) {
				results, err := m.Settle(ctx, charges...)
				for _, c := range charges {
					if c.Cost == 0 {
						err = errors.Join(err, m.Reset(ctx, c.Result.Check))
					}
				}
				return results, err
			}
		})
	}, "Settle gives back what was not refilled since"},
	{"Settle_settles_each_copy", func(m *algorithms.Memory) algorithms.Limiter {
		var mu sync.Mutex
		settled := make(map[algorithms.Check]bool)
		return wrong(m, func(w *wrongLimiter) {
			w.settle = func(ctx context.Context, charges ...algorithms.Charge) ([]algorithms.Result, error) {
				mu.Lock()
				defer mu.Unlock()
				results, err := m.Settle(ctx, charges...)
				for _, c := range charges {
					if settled[c.Result.Check] && c.Result.Charged > c.Cost {
						err = errors.Join(err, m.Reset(ctx, c.Result.Check))
					}
					settled[c.Result.Check] = true
				}
				return results, err
			}
		})
	}, "all copies of a result as one charge"},
	{"Settle_owes_at_most_a_quota", func(m *algorithms.Memory) algorithms.Limiter {
		return wrong(m, func(w *wrongLimiter) {
			w.settle = func(ctx context.Context, charges ...algorithms.Charge) ([]algorithms.Result, error) {
				for i, c := range charges {
					charges[i].Cost = min(c.Cost, c.Result.Charged+c.Result.Check.Limit.Quota())
				}
				return m.Settle(ctx, charges...)
			}
		})
	}, "goes into any debt"},
	{"Reset_forgets_keys_of_all_rules", func(m *algorithms.Memory) algorithms.Limiter {
		return wrong(m, func(w *wrongLimiter) {
			w.reset = func(ctx context.Context, checks ...algorithms.Check) error {
				for _, c := range checks {
					for _, c.Rule = range []string{"sample", "another"} {
						if err := m.Reset(ctx, c); err != nil {
							return err
						}
					}
				}
				return nil
			}
		})
	}, "Reset forgets only the checks named"},
	{"ignores_Ban", asking(func(c *algorithms.Check) { c.Ban = algorithms.Ban{} }), "denied After times is banned"},
	{"bans_one_too_late", asking(func(c *algorithms.Check) {
		if c.Ban.After > 0 {
			c.Ban.After++
		}
	}), "denials during a ban do not extend it"},
	{"ignores_Within", asking(func(c *algorithms.Check) {
		if c.Ban.Within > 0 {
			c.Ban.Within = 1000 * time.Hour
		}
	}), "Within the first"},
	{"counts_a_denial_for_each_check", func(m *algorithms.Memory) algorithms.Limiter {
		return wrong(m, func(w *wrongLimiter) {
			w.take = func(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
				d, err := m.Take(ctx, checks...)
				for i := range d.Results { // each but the first is counted behind the request
					if r := &d.Results[i]; i > 0 && !r.HasRoom && r.Check.Ban != (algorithms.Ban{}) {
						_, _ = m.Take(ctx, checks[i])
					}
				}
				return d, err
			}
		})
	}, "a request is one denial"},
	{"bans_without_saying", tellingEach(func(r *algorithms.Result) { r.BannedFor = 0 }), "denied After times is banned"},
	{"Peek_counts_denials", func(m *algorithms.Memory) algorithms.Limiter {
		return wrong(m, func(w *wrongLimiter) {
			w.peek = func(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
				d, err := m.Peek(ctx, checks...)
				if err == nil && !d.Allowed {
					return m.Take(ctx, checks...)
				}
				return d, err
			}
		})
	}, "Peek counts no denial"},
	{"Ban_shortens", func(m *algorithms.Memory) algorithms.Limiter {
		return wrong(m, func(w *wrongLimiter) {
			w.ban = func(ctx context.Context, d time.Duration, checks ...algorithms.Check) error {
				if d > 0 && m.Ban(ctx, 0, checks...) != nil {
					return algorithms.ErrInvalidCheck
				}
				return m.Ban(ctx, d, checks...)
			}
		})
	}, "never for less than before"},
	{"Ban_only_of_checks_with_a_Ban", func(m *algorithms.Memory) algorithms.Limiter {
		return wrong(m, func(w *wrongLimiter) {
			w.ban = func(ctx context.Context, d time.Duration, checks ...algorithms.Check) error {
				return m.Ban(ctx, d, slices.DeleteFunc(slices.Clone(checks), func(c algorithms.Check) bool { return c.Ban == (algorithms.Ban{}) })...)
			}
		})
	}, "bans a check without a Ban"},
	{"Ban_0_resets", func(m *algorithms.Memory) algorithms.Limiter {
		return wrong(m, func(w *wrongLimiter) {
			w.ban = func(ctx context.Context, d time.Duration, checks ...algorithms.Check) error {
				if d == 0 {
					return m.Reset(ctx, checks...)
				}
				return m.Ban(ctx, d, checks...)
			}
		})
	}, "counts stay"},
	{"Reset_keeps_bans", func(m *algorithms.Memory) algorithms.Limiter {
		return wrong(m, func(w *wrongLimiter) {
			w.reset = func(ctx context.Context, checks ...algorithms.Check) error {
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
			}
		})
	}, "Reset lifts a ban"},
}

package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/banned"
	"github.com/seed75154129/ratelimit/internal/naming"
	"github.com/seed75154129/ratelimit/internal/wait"
)

// A Ban denies a key for longer after repeated strikes. A strike is a request that the rule
// denies or, with ChargeOn, a response whose status counts. The strike that brings a key to
// After within Within bans it: for For, the rule denies all of its requests, whatever it has
// left. Then its strikes count anew; those within Within count on if the store fails while the
// ban begins. The zero value is no ban. Any other value needs After and For.
//
// The strikes of all processes count together, and a ban holds in all of them at once. The
// store alone counts them: a denial by a process while the store does not answer is no
// strike, nor is a response then. A response is one if the store answers when the status is
// written, whoever has charged the request. A ban that has begun holds in an outage, too,
// whatever Fail says. A denial is no strike if it comes of a calendar window, of a MaxDelay
// alone, or during a ban. With several windows, a denial by any other of them is one.
//
// Each strike costs the store a command, and the ban three more. A strike waits no longer than
// a decision, and the one that bans three times as long.
type Ban struct {
	After  int64         // strikes that lead to the ban; 1 bans at the first; at most 10,001
	Within time.Duration // the time in which the strikes must come; 0 means the limit's period
	For    time.Duration // how long the key is denied; rounded up to whole seconds; at most 70 years
}

// terms are the ban's, for a rule with these limits.
func (b Ban) terms(limits []algorithms.Limit) banned.Terms {
	return banned.Terms{After: b.After, Within: cmp.Or(b.Within, limits[0].Period), For: b.For}
}

// mostCharged returns how many requests the rule's limits can charge within its ban's Within, and
// the limit that admits no more; 0 if that is unknown.
func (r *Rule) mostCharged(s share) (most int64, within time.Duration, by algorithms.Limit) {
	cost := max(r.Cost, 1)
	for _, units := range r.Costs {
		cost = min(cost, max(units, 1))
	}
	if r.CostFor != nil {
		cost = 1
	}
	for i, l := range r.own() {
		if i == 0 {
			within = cmp.Or(r.Ban.Within, l.Period)
		}
		part, err := s.limit(l)
		period := cmp.Or(l.Period, 22*time.Hour) // no day is shorter
		if err != nil || period < 1 || within < 1 {
			continue // which is reported
		}
		const many = 1 << 20 // far more than lead to a ban
		windows := 1 + min(int64((within-1)/period), many)
		if part.Algorithm != algorithms.SlidingLog {
			windows++ // it may begin at the end of one
		}
		n := windows * min(part.Rate/cost, many)
		if algorithmOf(part) == algorithms.SlidingWindow && part.Rate%cost == 0 {
			n-- // the last fits when the first is forgotten
		}
		if by == (algorithms.Limit{}) || n < most {
			most, by = n, part
		}
	}
	return most, within, by
}

// banOf returns the rule whose bans a check obeys; nil if there is none. A check in shadow
// obeys none, and requests without a key share one count, which one client must not have
// banned.
func (set *ruleset) banOf(c *algorithms.Check) *rule {
	if !set.bans || c.Shadow || c.Key == "" {
		return nil
	}
	if at, ok := set.find(c.Rule, 0); ok && set.rules[at].source.Ban != (Ban{}) {
		return &set.rules[at]
	}
	return nil
}

// withLooks returns the checks and, behind them, a look at the ban of each key.
func (set *ruleset) withLooks(checks []algorithms.Check) []algorithms.Check {
	all := slices.Clip(checks)
	for i := range checks {
		c := &checks[i]
		if (i == 0 || checks[i-1].Rule != c.Rule || checks[i-1].Key != c.Key) && set.banOf(c) != nil {
			all = append(all, banned.Look(c))
		}
	}
	return all
}

// ask is limiter.ask, for checks that obey bans.
func (m *Middleware) ask(ctx context.Context, set *ruleset, peeks bool, checks []algorithms.Check) (algorithms.Decision, error) {
	d, err := m.limiter.ask(ctx, peeks, set.withLooks(checks))
	obey(&d, len(checks))
	return d, err
}

// obey takes the looks, which are behind n results, out of a decision, and puts what they say
// into the results of their rules.
func obey(d *algorithms.Decision, n int) {
	for len(d.Results) > n && d.Results[n].Check.Look {
		look := d.Results[n]
		d.Results = slices.Delete(d.Results, n, n+1)
		for i := range d.Results[:n] {
			r := &d.Results[i]
			if !look.Denies() || r.Check.Key != look.Check.Key || !banned.IsFor(&look.Check, r.Check.Rule) {
				continue
			}
			if r.Source == algorithms.SourceNone || r.Err != nil || look.Err != nil {
				r.Source, r.At, r.Err = look.Source, look.At, look.Err
			}
			rest := banned.Rest(&look)
			if rest == 0 { // nobody knows
				r.Source, r.HasRoom, r.RetryAfter = look.Source, false, max(r.RetryAfter, look.RetryAfter)
				continue
			}
			denyFor(r, rest)
		}
	}
}

// denyFor makes a result a denial by a ban.
func denyFor(r *algorithms.Result, rest time.Duration) {
	r.HasRoom, r.Delay, r.BannedFor, r.Remaining = false, 0, rest, min(r.Remaining, 0)
	r.RetryAfter, r.ResetAfter = max(r.RetryAfter, rest), max(r.ResetAfter, rest)
}

// strike counts the denials of a decision, one for each rule with a ban.
func (e *evaluation) strike(d *algorithms.Decision) {
	if !e.set.bans {
		return
	}
	struck := ""
	for i := range d.Results {
		r := &d.Results[i]
		rule := e.set.banOf(&r.Check)
		if rule == nil || rule.source.ChargeOn != nil || r.Check.Rule == struck || !guilty(r) {
			continue
		}
		struck = r.Check.Rule
		rest, began := e.m.strike(e.request.Context(), rule, &r.Check)
		for j := range d.Results {
			if other := &d.Results[j]; rest > 0 && other.Check.Rule == struck && other.Check.Key == r.Check.Key {
				denyFor(other, rest)
				other.BanBegan = began
			}
		}
	}
}

// guilty reports whether a result is a denial that leads to a ban.
func guilty(r *algorithms.Result) bool {
	c := &r.Check
	switch {
	case !r.Denies() || r.Err != nil || r.BannedFor > 0 || !leadsToBan(c.Limit):
		return false
	case r.Source == algorithms.SourceFallback || r.Source == algorithms.SourceFailClosed:
		return false // the store has not denied it
	}
	return !naming.Limit(c.Limit).Row().DeniedByDelay(c.MaxDelay > 0, r.Remaining, c.Cost)
}

// strike counts a strike, whatever has become of the request. It waits for one command, and
// the strike that bans for some more: together at most three budgets, of their own.
func (m *Middleware) strike(ctx context.Context, rule *rule, c *algorithms.Check) (rest time.Duration, began bool) {
	until := time.Now().Add(3 * cmp.Or(m.limiter.budget(), foreignTimeout))
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), until)
	defer cancel()
	return rule.ban.Strike(wait.PartOf(ctx, until), m.limiter.Limiter, c)
}

// strikeBy counts a response whose status counts, for a rule with ChargeOn and a ban.
func (s *requestState) strikeBy(r *algorithms.Result) {
	rule := s.set.banOf(&r.Check)
	if rule == nil || r.Charged == 0 {
		return
	}
	if rest, began := s.by.strike(s.Context, rule, &r.Check); began {
		s.set.seriesOf(r.Check.Rule).bans.Add(1)
		s.by.noteBan(&r.Check, banned.ByRule, rest)
		s.by.config.Logger.LogAttrs(s.Context, slog.LevelInfo, "ratelimit: banned", slog.String("rule", r.Check.Rule), slog.String("key", s.by.shown(r.Check.Key)), slog.Duration("for", rest))
	}
}

// noteBan remembers a ban for operators.
func (m *Middleware) noteBan(c *algorithms.Check, by string, rest time.Duration) {
	m.bans.Note(banned.Key{Rule: c.Rule, Key: bounded(c.Key)}, by, time.Now(), rest)
}

// Ban bans a client by a rule for d, or for up to a second more, in all processes that share
// the store. It never shortens a ban; 0 lifts one, and forgets the client's strikes. The rule
// needs a Ban: other rules look at none, so that their requests cost less. The client is named
// as for [Middleware.Checks].
//
// Ban returns an error unless the store has answered, also in an outage: call it again.
func (m *Middleware) Ban(ctx context.Context, rule string, d time.Duration, client ...string) error {
	m.mustBeMade()
	r, err := m.rules.Load().named(rule)
	if err != nil {
		return err
	}
	keys, err := r.keysOf(client)
	if err != nil {
		return err
	}
	return m.banKeys(ctx, r, d, keys, banned.ByProgram)
}

// banKeys also notes what has become of the bans, for operators.
func (m *Middleware) banKeys(ctx context.Context, r *rule, d time.Duration, keys []string, by string) error {
	name := r.check.Rule
	if r.source.Ban == (Ban{}) {
		return fmt.Errorf("middleware: rule %q has no Ban, so its requests look at no bans; give it one, such as Ban{After: 100, Within: time.Minute, For: 15 * time.Minute}", name)
	}
	var errs []error
	for _, key := range keys {
		c := algorithms.Check{Rule: name, Key: key, Fail: r.source.Fail}
		var err error
		if d == 0 {
			err = r.ban.Lift(ctx, m.limiter.Limiter, &c)
		} else {
			err = banned.Set(ctx, m.limiter.Limiter, &c, d)
		}
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("middleware: rule %q: ban: %w", name, err))
		case d == 0:
			m.bans.Forget(banned.Key{Rule: name, Key: bounded(key)})
		default:
			m.noteBan(&c, by, d)
		}
	}
	return errors.Join(errs...)
}

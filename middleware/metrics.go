package middleware

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/sampler"
)

// An outcome is the label outcome, as a small number.
type outcome int

const (
	outcomeAllowed outcome = iota
	outcomeDenied
	outcomeShadowDenied
	outcomeSkipped
	outcomeError
	outcomes
)

var outcomeNames = [outcomes]string{"allowed", "denied", "shadow_denied", "skipped", "error"}

// sources is how many values the label source has.
const sources = algorithms.SourceOther + 1

// A watch counts and logs what becomes of a rule's checks. When rules are
// replaced, the rule of the same name continues it.
type watch struct {
	rule    string
	limit   algorithms.Limit
	quota   int64 // of the limit
	series  *series
	windows []*windowDenials // none unless the rule has several windows
	denials *sampler.Rate
}

// windowDenials counts the denials of a rule by one of its windows.
type windowDenials struct {
	name     string
	period   time.Duration
	calendar string
	denied   atomic.Uint64
	inShadow atomic.Uint64
}

// windowsOf returns the counts for the windows of a rule, which continue those of was.
// The last is for windows that only LimitsFor knows.
func windowsOf(r *Rule, was []*windowDenials) (all []*windowDenials) {
	several := false
	add := func(d *windowDenials) {
		sameName := func(other *windowDenials) bool { return other.name == d.name }
		if slices.ContainsFunc(all, sameName) {
			return
		}
		if at := slices.IndexFunc(was, sameName); at >= 0 {
			d = was[at]
		}
		all = append(all, d)
	}
	for _, set := range r.sets() {
		several = several || len(set.all) > 1
		for _, l := range set.all {
			add(&windowDenials{name: windowName(l), period: l.Period, calendar: l.Calendar})
		}
	}
	if !several {
		return nil
	}
	if r.LimitsFor != nil {
		add(&windowDenials{name: "other"})
	}
	return all
}

// countWindow counts a denial by a window. Neither a ban nor a check that nobody decided
// is one.
func (w *watch) countWindow(r *algorithms.Result) {
	if len(w.windows) == 0 || r.BannedFor > 0 && !r.BanBegan || r.Source == algorithms.SourceFailClosed {
		return
	}
	l, at := &r.Check.Limit, 0
	for at < len(w.windows)-1 && (w.windows[at].period != l.Period || w.windows[at].calendar != l.Calendar) {
		at++
	}
	if r.Check.Shadow {
		w.windows[at].inShadow.Add(1)
	} else {
		w.windows[at].denied.Add(1)
	}
}

// A series has the counts of a rule, as long as it keeps its name and algorithm.
type series struct {
	counts [outcomes][sources]atomic.Uint64
	near   atomic.Uint64

	unknownTiers atomic.Uint64
	bans, banned atomic.Uint64

	charged, refunded, debt atomic.Uint64 // units
	toppedUp, notToppedUp   atomic.Uint64 // by Add
	inFlight                atomic.Int64
}

// count counts the result that says what becomes of a request by the rule. windows are all
// results of the rule.
func (w *watch) count(r *algorithms.Result, windows []algorithms.Result, admitted bool) {
	from, s := min(r.Source, algorithms.SourceOther), w.series
	switch {
	case r.HasRoom:
		if r.Charged > 0 && !isHeld(r.Check.Limit) {
			s.charged.Add(uint64(r.Charged))
		}
		s.counts[outcomeAllowed][from].Add(1)
		if admitted && from != algorithms.SourceFailOpen && w.near(windows) {
			s.near.Add(1)
		}
	case r.Check.Shadow:
		s.counts[outcomeShadowDenied][from].Add(1)
		w.countWindow(r)
	default:
		w.countWindow(r)
		s.counts[outcomeDenied][from].Add(1)
		if r.BannedFor > 0 {
			s.banned.Add(1)
			if r.BanBegan {
				s.bans.Add(1)
			}
		}
	}
}

// beyond returns how many of the units that were charged last are beyond the limit.
func beyond(units, remaining int64) int64 { return max(min(units, -remaining), 0) }

// near reports whether at least 80 % of one of a key's limits is used.
func (w *watch) near(windows []algorithms.Result) bool {
	for i := range windows {
		r, quota := &windows[i], w.quota
		if r.Check.Limit.Rate != w.limit.Rate || r.Check.Limit.Burst != w.limit.Burst {
			quota = r.Check.Limit.Quota() // in a fallback, that of this process' share
		}
		if 5*r.Remaining <= quota {
			return true
		}
	}
	return false
}

// expected returns who may decide checks. SourceFailClosed stands for the fail mode of the
// rule, whatever it is.
func (l *limiter) expected() (from [sources]bool) {
	from[algorithms.SourceMemory], from[algorithms.SourceRedis] = l.memory != nil, l.redis != nil
	from[algorithms.SourceDenyCache], from[algorithms.SourceFallback], from[algorithms.SourceFailClosed] = l.guard != nil, l.guard != nil, l.guard != nil
	return from
}

// expected returns what the check of a rule may come to, by those who may decide it.
func (r *rule) expected(from [sources]bool) (e [outcomes][sources]bool) {
	c, shadow := &r.check, r.shadow
	from[algorithms.SourceFailOpen] = from[algorithms.SourceFailClosed] && c.Fail == failmode.Open
	from[algorithms.SourceFailClosed] = from[algorithms.SourceFailClosed] && c.Fail == failmode.Closed
	e[outcomeAllowed][algorithms.SourceSync] = c.Sync > 0 && from[algorithms.SourceDenyCache]
	for by := range sources {
		if from[by] {
			over, cached := by != algorithms.SourceFailOpen, by == algorithms.SourceDenyCache
			e[outcomeAllowed][by] = by != algorithms.SourceFailClosed && !cached
			e[outcomeDenied][by] = over && shadow < 1
			e[outcomeShadowDenied][by] = over && shadow > 0 && !cached
		}
	}
	e[outcomeSkipped][algorithms.SourceNone] = true
	e[outcomeError][algorithms.SourceNone] = true
	return e
}

// appendTo appends what was counted of the watch's rule. What can be expected is there
// from the start, at 0, so that rate() counts the first.
func (w *watch) appendTo(all []algorithms.Metric, r *rule, from [sources]bool) []algorithms.Metric {
	add := func(name string, value float64, labels ...string) {
		all = append(all, algorithms.Metric{Name: name, Value: value, Labels: append([]string{"rule", w.rule}, labels...)})
	}
	s, algorithm, expected := w.series, algorithmOf(w.limit).String(), r.expected(from)
	for o := range s.counts {
		for by := range sources {
			if n := s.counts[o][by].Load(); n > 0 || expected[o][by] {
				add("ratelimit_decisions_total", float64(n), "algorithm", algorithm, "outcome", outcomeNames[o], "source", by.String())
			}
		}
	}
	add("ratelimit_near_limit_total", float64(s.near.Load()))
	for _, d := range w.windows {
		if n := d.denied.Load(); n > 0 || r.shadow < 1 {
			add("ratelimit_window_denials_total", float64(n), "window", d.name, "outcome", outcomeNames[outcomeDenied])
		}
		if n := d.inShadow.Load(); n > 0 || r.shadow > 0 {
			add("ratelimit_window_denials_total", float64(n), "window", d.name, "outcome", outcomeNames[outcomeShadowDenied])
		}
	}
	if n := s.unknownTiers.Load(); n > 0 || r.tiers != nil {
		add("ratelimit_unknown_tiers_total", float64(n))
	}
	held := r.source.hasHeld()
	if n := s.inFlight.Load(); n > 0 || held {
		add("ratelimit_in_flight", float64(n))
	}
	if !held {
		add("ratelimit_units_total", float64(s.charged.Load()), "kind", "charged")
		add("ratelimit_units_total", float64(s.refunded.Load()), "kind", "refunded")
		add("ratelimit_units_total", float64(s.debt.Load()), "kind", "debt")
	}
	if granted, denied := s.toppedUp.Load(), s.notToppedUp.Load(); granted+denied > 0 {
		add("ratelimit_topups_total", float64(granted), "outcome", "allowed")
		add("ratelimit_topups_total", float64(denied), "outcome", "denied")
	}
	if n := s.banned.Load(); n > 0 || r.source.Ban != (Ban{}) {
		add("ratelimit_bans_total", float64(s.bans.Load()))
		add("ratelimit_banned_total", float64(n))
	}
	return all
}

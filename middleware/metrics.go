package middleware

import (
	"slices"
	"sync/atomic"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/layers"
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

// An origin is the label source, as a small number.
type origin int

const (
	originNone origin = iota // not decided
	originRedis
	originMemory
	originDenyCache
	originLease
	originFallback
	originFailOpen
	originFailClosed
	originOther // of a limiter that is not ours
	origins
)

var originNames = [origins]string{
	"none",
	string(algorithms.SourceRedis), string(algorithms.SourceMemory), string(algorithms.SourceDenyCache), string(algorithms.SourceLease), string(algorithms.SourceFallback),
	string(algorithms.SourceFailOpen), string(algorithms.SourceFailClosed),
	"other",
}

func originOf(s algorithms.Source) origin {
	switch s {
	case algorithms.SourceRedis:
		return originRedis
	case algorithms.SourceMemory:
		return originMemory
	case algorithms.SourceDenyCache:
		return originDenyCache
	case algorithms.SourceLease:
		return originLease
	case algorithms.SourceFallback:
		return originFallback
	case algorithms.SourceFailOpen:
		return originFailOpen
	case algorithms.SourceFailClosed:
		return originFailClosed
	case "":
		return originNone
	}
	return originOther
}

// A watch counts and logs what becomes of a rule's checks. When rules are
// replaced, the rule of the same name continues it.
type watch struct {
	rule    string
	limit   algorithms.Limit
	quota   int64 // of the limit
	series  *series
	denials *sampler.Rate
}

// A series has the counts of a rule, as long as it keeps its name and algorithm.
type series struct {
	counts [outcomes][origins]atomic.Uint64
	near   atomic.Uint64

	unknownTiers atomic.Uint64
	bans, banned atomic.Uint64

	charged, refunded, debt atomic.Uint64 // units
	toppedUp, notToppedUp   atomic.Uint64 // by Add
	inFlight                atomic.Int64
}

var unitKinds = [...]string{"charged", "refunded", "debt"}

// count counts the result that says what becomes of a request by the rule. windows are all
// results of the rule.
func (w *watch) count(r *algorithms.Result, windows []algorithms.Result, admitted bool) {
	from, s := originOf(r.Source), w.series
	switch {
	case r.HasRoom:
		s.counts[outcomeAllowed][from].Add(1)
		if r.Charged > 0 && !isHeld(r.Check.Limit) {
			s.charged.Add(uint64(r.Charged))
		}
		if admitted && from != originFailOpen && slices.ContainsFunc(windows, w.near) {
			s.near.Add(1)
		}
	case r.Check.Shadow:
		s.counts[outcomeShadowDenied][from].Add(1)
	default:
		s.counts[outcomeDenied][from].Add(1)
		if r.BannedFor > 0 {
			s.banned.Add(1)
			if r.BanBegan {
				s.bans.Add(1)
			}
		}
	}
}

// near reports whether at least 80 % of a key's limit is used.
func (w *watch) near(r algorithms.Result) bool {
	quota := w.quota
	if r.Check.Limit.Rate != w.limit.Rate || r.Check.Limit.Burst != w.limit.Burst {
		quota = r.Check.Limit.Quota() // in a fallback, that of this process' share
	}
	return 5*r.Remaining <= quota
}

// expectedOf returns who may decide the checks of a limiter. originFailClosed
// stands for the fail mode of the rule, whatever it is.
func expectedOf(limiter algorithms.Limiter) (from [origins]bool) {
	for l := range layers.Of(limiter) {
		switch l.(type) {
		case *algorithms.Memory:
			from[originMemory] = true
		case *algorithms.Redis:
			from[originRedis] = true
		case *failmode.Guard:
			from[originDenyCache], from[originFallback], from[originFailClosed] = true, true, true
		}
	}
	return from
}

// expected returns what the check of a rule may come to, by those who may decide it.
func (r *rule) expected(from [origins]bool) (e [outcomes][origins]bool) {
	c, shadow := &r.check, r.terms.shadow
	from[originFailOpen] = from[originFailClosed] && c.Fail == failmode.Open
	from[originFailClosed] = from[originFailClosed] && c.Fail == failmode.Closed
	e[outcomeAllowed][originLease] = c.Lease && shadow < 1 && from[originDenyCache]
	for o := range from {
		if from[o] {
			over, cached := origin(o) != originFailOpen, origin(o) == originDenyCache
			e[outcomeAllowed][o] = origin(o) != originFailClosed && !cached
			e[outcomeDenied][o] = over && shadow < 1
			e[outcomeShadowDenied][o] = over && shadow > 0 && !cached
		}
	}
	e[outcomeSkipped][originNone] = true
	e[outcomeError][originNone] = true
	return e
}

// appendTo appends what was counted of the watch's rule. What can be expected is there
// from the start, at 0, so that rate() counts the first.
func (w *watch) appendTo(all []algorithms.Metric, r *rule, from [origins]bool) []algorithms.Metric {
	s, algorithm, expected := w.series, algorithmOf(w.limit), r.expected(from)
	for o := range s.counts {
		for from := range s.counts[o] {
			if n := s.counts[o][from].Load(); n > 0 || expected[o][from] {
				all = append(all, algorithms.Metric{Name: "ratelimit_decisions_total", Value: float64(n),
					Labels: []string{"rule", w.rule, "algorithm", algorithm, "outcome", outcomeNames[o], "source", originNames[from]}})
			}
		}
	}
	ofRule := []string{"rule", w.rule}
	all = append(all, algorithms.Metric{Name: "ratelimit_near_limit_total", Labels: ofRule, Value: float64(s.near.Load())})
	if n := s.unknownTiers.Load(); n > 0 || r.terms.tiers != nil {
		all = append(all, algorithms.Metric{Name: "ratelimit_unknown_tiers_total", Labels: ofRule, Value: float64(n)})
	}
	if n := s.inFlight.Load(); n > 0 || r.source.hasHeld() {
		all = append(all, algorithms.Metric{Name: "ratelimit_in_flight", Labels: ofRule, Value: float64(n)})
	}
	if !r.source.hasHeld() {
		for i, n := range []*atomic.Uint64{&s.charged, &s.refunded, &s.debt} {
			all = append(all, algorithms.Metric{Name: "ratelimit_units_total", Value: float64(n.Load()), Labels: []string{"rule", w.rule, "kind", unitKinds[i]}})
		}
	}
	if granted, denied := s.toppedUp.Load(), s.notToppedUp.Load(); granted+denied > 0 {
		all = append(all, algorithms.Metric{Name: "ratelimit_topups_total", Value: float64(granted), Labels: []string{"rule", w.rule, "outcome", "allowed"}},
			algorithms.Metric{Name: "ratelimit_topups_total", Value: float64(denied), Labels: []string{"rule", w.rule, "outcome", "denied"}})
	}
	if n := s.banned.Load(); n > 0 || r.check.Ban != (algorithms.Ban{}) { // by hand, any rule's keys can be
		all = append(all, algorithms.Metric{Name: "ratelimit_bans_total", Labels: ofRule, Value: float64(s.bans.Load())},
			algorithms.Metric{Name: "ratelimit_banned_total", Labels: ofRule, Value: float64(n)})
	}
	return all
}

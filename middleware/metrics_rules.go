package middleware

import (
	"sync/atomic"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
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

type seriesKey struct{ rule, algorithm string }

// A series has the counts of a rule.
type series struct {
	counts [outcomes][origins]atomic.Uint64
	near   atomic.Uint64

	unknownTiers atomic.Uint64
	bans, banned atomic.Uint64

	// Guarded by the metrics' lock:
	users    int                     // middlewares that have the rule
	expected [outcomes][origins]bool // emitted while 0, so that rate() sees the first
	tiers    bool                    // a rule has tiers
	canBan   bool                    // a rule has a ban
}

// add does nothing on nil, for middlewares without a registry.
func (s *series) add(o outcome, from origin) {
	if s != nil {
		s.counts[o][from].Add(1)
	}
}

// count counts a result of the rule, which has a series.
func (w *watch) count(r *algorithms.Result, admitted bool) {
	from, s := originOf(r.Source), w.series
	switch {
	case r.Allowed:
		s.counts[outcomeAllowed][from].Add(1)
		if admitted && from != originFailOpen && w.near(r) {
			s.near.Add(1)
		}
	case r.Check.Shadow:
		s.counts[outcomeShadowDenied][from].Add(1)
	default:
		s.counts[outcomeDenied][from].Add(1)
		if r.Banned {
			s.banned.Add(1)
			if r.BanBegan {
				s.bans.Add(1)
			}
		}
	}
}

// near reports whether at least 80 % of a key's limit is used.
func (w *watch) near(r *algorithms.Result) bool {
	quota := w.quota
	if r.Check.Limit.Rate != w.limit.Rate || r.Check.Limit.Burst != w.limit.Burst {
		quota = r.Check.Limit.Quota() // in a fallback, that of this process' share
	}
	return 5*r.Remaining <= quota
}

// expectedOf returns who may decide the checks of a limiter. originFailClosed
// stands for the fail mode of the rule, whatever it is.
func expectedOf(limiter algorithms.Limiter) (from [origins]bool) {
	for l := range layers(limiter) {
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

// expect marks what the check of a rule may come to. The caller holds the
// metrics' lock.
func (s *series) expect(from [origins]bool, r *rule) {
	c, shadow := &r.check, r.terms.shadow
	s.tiers = s.tiers || r.terms.tiers != nil
	s.canBan = s.canBan || c.Ban != (algorithms.Ban{})
	from[originFailOpen] = from[originFailClosed] && c.Fail == failmode.Open
	from[originFailClosed] = from[originFailClosed] && c.Fail == failmode.Closed
	if c.Lease && shadow < 1 && from[originDenyCache] {
		s.expected[outcomeAllowed][originLease] = true
	}
	for o := range from {
		if from[o] {
			over, cached := origin(o) != originFailOpen, origin(o) == originDenyCache
			s.expected[outcomeAllowed][o] = s.expected[outcomeAllowed][o] || origin(o) != originFailClosed && !cached
			s.expected[outcomeDenied][o] = s.expected[outcomeDenied][o] || over && shadow < 1
			s.expected[outcomeShadowDenied][o] = s.expected[outcomeShadowDenied][o] || over && shadow > 0 && !cached
		}
	}
	s.expected[outcomeSkipped][originNone] = true
	s.expected[outcomeError][originNone] = true
}

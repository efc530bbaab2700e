package middleware

import (
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/hint"
	"github.com/seed75154129/ratelimit/internal/pattern"
	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/keyfunc"
)

const (
	// watched is how many requests are watched for mistakes in the configuration.
	watched = 1000
	// enough is how many requests without a key are no accident.
	enough = 20
	// fewRoutes is how many requests without a route are no accident.
	fewRoutes = 10
	// nearlyAll is how many of the watched keys differ only if a client chooses them.
	nearlyAll = 900
)

// hints watches the first requests that a set of rules gets, and logs probable mistakes
// in how the middleware was set up, each once.
type hints struct {
	logger    *slog.Logger
	seen      atomic.Int64 // requests that were not skipped
	skipped   atomic.Int64 // by Skip or SkipFor, before the first that was not
	byAddress atomic.Bool  // a request was limited by its address
	said      sync.Map     // by meaning
	use       []ruleUse
}

// A ruleUse counts what became of a rule's keys.
type ruleUse struct {
	matched, keyed, noKey, noRoute, skipped atomic.Int64

	exempt   atomic.Int64 // unlimited
	tiered   atomic.Int64 // with a tier that the rule has
	noTier   atomic.Pointer[string]
	keys     sync.Map // hashes of those that a function of the program returned
	distinct atomic.Int64
}

func newHints(logger *slog.Logger, rules int) *hints {
	return &hints{logger: logger, use: make([]ruleUse, rules)}
}

func (h *hints) say(text string) { h.sayOnce(text, text) }

// sayOnce logs one of several texts with the same meaning.
func (h *hints) sayOnce(meaning, text string) {
	if _, again := h.said.LoadOrStore(meaning, true); !again {
		h.logger.Warn("ratelimit: " + text)
	}
}

// watching reports whether requests are still watched.
func (h *hints) watching() bool { return h.seen.Load() < watched }

// skip counts a request that Config.Skip or Config.SkipFor exempts.
func (h *hints) skip() {
	if h.seen.Load() == 0 && h.skipped.Load() < watched && h.skipped.Add(1) == watched {
		h.say(fmt.Sprintf("all of the first %d requests were skipped, so none was limited; if they were not just health checks, "+
			"look at the patterns of Config.Skip, and at what Config.SkipFor returns", watched))
	}
}

// A seenKey is what became of a rule's key in one request.
type seenKey struct {
	matched  bool // the rule matches the request
	key      string
	err      error
	tier     string // that TierFor returned, if the rule has Tiers; "" if it was not needed
	hasTier  bool   // the rule has that tier
	exempt   bool   // the request is unlimited
	enforced bool   // the rule has a check, which is not in shadow
}

// decided watches a request that was decided; seen is parallel to rules. Hints never
// change a request, so that keys and handlers see all requests alike.
func (h *hints) decided(r *http.Request, rules []rule, seen []seenKey) {
	var by limitedBy
	for i := range seen {
		rule, s, use := &rules[i], &seen[i], &h.use[i]
		if !s.matched {
			continue
		}
		use.matched.Add(1)
		name := rule.check.Rule
		switch {
		case s.err == nil:
			use.keyed.Add(1)
			if rule.traits.Opaque {
				if _, again := use.keys.LoadOrStore(maphash.String(keySeed, s.key), true); !again {
					use.distinct.Add(1)
				}
			}
			h.watchAddress(r, name, s.key)
			if s.enforced && rule.traits.Chosen != "" {
				by.chosen = rule
			} else if s.enforced && (rule.traits.Address || isAddress(s.key)) {
				by.address = true
			}
		case errors.Is(s.err, hint.ErrNoRoute):
			if use.noRoute.Add(1) == fewRoutes && use.keyed.Load() == 0 {
				h.say(fmt.Sprintf("rule %q: no request has a route yet when its key is taken, so all requests share one count; "+
					"mount the middleware on the route (net/http: mux.Handle(pattern, limit.Handler(h)); chi: router.With(limit.Handler).Get(...), not router.Use) "+
					"or ask the router (net/http: keyfunc.Mux(mux); chi: keyfunc.Route with Find of the router that uses the middleware, as in ExampleRoute_chi)", name))
			}
		case errors.Is(s.err, keyfunc.ErrNoKey):
			use.noKey.Add(1)
			by.address = by.address || s.enforced && rule.traits.Address
		case errors.Is(s.err, keyfunc.ErrSkip):
			use.skipped.Add(1)
		}
		switch {
		case s.exempt:
			use.exempt.Add(1)
		case s.hasTier:
			use.tiered.Add(1)
		case s.tier != "":
			use.noTier.CompareAndSwap(nil, &s.tier)
		}
	}
	h.done(rules, by)
}

var keySeed = maphash.MakeSeed()

// watchAddress looks for headers that name another client, in a request that is counted
// by the address of its connection.
func (h *hints) watchAddress(r *http.Request, name, key string) {
	for _, header := range [...]string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "True-Client-Ip"} {
		value := r.Header.Get(header)
		if value == "" {
			continue
		}
		if peer, err := keyfunc.IP.Resolve(r); err != nil || peer != key {
			return
		}
		// net/http never leaves out the port.
		first, _, _ := strings.Cut(value, ",")
		if first == r.RemoteAddr {
			h.say(fmt.Sprintf("rule %q: middleware in front, such as chi's RealIP, copies %s into RemoteAddr, and any client can make it up; "+
				"remove it, and use keyfunc.Proxies with the networks of your proxies", name, header))
			return
		}
		if peer, err := netip.ParseAddrPort(r.RemoteAddr); err == nil && strings.TrimSpace(first) == peer.Addr().Unmap().String() {
			continue // it names nobody else, as behind a proxy on the client's machine
		}
		if header == "X-Forwarded-For" || header == "Forwarded" {
			// Who sent it is not said: it may be a client that wants to be trusted.
			h.sayOnce(name+" "+header, fmt.Sprintf("rule %q: requests with %s come from an address that is not trusted, and are counted by that address; "+
				"if your proxies send the header, list their networks in keyfunc.Proxies; if you have no proxies, clients made it up, and nothing is wrong", name, header))
		}
	}
}

// limitedBy says by which keys a request is limited.
type limitedBy struct {
	address bool
	chosen  *rule // a rule whose key a client can make up; nil if there is none
}

// done counts a request. After the last watched one, it looks at the rules' counts.
func (h *hints) done(rules []rule, by limitedBy) {
	switch {
	case by.address:
		h.byAddress.Store(true)
	case by.chosen != nil:
		chosen, proxy := by.chosen.traits.Chosen, ""
		if chosen == "a header" {
			proxy = "; if your proxy sets the header, write keyfunc.Proxies.UserID instead"
		}
		h.say(fmt.Sprintf("rule %q is keyed by %s, of which a client can make up any number, and no rule limits its address; "+
			"add one with Key: keyfunc.IP%s", by.chosen.check.Rule, chosen, proxy))
	}
	if h.seen.Add(1) != watched {
		return
	}
	for i := range rules {
		name, use := rules[i].check.Rule, &h.use[i]
		switch matched := use.matched.Load(); {
		case rules[i].source.Disabled:
		case matched == 0:
			h.say(fmt.Sprintf("rule %q matched none of the first %d requests; look at its Match", name, watched))
		case use.exempt.Load() == matched:
			h.say(fmt.Sprintf("rule %q: all of the first %d requests were Unlimited by LimitsFor or Tiers; look at what LimitsFor and Config.TierFor return", name, watched))
		case use.noTier.Load() != nil && use.tiered.Load() == 0:
			h.say(fmt.Sprintf("rule %q: Config.TierFor returned none of its Tiers for the first %d requests, but %.32q; "+
				"names are compared exactly, so write them as Tiers does: %q", name, watched, *use.noTier.Load(), slices.Sorted(maps.Keys(rules[i].source.Tiers))))
		case use.distinct.Load() > nearlyAll && !h.byAddress.Load():
			h.say(fmt.Sprintf("rule %q: the first %d requests had %d keys, and no rule limits their addresses, so a client that can change its key has no limit; "+
				"if the Key returns RemoteAddr with its port or the path, write keyfunc.IP or keyfunc.Route, or else add a rule with Key: keyfunc.IP",
				name, watched, use.distinct.Load()))
		case use.skipped.Load() == matched:
			mend := "look at its Key"
			if rules[i].traits.Route {
				mend = "no route is known yet, or another router has it; see keyfunc.Route"
			}
			h.say(fmt.Sprintf("rule %q was skipped on all of the first %d requests: its Key found none; %s", name, watched, mend))
		case use.keyed.Load() == 0 && use.noKey.Load() >= enough:
			h.say(fmt.Sprintf("rule %q: none of the first %d requests had a key, so all of them share one count; look at its Key, "+
				"or wrap it with keyfunc.Required or keyfunc.Optional", name, watched))
		}
		use.keys.Clear()
	}
}

func isAddress(key string) bool {
	if _, err := netip.ParsePrefix(key); err == nil {
		return true
	}
	_, err := netip.ParseAddr(key)
	return err == nil || key == "unix"
}

const (
	fewUnits = 10             // fewer are better counted one by one
	longBan  = 365 * day      // longer ones are mostly a unit too large
	longFill = 30 * day       // to refill a bucket
	day      = 24 * time.Hour // without leap seconds
)

// oddities returns texts about rules that are valid but probably mistakes.
func oddities(rules []rule, tierFor bool) (odd []string) {
	off := 0
	for i := range rules {
		r := &rules[i]
		if r.source.Disabled || r.check.Shadow {
			off++
		}
		if r.source.Disabled {
			continue
		}
		for _, text := range r.oddities(tierFor) {
			odd = append(odd, fmt.Sprintf("rule %q%s", r.check.Rule, text))
		}
	}
	if off == len(rules) {
		odd = append(odd, "every rule is disabled or in shadow for all keys, so no request is limited; take Disabled or Shadow away from those that are to limit")
	}
	return odd
}

func (r *rule) oddities(tierFor bool) (odd []string) {
	say := func(format string, args ...any) { odd = append(odd, fmt.Sprintf(format, args...)) }
	if r.terms.tiers != nil && r.source.TierBy == nil && !tierFor {
		say(" has Tiers, and Config.TierFor is nil: every request has the rule's own limit")
	}
	if r.readsBody && len(r.patterns) > 0 && !slices.ContainsFunc(r.patterns, func(p pattern.Pattern) bool { return p.HasBodies() }) {
		say(": its Key reads the body, and requests that its Match takes mostly have none; add the method that sends one, such as POST")
	}
	for _, l := range r.source.limits() {
		if l.override > 0 {
			break // they come last, and are one client's
		}
		bucket := !isWindow(l.Limit)
		if l.Algorithm == "" && !bucket && !l.Soft && l.Rate < fewUnits && l.Period >= time.Minute {
			say(": %s is a sliding_window, which may deny for up to %s; for so few units write Algorithm: algorithms.SlidingLog, "+
				"in text %q, or name the sliding_window to keep it", l, l.Period+l.Period/time.Duration(l.Rate), l.Limit.String()+" sliding_log")
		}
		if l.Soft && algorithmOf(l.Limit) == string(algorithms.SlidingWindow) && l.Rate > step.MaxSquared/10 {
			say(": %s counts no further than %d units, which may be too few for what is over it; write Algorithm: algorithms.FixedWindow or a Calendar", l, step.MaxSquared)
		}
		if quota := l.Quota(); bucket && quota/l.Rate > 1000 && refill(l.Limit) > float64(longFill) {
			say(": %s admits %d units at once, and needs more than %d days to refill; write a smaller burst or a higher rate", l, quota, longFill/day)
		}
	}
	if r.source.MaxReserve > 0 && r.source.CostFor == nil {
		say(" has MaxReserve, which bounds the costs that CostFor returns, and no CostFor; set CostFor, or delete MaxReserve")
	}
	if r.source.Enforce == 1 {
		say(": with Enforce 1 it is enforced for all keys, as without Shadow; delete both")
	}
	odd = append(odd, r.source.oddBan()...)
	odd = append(odd, r.oddOverrides()...)
	switch on := r.source.ChargeOn; {
	case len(on) == 1 && on[0] == http.StatusTooManyRequests:
		say(": ChargeOn has only 429, and the middleware's own denials are never charged; list what the handler answers, such as 401 for failed logins")
	case len(on) == 1 && on[0] == http.StatusOK:
		say(": ChargeOn has only 200, so every success is charged, and no failure; for failed logins write 401")
	}
	return odd
}

func (r *Rule) oddBan() (odd []string) {
	if r.Ban == (algorithms.Ban{}) {
		return nil
	}
	if r.Ban.For > longBan {
		odd = append(odd, fmt.Sprintf(": it bans for %d days, so whoever has the address next is denied, too; write less than a year", r.Ban.For/day))
	}
	for by, limits := range r.sets() {
		shortest, least := algorithms.Limit{}, longBan // until a denied client has room
		for _, l := range limits {
			free := l.Period
			if !isWindow(l) {
				free /= time.Duration(l.Rate)
			}
			if l.Calendar == "" && !l.Soft && free < least {
				shortest, least = l, free
			}
		}
		if r.Ban.For < least && least < longBan {
			odd = append(odd, fmt.Sprintf(": it bans for %s, and %s denies for up to %s anyway; write a longer ban", r.Ban.For, ruleLimit{by, shortest}, least))
		}
	}
	return odd
}

// oddOverrides are hints about overrides that are valid but probably mistakes.
func (r *rule) oddOverrides() (odd []string) {
	if chosen := r.traits.Chosen; len(r.source.Overrides) > 0 && chosen != "" && chosen != "an API key" {
		odd = append(odd, fmt.Sprintf(": its Key is %s, so any client can have the limits of its Overrides; "+
			"use a Key that the program or a proxy has verified, such as keyfunc.Context or keyfunc.Proxies.UserID", chosen))
	}
	for i := range r.source.Overrides {
		if o := &r.source.Overrides[i]; o.ended() {
			odd = append(odd, fmt.Sprintf(": %s ended at %s; remove it", nameOfOverride(i, o), o.Until.UTC().Format(time.RFC3339)))
		}
	}
	return odd
}

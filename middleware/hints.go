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
	"github.com/seed75154129/ratelimit/internal/onstatus"
	"github.com/seed75154129/ratelimit/internal/pattern"
	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/internal/view"
	"github.com/seed75154129/ratelimit/keyfunc"
)

const (
	// watched is how many requests are watched for mistakes in the configuration, and how
	// many responses of each rule with ChargeOn.
	watched = 1000
	// enough is how many requests are no accident.
	enough = 20
	// fewRoutes is how many requests without a route are no accident.
	fewRoutes = 10
	// nearlyAll is how many of the watched requests leave few others.
	nearlyAll = 900
	// fewTiers is how many unknown tiers of a rule are named.
	fewTiers = 8
)

// hints watches the first requests that a set of rules gets, and logs probable mistakes
// in how the middleware was set up, each once.
type hints struct {
	logger    *slog.Logger
	all       atomic.Int64 // requests
	skipped   atomic.Int64 // of all, by Skip or SkipFor
	seen      atomic.Int64 // requests that were not skipped
	uncounted atomic.Int64 // of seen: the Keys of all rules that match skipped them
	byAddress atomic.Bool  // a request was limited by its address
	local     atomic.Bool  // a request came from this machine, as load tests do
	said      sync.Map     // by meaning
	listening atomic.Int64 // rules with ChargeOn whose responses are watched
	use       []ruleUse
}

// A ruleUse counts what became of a rule's keys and responses.
type ruleUse struct {
	matched, keyed, noKey, noRoute, skipped atomic.Int64

	exempt   atomic.Int64 // unlimited
	madeUp   atomic.Int64 // keys that the client may have made up
	reason   atomic.Pointer[error]
	keys     sync.Map // hashes of them
	distinct atomic.Int64
	limits   sync.Map // that LimitsFor returned, by what they count by
	varied   atomic.Int64

	unknown atomic.Pointer[[]string] // tiers that the rule has not

	answers, charged, unwritten atomic.Int64 // responses, those that stay charged, and those without a status
	statuses                    sync.Map
}

func newHints(logger *slog.Logger, rules int) *hints {
	return &hints{logger: logger, use: make([]ruleUse, rules)}
}

func (h *hints) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	h.sayOnce(text, text)
}

// sayOnce logs one of several texts with the same meaning.
func (h *hints) sayOnce(meaning, text string) {
	if _, again := h.said.LoadOrStore(meaning, true); !again {
		h.logger.Warn("ratelimit: " + text)
	}
}

// watching reports whether requests are still watched.
func (h *hints) watching() bool { return h.seen.Load() < watched }

// arrived counts a request, which Config.Skip or Config.SkipFor may exempt.
func (h *hints) arrived(skipped bool) {
	if h.all.Load() >= watched {
		return
	}
	if skipped {
		h.skipped.Add(1)
	}
	if n := h.skipped.Load(); h.all.Add(1) == watched && n > nearlyAll {
		h.say("%d of the first %d requests were skipped, so none of them was limited; if they were not just health checks, "+
			"look at the patterns of Config.Skip, and at what Config.SkipFor returns", n, watched)
	}
}

// A seenKey is what became of a rule's key in one request.
type seenKey struct {
	matched  bool // the rule matches the request
	key      string
	err      error
	exempt   bool             // the request is unlimited
	enforced bool             // the rule has a check, which is not in shadow
	limit    algorithms.Limit // of the check
}

// decided watches a request that was decided; seen is parallel to rules. Hints never
// change a request, so that keys and handlers see all requests alike.
func (h *hints) decided(r *http.Request, rules []rule, seen []seenKey) {
	var by limitedBy
	skipped, counted := false, false
	if strings.HasPrefix(r.RemoteAddr, "127.") || strings.HasPrefix(r.RemoteAddr, "[::1]") {
		h.local.Store(true)
	}
	for i := range seen {
		rule, s, use := &rules[i], &seen[i], &h.use[i]
		if !s.matched {
			continue
		}
		use.matched.Add(1)
		name := rule.check.Rule
		counted = counted || !errors.Is(s.err, keyfunc.ErrSkip)
		switch {
		case s.err == nil:
			use.keyed.Add(1)
			count(&use.keys, &use.distinct, maphash.String(keySeed, s.key))
			forged := rule.traits.Opaque && madeUp(r, s.key)
			if forged {
				use.madeUp.Add(1)
			}
			h.watchAddress(r, name, s.key)
			if s.enforced && rule.traits.Chosen != "" {
				by.chosen = rule
			} else if s.enforced && !forged && (rule.isByAddress() || isAddress(s.key)) {
				by.address = true
			}
		case errors.Is(s.err, hint.ErrNoRoute):
			if use.noRoute.Add(1) == fewRoutes && use.keyed.Load() == 0 {
				h.say("rule %q: no request has a route yet when its key is taken, so all requests share one count; "+
					"mount the middleware on the route (net/http: mux.Handle(pattern, limit.Handler(h)); chi: router.With(limit.Handler).Get(...), not router.Use) "+
					"or ask the router (net/http: keyfunc.Mux(mux); chi: keyfunc.Route with Find of the router that uses the middleware, as in ExampleRoute_chi)", name)
			}
		case errors.Is(s.err, keyfunc.ErrNoKey):
			err := s.err
			use.reason.CompareAndSwap(nil, &err)
			use.noKey.Add(1)
			by.address = by.address || s.enforced && rule.isByAddress()
		case errors.Is(s.err, keyfunc.ErrSkip):
			use.skipped.Add(1)
			skipped = true
		}
		switch {
		case s.exempt:
			use.exempt.Add(1)
		case s.limit != (algorithms.Limit{}) && rule.source.LimitsFor != nil:
			count(&use.limits, &use.varied, lent.Counting(s.limit))
		}
	}
	if skipped && !counted {
		h.uncounted.Add(1)
	}
	h.done(rules, by)
}

// count counts values that differ.
func count(values *sync.Map, n *atomic.Int64, value any) {
	if _, again := values.LoadOrStore(value, true); !again {
		n.Add(1)
	}
}

var keySeed = maphash.MakeSeed()

// isByAddress reports whether a client needs another address for another key.
func (r *rule) isByAddress() bool {
	return r.traits.Address && !r.traits.Opaque && r.traits.Chosen == ""
}

// forwarding are headers that name another client.
var forwarding = [...]string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "True-Client-Ip"}

// madeUp reports whether a function of the program may have taken a key from a header that
// any client can make up. A proxy of the program's own network may have replaced the header,
// or have appended to it.
func madeUp(r *http.Request, key string) bool {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr)
	from := peer.Addr().Unmap()
	for _, header := range forwarding {
		names := strings.Split(r.Header.Get(header), ",")
		if !from.IsValid() || from.IsPrivate() || from.IsLoopback() {
			names = names[:min(1, len(names)-1)]
		}
		for _, name := range names {
			name = strings.TrimSpace(name)
			addr, err := netip.ParseAddr(name)
			if name != "" && addr.Unmap() != from && (key == name || key == r.Header.Get(header) || err == nil && strings.Contains(key, name)) {
				return true
			}
		}
	}
	return false
}

// watchAddress looks for headers that name another client, in a request that is counted
// by the address of its connection.
func (h *hints) watchAddress(r *http.Request, name, key string) {
	for _, header := range forwarding {
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
			h.say("rule %q: RemoteAddr is what %s says. If middleware in front, such as chi's RealIP, copies it, any client can choose its address: "+
				"remove it, and use keyfunc.Proxies with the networks of your proxies. If there is none, the client made it up, and nothing is wrong", name, header)
			return
		}
		if peer, err := netip.ParseAddrPort(r.RemoteAddr); err == nil && strings.TrimSpace(first) == peer.Addr().Unmap().String() {
			continue // it names nobody else, as behind a proxy on the client's machine
		}
		if header == "X-Forwarded-For" || header == "Forwarded" {
			// Who sent it is not said: it may be a client that wants to be trusted.
			h.sayOnce(name+" "+header, fmt.Sprintf("rule %q: requests with %s come from an address that is not trusted, and are counted by that address; "+
				"if your proxies send the header, list their networks in keyfunc.Proxies, which reads X-Forwarded-For; if you have no proxies, clients made it up, and nothing is wrong", name, header))
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
	h.arrived(false)
	switch {
	case by.address:
		h.byAddress.Store(true)
	case by.chosen != nil:
		chosen, proxy := by.chosen.traits.Chosen, ""
		if chosen == "a header" {
			proxy = "; if your proxy sets the header, write keyfunc.Proxies.UserID instead"
		}
		h.say("rule %q is keyed by %s, of which a client can make up any number, and no rule limits its address; "+
			"add one with Key: keyfunc.IP%s", by.chosen.check.Rule, chosen, proxy)
	}
	if h.seen.Add(1) != watched {
		return
	}
	for i := range rules {
		h.sum(&rules[i], &h.use[i])
		h.use[i].keys.Clear()
		h.use[i].limits.Clear()
	}
	if n := h.uncounted.Load(); n >= enough && n < watched {
		h.say("%d of the first %d requests were counted by no rule, because Keys such as keyfunc.Optional skipped them; add a rule with Key: keyfunc.IP, "+
			"or take Optional away", n, watched)
	}
}

// sum says what is odd in the sum of a rule's keys.
func (h *hints) sum(r *rule, use *ruleUse) {
	name, matched := r.check.Rule, use.matched.Load()
	switch {
	case matched == 0:
		h.say("rule %q matched none of the first %d requests; look at its Match", name, watched)
	case use.exempt.Load() == matched:
		h.say("rule %q: all of the first %d requests were Unlimited by LimitsFor or Tiers; look at what LimitsFor and Config.TierFor return", name, watched)
	case use.madeUp.Load() >= enough:
		h.say("rule %q: %d of the first %d keys are what X-Forwarded-For or a header like it says, which any client can make up to have a new limit; "+
			"use keyfunc.Proxies with the networks of your proxies. If the Key looks at who sent the header, clients made it look so, and nothing is wrong", name, use.madeUp.Load(), watched)
	case use.varied.Load() > watched/10:
		h.say("rule %q: LimitsFor returned limits of %d different periods or algorithms for the first %d requests, and each is a count of its own; "+
			"vary only the rate", name, use.varied.Load(), watched)
	case r.traits.Opaque && use.distinct.Load() > nearlyAll && !h.byAddress.Load():
		h.say("rule %q: the first %d requests had %d keys, and no rule limits their addresses, so a client that can change its key has no limit; "+
			"if the Key returns RemoteAddr with its port or the path, write keyfunc.IP or keyfunc.Route, or else add a rule with Key: keyfunc.IP",
			name, watched, use.distinct.Load())
	case use.skipped.Load() == matched:
		mend := "look at its Key"
		if r.traits.Route {
			mend = "no route is known yet, or another router has it; see keyfunc.Route"
		}
		h.say("rule %q was skipped on all of the first %d requests: its Key found none; %s", name, watched, mend)
	case use.noKey.Load() >= enough:
		why, mend := "", "count them by address (keyfunc.First(key, keyfunc.IP)), refuse them (keyfunc.Required) or, if another rule counts them, skip them (keyfunc.Optional)"
		if reason, ok := strings.CutPrefix((*use.reason.Load()).Error(), keyfunc.ErrNoKey.Error()+": "); ok {
			why = fmt.Sprintf(" (%.128q)", reason)
		}
		if r.isByAddress() {
			mend = "look at what your proxy writes, and at keyfunc.Proxies"
		}
		h.say("rule %q: %d of the first %d requests had no key%s, and share one count, which one client can use up for all; %s", name, use.noKey.Load(), watched, why, mend)
	case use.distinct.Load() == 1 && r.traits.Chosen == "" && use.keyed.Load() > nearlyAll && !h.local.Load() && keyfunc.Describe(r.source.Key).Values() > 0:
		h.say("rule %q: all of the first %d requests had one key; if they came from several clients, the Key does not tell them apart: "+
			"a proxy may hide their addresses (see keyfunc.Proxies), or a function may return the same for all", name, watched)
	}
}

// tierIsUnknown says that Config.TierFor returned a tier that a rule has not, once for each
// of the first few names.
func (h *hints) tierIsUnknown(i int, r *rule, tier string) {
	use := &h.use[i]
	for {
		var names []string
		old := use.unknown.Load()
		if old != nil {
			names = *old
		}
		if len(names) == fewTiers || slices.Contains(names, tier) {
			return
		}
		if names = append(slices.Clip(names), tier); use.unknown.CompareAndSwap(old, &names) {
			h.say("rule %q: Config.TierFor returned %.32q, which is none of its Tiers, so the rule's own limit applies; names are compared exactly: %q",
				r.check.Rule, tier, slices.Sorted(maps.Keys(r.source.Tiers)))
			return
		}
	}
}

// answered watches a response to a request that a rule with ChargeOn has charged. The status
// is 0 if the handler wrote none.
func (h *hints) answered(i int, r *rule, status int) {
	use := &h.use[i]
	if use.answers.Load() >= watched {
		return
	}
	switch {
	case status == 0:
		use.unwritten.Add(1)
	case slices.Contains(r.source.ChargeOn, status):
		use.charged.Add(1)
	}
	use.statuses.Store(status, true)
	if use.answers.Add(1) != watched {
		return
	}
	h.listening.Add(-1)
	var sent []int
	use.statuses.Range(func(status, _ any) bool { sent = append(sent, status.(int)); return true })
	all := strings.Trim(fmt.Sprint(view.StatusesOf(sent)), "[]")
	switch name, charged := r.check.Rule, use.charged.Load(); {
	case use.unwritten.Load() >= enough:
		h.say("rule %q: %d of %d responses had no status, since their handlers wrote nothing, and stay charged; call w.WriteHeader", name, use.unwritten.Load(), watched)
	case charged == 0:
		h.say("rule %q: none of %d responses had a status of ChargeOn (they had %s), so nothing was charged; list what the handler answers", name, watched, all)
	case charged >= watched:
		h.say("rule %q: all of %d responses had a status of ChargeOn (%s), so nothing was refunded; list only what is to count", name, watched, all)
	}
}

// watchAnswer calls a function of the program that answers a request which does not pass.
func (h *hints) watchAnswer(name string, w http.ResponseWriter, answer func(http.ResponseWriter)) {
	if !h.watching() {
		answer(w)
		return
	}
	status := http.StatusOK
	answer(onstatus.Wrap(w, func(written int) { status = written }))
	if 200 <= status && status < 300 {
		h.say("Config.%s answered with status %d, so clients and caches take it for a success; call w.WriteHeader before the body, with Cache-Control: no-store", name, status)
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
	fewUnits    = 10             // fewer are better counted one by one
	manyDenials = 10_000         // more lead to no ban
	longBan     = 365 * day      // longer ones are mostly a unit too large
	longFill    = 30 * day       // to refill a bucket
	day         = 24 * time.Hour // without leap seconds
)

// oddities returns texts about rules that are valid but probably mistakes.
func oddities(rules []rule, config *Config) (odd []string) {
	shadows, anyMethod := 0, false
	for i := range rules {
		r := &rules[i]
		if r.check.Shadow {
			shadows++
		}
		anyMethod = anyMethod || len(r.source.Match) == 0 || slices.ContainsFunc(r.source.Match, func(text string) bool { return strings.HasPrefix(text, "/") })
		for _, text := range r.oddities(config.TierFor != nil) {
			odd = append(odd, fmt.Sprintf("rule %q%s", r.check.Rule, text))
		}
	}
	for _, text := range config.Skip {
		if anyMethod && strings.HasPrefix(text, http.MethodOptions) {
			odd = append(odd, fmt.Sprintf("Config.Skip has %q, and handlers without a method serve OPTIONS requests like all others, so a client that sends them has no limit; "+
				"put the CORS middleware in front of the limiter, and take the pattern out", text))
		}
	}
	if shadows == len(rules) {
		odd = append(odd, "every rule is in shadow for all keys, so no request is limited; take Shadow away from those that are to limit")
	}
	return odd
}

func (r *rule) oddities(tierFor bool) (odd []string) {
	say := func(format string, args ...any) { odd = append(odd, fmt.Sprintf(format, args...)) }
	if r.terms.tiers != nil && !tierFor {
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
	if r.source.Enforce > 0 && r.source.Enforce < 1 && keyfunc.Describe(r.source.Key).Values() == 0 {
		say(": all clients have one key, so Enforce enforces it for all or for none; write a key that tells clients apart")
	}
	if r.source.Enforce == 1 {
		say(": with Enforce 1 it is enforced for all keys, as without Shadow; delete both")
	}
	odd = append(odd, r.source.oddBan()...)
	if chosen := r.traits.Chosen; r.source.Ban.For > time.Hour && chosen != "" && chosen != "an API key" && !r.traits.Address {
		say(": its Key is %s, so anybody can have the keys of others banned for %s; write a shorter ban", chosen, view.Span(r.source.Ban.For))
	}
	odd = append(odd, r.oddOverrides()...)
	if most := r.source.largestCost(); r.source.ChargeOn != nil && r.check.Limit.Quota()/most < 2 {
		say(": until its response is written, a request takes %d of the limit %s, so no other one of its key passes at the same time; raise the limit", most, r.check.Limit)
	}
	return odd
}

func (r *Rule) oddBan() (odd []string) {
	if r.Ban == (algorithms.Ban{}) {
		return nil
	}
	if r.Ban.After > manyDenials {
		odd = append(odd, fmt.Sprintf(": it bans after %d denials, which hardly any client reaches; write fewer", r.Ban.After))
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

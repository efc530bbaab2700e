package middleware

import (
	"cmp"
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

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/hint"
	"github.com/seed75154129/ratelimit/internal/naming"
	"github.com/seed75154129/ratelimit/internal/onstatus"
	"github.com/seed75154129/ratelimit/keyfunc"
)

const (
	watched   = 1000 // requests, and responses of each rule with ChargeOn
	nearlyAll = 900  // of those watched
	enough    = 20   // requests that are no accident
)

// hints watches the first requests that a set of rules gets, and logs probable mistakes
// in how the middleware was set up, each once.
type hints struct {
	logger    *slog.Logger
	said      sync.Map     // texts
	seen      atomic.Int64 // requests that were not skipped
	skipped   atomic.Int64 // by Skip or SkipFor
	uncounted atomic.Int64 // of seen: the Keys of all rules that match skipped them
	byAddress atomic.Bool  // a request was limited by its address
	listening atomic.Int64 // rules with ChargeOn whose responses are watched
	use       []ruleUse
}

// A ruleUse counts what became of a rule's requests and responses.
type ruleUse struct {
	matched, noKey, noRoute, skipped, exempt atomic.Int64

	keys, limits distinct // hashes of keys; what limits of LimitsFor count by
	madeUp       atomic.Int64
	reason       atomic.Pointer[error] // why the first request without a key had none
	unknownTier  sync.Once

	answers, charged, unwritten atomic.Int64 // responses, with a status of ChargeOn, and without any
}

// distinct counts values that differ.
type distinct struct {
	values sync.Map
	n      atomic.Int64
}

func (d *distinct) add(value any) {
	if _, again := d.values.LoadOrStore(value, true); !again {
		d.n.Add(1)
	}
}

func (h *hints) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if _, again := h.said.LoadOrStore(text, true); !again {
		h.logger.Warn("ratelimit: " + text)
	}
}

// watching reports whether requests are still watched.
func (h *hints) watching() bool { return h.seen.Load() < watched }

// skip counts a request that Config.Skip or Config.SkipFor exempts.
func (h *hints) skip() {
	if h.skipped.Load() < watched && h.skipped.Add(1) == watched && h.seen.Load() < watched-nearlyAll {
		h.say("%d of the first %d requests were skipped, so none of them was limited; if they were not just health checks, "+
			"look at the patterns of Config.Skip, and at what Config.SkipFor returns", watched, watched+h.seen.Load())
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

var keySeed = maphash.MakeSeed()

// decided watches a request that was decided; seen is parallel to rules, or empty if none
// matches. Hints never change a request, so that keys and handlers see all requests alike.
func (h *hints) decided(r *http.Request, rules []rule, seen []seenKey) {
	var chosen *rule // limits the request by a key that its client can make up
	address, skipped, counted := false, false, false
	for i := range seen {
		rule, s, use := &rules[i], &seen[i], &h.use[i]
		if !s.matched {
			continue
		}
		use.matched.Add(1)
		counted = counted || !errors.Is(s.err, keyfunc.ErrSkip)
		switch {
		case s.err == nil:
			use.keys.add(maphash.String(keySeed, s.key))
			h.watchAddress(r, rule.check.Rule, s.key)
			forged := rule.traits.Opaque && madeUp(r, s.key)
			if forged {
				use.madeUp.Add(1)
			}
			base, _, _ := strings.Cut(s.key, "/") // of an IPv6 network
			_, err := netip.ParseAddr(base)
			if s.enforced && rule.traits.Chosen != "" {
				chosen = rule
			} else if s.enforced && !forged && (rule.isByAddress() || err == nil) {
				address = true
			}
		case errors.Is(s.err, hint.ErrNoRoute):
			if use.noRoute.Add(1) == enough && use.keys.n.Load() == 0 {
				h.say("rule %q: no request has a route yet when its key is taken, so all requests share one count; "+
					"mount the middleware on the route (net/http: mux.Handle(pattern, limit.Handler(h)); chi: router.With(limit.Handler).Get(...), not router.Use) "+
					"or ask the router (net/http: keyfunc.Mux(mux); chi: keyfunc.Route with Find of the router that uses the middleware, as in ExampleRoute_chi)", rule.check.Rule)
			}
		case errors.Is(s.err, keyfunc.ErrNoKey):
			use.reason.CompareAndSwap(nil, &s.err)
			use.noKey.Add(1)
			address = address || s.enforced && rule.isByAddress()
		case errors.Is(s.err, keyfunc.ErrSkip):
			use.skipped.Add(1)
			skipped = true
		}
		if s.exempt {
			use.exempt.Add(1)
		} else if s.limit != (algorithms.Limit{}) && rule.source.LimitsFor != nil {
			use.limits.add(naming.Limit(s.limit).Window())
		}
	}
	if skipped && !counted {
		h.uncounted.Add(1)
	}
	if address {
		h.byAddress.Store(true)
	} else if chosen != nil {
		h.say("rule %q is keyed by %s, of which a client can make up any number, and no rule limits its address; "+
			"add one with Key: keyfunc.IP or, if your proxy sets a header with the user, write keyfunc.Proxies.UserID", chosen.check.Rule, chosen.traits.Chosen)
	}
	if h.seen.Add(1) == watched {
		h.sum(rules)
	}
}

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
	public := from.IsGlobalUnicast() && !from.IsPrivate()
	for _, header := range forwarding {
		name, _, several := strings.Cut(r.Header.Get(header), ",")
		addr, err := netip.ParseAddr(name)
		if (public || several) && name != "" && addr.Unmap() != from && (key == name || err == nil && strings.Contains(key, name)) {
			return true
		}
	}
	return false
}

// watchAddress looks for headers that name another client, in a request that is counted
// by the address of its connection.
func (h *hints) watchAddress(r *http.Request, rule, key string) {
	if address, err := keyfunc.IP.Resolve(r); err != nil || address != key {
		return
	}
	peer, _ := netip.ParseAddrPort(r.RemoteAddr)
	for _, header := range forwarding {
		switch first, _, _ := strings.Cut(r.Header.Get(header), ","); {
		case first == "" || strings.TrimSpace(first) == peer.Addr().Unmap().String():
			continue // it names nobody else, as behind a proxy on the client's machine
		case first == r.RemoteAddr: // net/http never leaves out the port
			h.say("rule %q: RemoteAddr is what %s says. If middleware in front, such as chi's RealIP, copies it, any client can choose its address: "+
				"remove it, and use keyfunc.Proxies with the networks of your proxies. If there is none, the client made it up, and nothing is wrong", rule, header)
			return
		case header == "X-Forwarded-For" || header == "Forwarded":
			// Who sent it is not said: it may be a client that wants to be trusted.
			h.say("rule %q: requests with %s come from an address that is not trusted, and are counted by that address; "+
				"if your proxies send the header, list their networks in keyfunc.Proxies, which reads X-Forwarded-For; if you have no proxies, clients made it up, and nothing is wrong", rule, header)
		}
	}
}

// sum says what is odd in the counts of the watched requests: the first that holds for
// each rule.
func (h *hints) sum(rules []rule) {
	if n := h.uncounted.Load(); n >= enough && n < watched {
		h.say("%d of the first %d requests were counted by no rule, because Keys such as keyfunc.Optional skipped them; add a rule with Key: keyfunc.IP, "+
			"or take Optional away", n, watched)
	}
	for i := range rules {
		r, use := &rules[i], &h.use[i]
		matched, exempt, madeUp, skipped, noKey := use.matched.Load(), use.exempt.Load(), use.madeUp.Load(), use.skipped.Load(), use.noKey.Load()
		reason := cmp.Or(use.reason.Load(), new(error))
		keys, limits := use.keys.n.Load(), use.limits.n.Load()
		for _, row := range [...]struct {
			odd   bool
			count int64
			text  string
		}{
			{matched == 0, 0, "matched it; look at its Match"},
			{exempt == matched, exempt, "were Unlimited by LimitsFor or Tiers; look at what LimitsFor and Config.TierFor return"},
			{madeUp >= enough, madeUp, "had a key from X-Forwarded-For or a header like it, which any client can make up to have a new limit; " +
				"use keyfunc.Proxies with the networks of your proxies. If the Key looks at who sent the header, clients made it look so, and nothing is wrong"},
			{limits > watched/10, limits, "had a new period or algorithm from LimitsFor, and each is a count of its own; vary only the rate"},
			{r.traits.Opaque && keys > nearlyAll && !h.byAddress.Load(), keys, "had a new key, and no rule limits their addresses, so a client that can change its key has no limit; " +
				"if the Key returns RemoteAddr with its port or the path, write keyfunc.IP or keyfunc.Route, or else add a rule with Key: keyfunc.IP"},
			{skipped == matched, skipped, "were skipped by its Key; look at it. A key by a route finds none before the router has run; see keyfunc.Route"},
			{noKey >= enough, noKey, fmt.Sprintf("had no key (%.128q), and share one count, which one client can use up for all; "+
				"count them by address (keyfunc.First(key, keyfunc.IP)), refuse them (keyfunc.Required) or, if another rule counts them, skip them (keyfunc.Optional). "+
				"For a key by keyfunc.Proxies, look at what your proxy writes", *reason)},
		} {
			if row.odd {
				h.say("rule %q: %d of the first %d requests %s", r.check.Rule, row.count, watched, row.text)
				break
			}
		}
		use.keys.values.Clear()
		use.limits.values.Clear()
	}
}

// tierIsUnknown says that Config.TierFor returned a tier that a rule has not.
func (h *hints) tierIsUnknown(i int, r *rule, tier string) {
	h.use[i].unknownTier.Do(func() {
		h.say("rule %q: Config.TierFor returned %.32q, which is none of its Tiers, so the rule's own limit applies; names are compared exactly: %q",
			r.check.Rule, tier, slices.Sorted(maps.Keys(r.source.Tiers)))
	})
}

// answered watches a response to a request that a rule with ChargeOn has charged. The status
// is 0 if the handler wrote none.
func (h *hints) answered(i int, r *rule, status int) {
	use := &h.use[i]
	switch {
	case status == 0:
		use.unwritten.Add(1)
	case slices.Contains(r.source.ChargeOn, status):
		use.charged.Add(1)
	}
	if use.answers.Add(1) != watched {
		return
	}
	h.listening.Add(-1)
	if n := use.unwritten.Load(); n >= enough {
		h.say("rule %q: %d of %d responses had no status, since their handlers wrote nothing, and stay charged; call w.WriteHeader", r.check.Rule, n, watched)
	} else if n := use.charged.Load(); n == 0 || n >= watched {
		h.say("rule %q: %d of %d responses had a status of ChargeOn, and only those stay charged; list the statuses that are to count, and no others (the last response had %d)",
			r.check.Rule, n, watched, status)
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

// start looks for rules that are valid but probably mistakes.
func (h *hints) start(rules []rule, config *Config, s share) {
	shadows, anyMethod := 0, false
	for i := range rules {
		r := &rules[i]
		if r.check.Shadow {
			shadows++
		}
		anyMethod = anyMethod || len(r.source.Match) == 0 || slices.ContainsFunc(r.source.Match, func(text string) bool { return strings.HasPrefix(text, "/") })
		for _, found := range r.source.look(s, true) {
			h.say("rule %q: %v", r.check.Rule, found.Err)
		}
		if r.tiers != nil && config.TierFor == nil {
			h.say("rule %q: it has Tiers, and Config.TierFor is nil: every request has the rule's own limit", r.check.Rule)
		}
	}
	for _, text := range config.Skip {
		if anyMethod && strings.HasPrefix(text, http.MethodOptions) {
			h.say("Config.Skip has %q, and handlers without a method serve OPTIONS requests like all others, so a client that sends them has no limit; "+
				"put the CORS middleware in front of the limiter, and take the pattern out", text)
		}
	}
	if shadows == len(rules) {
		h.say("every rule is in shadow for all keys, so no request is limited; take Shadow away from those that are to limit")
	}
}

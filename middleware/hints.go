package middleware

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/hint"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// watched is how many requests are watched for mistakes in the configuration.
const watched = 1000

// hints watch the first requests that a set of rules sees, and log what looks
// like a mistake in how the middleware was set up: each once.
type hints struct {
	logger *slog.Logger
	seen   atomic.Int64
	said   sync.Map // by meaning
	use    []ruleUse
}

type ruleUse struct{ matched, applied atomic.Int64 }

func newHints(logger *slog.Logger, rules int) *hints {
	return &hints{logger: logger, use: make([]ruleUse, rules)}
}

func (h *hints) say(text string) { h.sayOnce(text, text) }

// sayOnce says one of the texts that mean the same.
func (h *hints) sayOnce(meaning, text string) {
	if _, again := h.said.LoadOrStore(meaning, true); !again {
		h.logger.Warn("ratelimit: " + text)
	}
}

// watching reports whether there were not enough requests yet.
func (h *hints) watching() bool { return h.seen.Load() < watched }

// begin is told of a watched request. It must not change the request, so that
// keys behave for all requests as for these.
func (h *hints) begin(r *http.Request, m *Middleware, handles bool) {
	for p := passageOf(r.Context()); p != nil && handles; p = p.outer {
		if p.by == m {
			h.say("the same middleware has seen this request already: it is charged twice; use Handler once, around the router or on the route")
		}
	}
}

// looked is told of each rule that matched a watched request.
func (h *hints) looked(r *http.Request, i int, rule *rule, key string, err error) {
	h.use[i].matched.Add(1)
	name := rule.check.Rule
	if errors.Is(err, hint.ErrNoRoute) {
		h.say(fmt.Sprintf("rule %q: the route of a request is not known when its key is taken, so all such requests share one count; "+
			"mount the middleware on the route (chi: router.With(limit.Handler).Get(...), not router.Use) or ask the router: keyfunc.Mux(mux)", name))
	}
	if !errors.Is(err, keyfunc.ErrSkip) {
		h.use[i].applied.Add(1)
	}
	for _, header := range []string{"X-Forwarded-For", "Forwarded"} {
		if r.Header.Get(header) == "" || err != nil {
			continue
		}
		if peer, err := keyfunc.IP.Resolve(r); err == nil && peer == key {
			h.sayOnce(name+" "+header, fmt.Sprintf("rule %q: %s came from %s, which is not trusted, so whoever it speaks for is counted as one; if that is your proxy, "+
				"use Key: keyfunc.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix(%q)}}.IP", name, header, peer, prefixOf(peer)))
		}
	}
}

// done is told of what applied to a watched request.
func (h *hints) done(rules []rule, checks []algorithms.Check) {
	byAddress, apiKey := false, ""
	for i := range checks {
		byAddress = byAddress || isAddress(checks[i].Key)
		if strings.Contains(checks[i].Key, "apikey:") {
			apiKey = checks[i].Rule
		}
	}
	if apiKey != "" && !byAddress {
		h.say(fmt.Sprintf("rule %q is keyed by an API key, which a client can invent as many of as it likes, and no rule limits its address; "+
			"add one with Key: keyfunc.IP", apiKey))
	}
	if h.seen.Add(1) != watched {
		return
	}
	for i := range rules {
		switch use := &h.use[i]; {
		case use.matched.Load() == 0:
			h.say(fmt.Sprintf("rule %q matched none of the first %d requests; look at its Match", rules[i].check.Rule, watched))
		case use.applied.Load() == 0:
			h.say(fmt.Sprintf("rule %q was skipped on all of the first %d requests: its Key found none; look at its Key", rules[i].check.Rule, watched))
		}
	}
}

func isAddress(key string) bool {
	if _, err := netip.ParsePrefix(key); err == nil {
		return true
	}
	_, err := netip.ParseAddr(key)
	return err == nil || key == "unix"
}

func prefixOf(peer string) string {
	if addr, err := netip.ParseAddr(peer); err == nil {
		return netip.PrefixFrom(addr, addr.BitLen()).String()
	}
	return peer
}

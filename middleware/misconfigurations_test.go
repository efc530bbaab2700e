package middleware_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// Configurations that are surely or probably wrong: each is an error of New, or is
// said in the log when the middleware is made or after 1000 requests, or is right.
func TestMisconfigurations(t *testing.T) {
	type (
		rule   = ratelimit.Rule
		config = ratelimit.Config
	)
	perIP := rule{Name: "per-ip", Key: keyfunc.IP, Limit: algorithms.PerHour(1_000_000)}
	bucket := func(rate int64, period time.Duration, burst int64) algorithms.Limit {
		return algorithms.Limit{Rate: rate, Period: period, Burst: burst}
	}
	ban := func(limit algorithms.Limit, ban ratelimit.Ban) func(*config, *rule) {
		return func(_ *config, r *rule) { r.Limit, r.Ban = limit, ban }
	}
	hour := algorithms.PerHour(100)
	key := func(k keyfunc.Key) func(*config, *rule) { return func(_ *config, r *rule) { r.Key = k } }
	trusting := func(networks ...string) func(*config, *rule) {
		var p keyfunc.Proxies
		for _, network := range networks {
			p.Trusted = append(p.Trusted, netip.MustParsePrefix(network))
		}
		return key(p.IP())
	}
	from := func(k keyfunc.Key, beside ...rule) func(*config, *rule) {
		return func(c *config, r *rule) { r.Key, c.Rules = k, append(c.Rules, beside...) }
	}
	overridden := func(k keyfunc.Key, o ratelimit.Override) func(*config, *rule) {
		return func(c *config, r *rule) {
			r.Key, r.Overrides, c.Rules = k, []ratelimit.Override{o}, append(c.Rules, perIP)
		}
	}
	tiers := func(tier string) func(*config, *rule) {
		return func(c *config, r *rule) {
			r.Tiers, c.TierFor = map[string][]algorithms.Limit{"pro": {algorithms.PerHour(2_000_000)}}, func(*http.Request) string { return tier }
		}
	}
	path := keyfunc.Func(func(r *http.Request) (string, error) { return r.URL.Path, nil })
	port := keyfunc.Func(func(r *http.Request) (string, error) { return r.RemoteAddr, nil })
	forwardedFor := keyfunc.Func(func(r *http.Request) (string, error) {
		first, _, _ := strings.Cut(r.Header.Get("X-Forwarded-For"), ",")
		return first, nil
	})
	user := keyfunc.Func(func(r *http.Request) (string, error) { // 9 of 20 are logged in
		if n, _ := strconv.Atoi(r.URL.Path[1:]); n%20 < 9 {
			return strconv.Itoa(n % 100), nil
		}
		return "", keyfunc.ErrNoKey
	})
	answers := func(statuses ...int) http.Handler { // in turn; 0 is none
		n := 0
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if n++; statuses[n%len(statuses)] != 0 {
				w.WriteHeader(statuses[n%len(statuses)])
			}
		})
	}
	chiRoute := keyfunc.Route(func(r *http.Request) string { return chi.RouteContext(r.Context()).RoutePattern() })
	mux := http.NewServeMux()
	mux.Handle("/{path}", ok)
	realIP := func(m *ratelimit.Middleware) http.Handler {
		return chimiddleware.RealIP(m.Handler(ok)) //nolint:staticcheck // the mistake that is looked for
	}
	none := keyfunc.Func(func(*http.Request) (string, error) { return "", nil })

	for name, c := range map[string]struct {
		change    func(*config, *rule)
		handler   http.Handler                             // nil answers 204
		wrap      func(*ratelimit.Middleware) http.Handler // nil is its Handler
		forwarded string                                   // X-Forwarded-For, with the number of a client
		header    []string                                 // another one
		err       string                                   // a part of New's error
		hint      string                                   // a part of the only line of the log; "" where there is none
	}{
		"nothing": {},

		"a ban of those without a key":   {change: func(_ *config, r *rule) { r.Ban = ratelimit.Ban{After: 1, For: 2 * time.Hour} }}, // see TestWhoHasNoKeyIsNotBanned
		"a ban for ever":                 {change: ban(hour, ratelimit.Ban{After: 1, For: 50 * 365 * 24 * time.Hour}), hint: "it bans for 18250 days"},
		"a ban that the window outlasts": {change: ban(hour, ratelimit.Ban{After: 1, For: time.Minute}), hint: "it bans for 1m0s, and the limit 100/1h denies for up to 1h0m0s anyway"},
		"a ban that a bucket outlasts":   {change: ban(bucket(1, time.Hour, 9), ratelimit.Ban{After: 1, For: time.Minute}), hint: "and the limit 1/1h burst 9 denies for up to 1h0m0s anyway"},
		"a ban longer than one of the windows": {change: func(_ *config, r *rule) {
			r.Limit, r.Limits = algorithms.Limit{}, []algorithms.Limit{{Rate: 9000, Period: 24 * time.Hour}, hour, algorithms.PerMonth(90_000, "UTC")}
			r.Ban = ratelimit.Ban{After: 1, Within: time.Hour, For: 2 * time.Hour}
		}},
		"a ban longer than a bucket's token": {change: ban(bucket(100, time.Hour, 9), ratelimit.Ban{After: 1, For: time.Minute})},

		"an override by a header":        {change: overridden(keyfunc.Header("Client"), override(hour, "acme")), hint: "its Key is a header, so any client can have the limits of its Overrides"},
		"an override by the body":        {change: overridden(keyfunc.BodyForm("email", 1<<10), override(hour, "acme")), hint: "its Key is a field of the body"},
		"an override by an API key":      {change: overridden(keyfunc.APIKey("Client"), override(hour, "apikey:AAAAAAAAAAAAAAAAAAAAAA"))},
		"an override by an address":      {change: overridden(keyfunc.IP, override(hour, "192.0.2.7"))},
		"an override of another window":  {change: overridden(keyfunc.IP, override(algorithms.PerMinute(9), "192.0.2.7"))},
		"an override without any limits": {change: overridden(keyfunc.IP, exempt("192.0.2.7"))},

		"any client chooses X-Forwarded-For": {change: key(keyfunc.Header("X-Forwarded-For")), err: "use keyfunc.IP or, behind proxies, keyfunc.Proxies"},
		"any client chooses X-Real-IP":       {change: key(keyfunc.Header("X-Real-IP")), err: "use keyfunc.IP or, behind proxies, keyfunc.Proxies"},
		"any client chooses Forwarded":       {change: key(keyfunc.Header("Forwarded")), err: "use keyfunc.IP or, behind proxies, keyfunc.Proxies"},
		"a Key that hides ReadsBody":         {change: key(struct{ keyfunc.Key }{keyfunc.BodyJSON("email", 1<<10)}), err: "embed what keyfunc.Describe returns"},
		"a secret in Authorization":          {change: key(keyfunc.Header("Authorization")), err: "use keyfunc.APIKey"},
		"a secret in X-API-Key":              {change: key(keyfunc.Header("X-API-Key")), err: "use keyfunc.APIKey"},
		"a secret in X-Auth-Token":           {change: key(keyfunc.Header("X-Auth-Token")), err: "use keyfunc.APIKey"},
		"a secret in X-Access-Token":         {change: key(keyfunc.Header("X-Access-Token")), err: "use keyfunc.APIKey"},
		"a secret in Cookie":                 {change: key(keyfunc.Optional(keyfunc.Header("Cookie"))), err: "use keyfunc.Cookie"},
		"Host, which net/http removes":       {change: key(keyfunc.Header("Host")), err: "Host does not say who sends a request"},
		"Transfer-Encoding":                  {change: key(keyfunc.Header("Transfer-Encoding")), err: "Transfer-Encoding does not say who"},
		"Content-Length":                     {change: key(keyfunc.Header("Content-Length")), err: "Content-Length does not say who"},

		"a header alone":              {change: from(keyfunc.Header("Client")), hint: `rule "r" is keyed by a header, of which a client can make up any number, and no rule limits its address; add one with Key: keyfunc.IP or, if your proxy sets`},
		"a header with the address":   {change: from(keyfunc.Join(keyfunc.IP, keyfunc.Header("Client"))), hint: "is keyed by a header"},
		"a header beside an address":  {change: from(keyfunc.Header("Client"), perIP)},
		"a header beside one, hashed": {change: from(keyfunc.Header("Client"), rule{Name: "hashed", Key: keyfunc.Hashed(keyfunc.IP, nil), Limit: perIP.Limit})},
		"a header beside a shadow": {change: from(keyfunc.Header("Client"), rule{Name: "shadow", Key: keyfunc.IP, Limit: perIP.Limit, Shadow: true}),
			hint: "is keyed by a header"},
		"a form's field alone":     {change: from(keyfunc.BodyForm("email", 1<<10)), hint: `rule "r" is keyed by a field of the body`},
		"a field of JSON alone":    {change: from(keyfunc.First(keyfunc.BodyForm("e", 1<<10), keyfunc.BodyForm("email", 1<<10))), hint: "is keyed by a field of the body"},
		"a Func of the path":       {change: from(path), hint: `rule "r": 1000 of the first 1000 requests had a new key, and no rule limits their addresses`},
		"a Func of the port":       {change: from(keyfunc.Hashed(port, nil)), hint: "write keyfunc.IP or keyfunc.Route"},
		"a Func beside an address": {change: from(path, perIP)},
		"a Func of no key":         {change: from(none), hint: `1000 of the first 1000 requests had no key ("keyfunc: no key"), and share one count`},

		"skipped by /":       {change: func(c *config, _ *rule) { c.Skip = []string{"/"} }, hint: "1000 of the first 1000 requests were skipped"},
		"skipped by POST /":  {change: func(c *config, _ *rule) { c.Skip = []string{"POST /"} }, hint: "look at the patterns of Config.Skip"},
		"skipped by SkipFor": {change: func(c *config, _ *rule) { c.SkipFor = func(*http.Request) bool { return true } }, hint: "were skipped"},
		"unlimited": {change: func(_ *config, r *rule) {
			r.LimitsFor = func(*http.Request) []algorithms.Limit { return ratelimit.Unlimited() }
		}, hint: `rule "r": 1000 of the first 1000 requests were Unlimited`},
		"in shadow":             {change: func(_ *config, r *rule) { r.Shadow = true }, hint: "every rule is in shadow for all keys"},
		"a part enforced":       {change: func(c *config, r *rule) { r.Shadow, r.Enforce = true, 0.5; c.Rules = append(c.Rules, perIP) }},
		"most are in shadow":    {change: func(c *config, r *rule) { r.Shadow = true; c.Rules = append(c.Rules, perIP) }},
		"a tier of no rule":     {change: tiers("Pro"), hint: `rule "r": Config.TierFor returned "Pro", which is none of its Tiers`},
		"a tier":                {change: tiers("pro")},
		"no tier":               {change: tiers("")}, // nobody may have bought one yet
		"Tiers, but no TierFor": {change: func(c *config, r *rule) { tiers("")(c, r); c.TierFor = nil }, hint: "Config.TierFor is nil"},

		"all of the internet is trusted":  {change: trusting("0.0.0.0/0"), err: "holds a large part of the internet"},
		"all of it is trusted, mapped":    {change: trusting("::ffff:0.0.0.0/96"), err: "holds a large part of the internet"},
		"all of it is trusted, in halves": {change: trusting("0.0.0.0/1", "128.0.0.0/1"), err: "holds a large part of the internet"},
		"all of IPv6 is trusted":          {change: trusting("2000::/3"), err: "holds a large part of the internet"},
		"an address with a short prefix":  {change: trusting("1.2.3.4/4"), err: "bits are set beyond the length"},
		"a safelist by what anybody wrote": {change: func(c *config, _ *rule) {
			c.SkipFor = keyfunc.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}}.In(netip.MustParsePrefix("192.0.2.0/24"))
		}}, // nobody is on it

		"Period: 60":          {change: func(_ *config, r *rule) { r.Limit.Period = 60 }, err: "limit: the period 60ns is below 10ms; a number without a unit is in nanoseconds"},
		"For: 86400":          {change: ban(hour, ratelimit.Ban{After: 1, For: 86400}), err: "ban.for: the time 86.4µs is below 10ms; a number without a unit"},
		"10/1ms":              {change: func(_ *config, r *rule) { r.Limit = bucket(10, time.Millisecond, 10) }, err: "limit: the period 1ms is below 10ms"},
		"a burst for years":   {change: func(_ *config, r *rule) { r.Limit = bucket(1, 10*time.Minute, 1_000_000) }, hint: "1/10m burst 1000000 admits 1000000 units at once, and needs more than 30 days to refill"},
		"a burst for an hour": {change: func(_ *config, r *rule) { r.Limit = bucket(1, time.Second, 3600) }},
		"few in a sliding window": {change: func(_ *config, r *rule) {
			r.Limit = algorithms.Limit{Rate: 9, Period: 24 * time.Hour}
			r.LimitsFor = func(*http.Request) []algorithms.Limit { return []algorithms.Limit{hour} }
		}, hint: `9/24h is a sliding_window, which may deny for up to 26h40m0s; for so few units write Algorithm: algorithms.SlidingLog, in text "9/24h sliding_log"`},
		"few in one that is named": {change: func(_ *config, r *rule) { r.Limit.Rate, r.Limit.Algorithm = 9, algorithms.SlidingWindow }},
		"few in a short window":    {change: func(_ *config, r *rule) { r.Limit = algorithms.PerSecond(5) }},

		"in flight beside a rate": {change: func(c *config, r *rule) { r.Limit, c.Rules = algorithms.MaxInFlight(2), append(c.Rules, perIP) }},

		"a large CostFor": {change: func(_ *config, r *rule) {
			r.Limit, r.Limits = algorithms.Limit{}, []algorithms.Limit{hour, algorithms.PerMonth(50, "UTC")}
			r.CostFor = func(*http.Request) int64 { return 51 }
		}, hint: `rule "r": CostFor returned 51, and 50/month@UTC can hold 50 units, so that such a request is always denied; raise the limit, or return less and call Add for the rest`},
		"statuses that it never sends": {change: func(_ *config, r *rule) { r.ChargeOn = []int{401, 403} },
			hint: `rule "r": 0 of 1000 responses had a status of ChargeOn, and only those stay charged; list the statuses that are to count, and no others (the last response had 204)`},
		"a status that it always sends": {change: func(_ *config, r *rule) { r.ChargeOn = []int{200, 204} }, hint: "1000 of 1000 responses had a status of ChargeOn"},
		"no status at all": {change: func(c *config, r *rule) { c.Rules, r.ChargeOn = append(c.Rules, perIP), []int{401} }, handler: answers(0),
			hint: `rule "r": 1000 of 1000 responses had no status, since their handlers wrote nothing, and stay charged; call w.WriteHeader`},
		"statuses that it sends": {change: func(_ *config, r *rule) { r.ChargeOn = []int{401} }, handler: answers(401, 303)},
		"one login at a time": {change: func(_ *config, r *rule) { r.ChargeOn, r.Cost, r.Limit = []int{401}, 1000, algorithms.PerSecond(1000) }, handler: answers(401, 303),
			hint: "a request takes 1000 of the limit 1000/1s, so no other one of its key passes at the same time"},

		"OPTIONS are skipped":                {change: func(c *config, _ *rule) { c.Skip = []string{"OPTIONS /"} }, hint: `Config.Skip has "OPTIONS /", and handlers without a method serve OPTIONS requests like all others`},
		"OPTIONS of one path are skipped":    {change: func(c *config, r *rule) { r.Match, c.Skip = []string{"/"}, []string{"OPTIONS /login"} }, hint: `Config.Skip has "OPTIONS /login"`},
		"OPTIONS are skipped beside methods": {change: func(c *config, r *rule) { r.Match, c.Skip = []string{"POST /"}, []string{"OPTIONS /"} }},
		"most are skipped": {change: func(c *config, _ *rule) {
			c.SkipFor = func(r *http.Request) bool { return r.URL.Path != "/0" }
		}, hint: "1000 of the first 1001 requests were skipped, so none of them was limited"},
		"some are skipped": {change: func(c *config, _ *rule) { c.SkipFor = func(r *http.Request) bool { return r.URL.Path < "/5" } }},

		"an address and a path":       {change: from(keyfunc.Join(keyfunc.IP, keyfunc.Route(func(r *http.Request) string { return r.URL.Path }))), hint: `rule "r": 1000 of the first 1000 requests had a new key`},
		"an address and a Func":       {change: from(keyfunc.Join(keyfunc.IP, path)), hint: `rule "r": 1000 of the first 1000 requests had a new key`},
		"first a Func":                {change: from(keyfunc.First(path, keyfunc.IP)), hint: `rule "r": 1000 of the first 1000 requests had a new key`},
		"an address and a few routes": {change: from(keyfunc.Join(keyfunc.IP, keyfunc.Route(func(*http.Request) string { return "/" })))},
		"LimitsFor of many periods": {change: func(_ *config, r *rule) {
			r.LimitsFor = func(r *http.Request) []algorithms.Limit {
				n, _ := strconv.Atoi(r.URL.Path[1:])
				return []algorithms.Limit{{Rate: 1_000_000, Period: time.Hour + time.Duration(n)*time.Second}}
			}
		}, hint: `rule "r": 1000 of the first 1000 requests had a new period or algorithm from LimitsFor`},
		"LimitsFor of many rates": {change: func(_ *config, r *rule) {
			r.LimitsFor = func(r *http.Request) []algorithms.Limit {
				n, _ := strconv.Atoi(r.URL.Path[1:])
				return []algorithms.Limit{algorithms.PerHour(1_000_000 + int64(n))}
			}
		}},

		"visitors are counted by no rule": {change: from(keyfunc.Optional(user)), hint: "550 of the first 1000 requests were counted by no rule, because Keys such as keyfunc.Optional skipped them"},
		"visitors, first of all":          {change: from(keyfunc.First(keyfunc.Optional(user), keyfunc.IP)), hint: "were counted by no rule"},
		"visitors, joined":                {change: from(keyfunc.Join(keyfunc.Optional(user), keyfunc.IP)), hint: "were counted by no rule"},
		"visitors, required":              {change: from(keyfunc.Required(keyfunc.Optional(user), 401)), hint: "were counted by no rule"},
		"visitors beside an address":      {change: from(keyfunc.Optional(user), perIP)},
		"visitors share a count":          {change: from(user, perIP), hint: `rule "r": 550 of the first 1000 requests had no key ("keyfunc: no key"), and share one count, which one client can use up for all; count them by address`},
		"visitors share a count, joined":  {change: from(keyfunc.Join(user, keyfunc.IP)), hint: `rule "r": 550 of the first 1000 requests had no key`},
		"all are everyone":                {change: from(keyfunc.Everyone)},

		"a Func of X-Forwarded-For":     {change: from(forwardedFor), forwarded: "198.51.100.%d, 10.0.0.1", hint: `rule "r": 1000 of the first 1000 requests had a key from X-Forwarded-For or a header like it, which any client can make up`},
		"a Func of its only element":    {change: from(forwardedFor), forwarded: "198.51.100.%d", hint: "which any client can make up"},
		"a Func of an invented text":    {change: from(forwardedFor), forwarded: "made-up-%d", hint: "which any client can make up"},
		"a joined Func of it":           {change: from(keyfunc.Join(forwardedFor, path)), forwarded: "198.51.100.%d", hint: "which any client can make up"},
		"a Func beside X-Forwarded-For": {change: from(path, perIP), forwarded: "192.0.2.%d"},
		"X-Forwarded-For that is none": {change: trusting("192.0.2.0/24"), forwarded: "::%d, 2001:db8::1::2:51234",
			hint: `rule "r": 1000 of the first 1000 requests had no key (`},

		"a negative CostFor": {change: func(_ *config, r *rule) { r.CostFor = func(*http.Request) int64 { return -1 } }, hint: "CostFor returned a negative cost, so Costs and Cost apply"},
		"Denied without a status": {change: func(c *config, r *rule) {
			r.Limit, c.Denied = bucket(2, time.Minute, 2), func(w http.ResponseWriter, _ *http.Request, _ algorithms.Decision) { fmt.Fprint(w, "too many") }
		}, hint: "Config.Denied answered with status 200, so clients and caches take it for a success"},
		"Denied that writes nothing": {change: func(c *config, r *rule) {
			r.Limit, c.Denied = bucket(2, time.Minute, 2), func(http.ResponseWriter, *http.Request, algorithms.Decision) {}
		}, hint: "Config.Denied answered with status 200"},
		"Denied with a redirect": {change: func(c *config, r *rule) {
			r.Limit, c.Denied = bucket(2, time.Minute, 2), func(w http.ResponseWriter, r *http.Request, _ algorithms.Decision) {
				http.Redirect(w, r, "/slow", http.StatusSeeOther)
			}
		}},
		"Refused without a status": {change: func(c *config, r *rule) {
			c.Rules, r.Key, c.Refused = append(c.Rules, perIP), keyfunc.Required(none, 401), func(w http.ResponseWriter, _ *http.Request, _ error) { fmt.Fprint(w, "log in") }
		}, hint: "Config.Refused answered with status 200"},
		"everyone is enforced in part": {change: func(c *config, r *rule) {
			c.Rules, r.Key, r.Shadow, r.Enforce = append(c.Rules, perIP), keyfunc.Everyone, true, 0.5
		},
			hint: "all clients have one key, so Enforce enforces it for all or for none"},
		"anybody bans anybody": {change: func(c *config, r *rule) {
			c.Rules, r.Key, r.Ban = append(c.Rules, perIP), keyfunc.BodyForm("email", 1<<10), ratelimit.Ban{After: 9, For: 24 * time.Hour}
		}, hint: "its Key is a field of the body, so anybody can have the keys of others banned for 24h"},
		"a ban that never comes":    {change: ban(hour, ratelimit.Ban{After: 1_000_000, For: 2 * time.Hour}), err: "ban.after: must be at most 10001"},
		"an override of all":        {change: overridden(keyfunc.IP, override(hour, "*")), err: "an override is for one client, and * stands for itself"},
		"an override of long ago":   {change: overridden(keyfunc.Header("Client"), ratelimit.Override{Client: []string{"u1"}, Limits: ratelimit.Unlimited(), Until: time.Unix(1, 0)}), err: "overrides[0].until: must be in the years 2000 to 9998, got 1970; leave it out"},
		"an override of far beyond": {change: overridden(keyfunc.Header("Client"), ratelimit.Override{Client: []string{"u1"}, Limits: ratelimit.Unlimited(), Until: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}), err: "overrides[0].until: must be in the years 2000 to 9998, got 9999; leave it out"},
		"an override with a blank":  {change: overridden(keyfunc.Header("Client"), override(hour, " u1")), err: "overrides[0].client: there is white space around it"},
		"a LogSecret of zeros":      {change: func(c *config, _ *rule) { c.LogSecret = make([]byte, 32) }, err: "log secret: all of its bytes are equal"},

		"a body of 8 bytes": {change: key(keyfunc.BodyJSON("email", 8)), err: "at most 8 bytes: hardly any body would be read"},
		"bodies of GET requests": {change: func(_ *config, r *rule) {
			r.Key, r.Match = keyfunc.Required(keyfunc.BodyJSON("email", 1<<10), 400), []string{"GET /", "HEAD /"}
		}, hint: "its Key reads the body"},
		"an empty Match and no Overrides": {change: func(c *config, r *rule) {
			r.Key, r.Match, r.Overrides, c.Rules = keyfunc.Required(keyfunc.BodyForm("email", 1<<10), 400), []string{}, []ratelimit.Override{}, append(c.Rules, perIP)
		}},
		"bodies of some requests": {change: func(_ *config, r *rule) {
			r.Key, r.Match = keyfunc.Required(keyfunc.BodyJSON("email", 1<<10), 400), []string{"GET /", "POST /"}
		}},

		"a trusted proxy":                       {change: trusting("192.0.2.0/24"), forwarded: "203.0.113.7"},
		"an untrusted proxy":                    {forwarded: "203.0.113.7", hint: `rule "r": requests with X-Forwarded-For come from an address that is not trusted`},
		"a proxy and its client on one machine": {change: trusting("192.0.2.0/24"), forwarded: "192.0.2.%d"},
		"with RFC 7239":                         {header: []string{"Forwarded", "for=203.0.113.7"}, hint: `rule "r": requests with Forwarded come from an address that is not trusted`},
		"an address rule that finds no address": {change: from(keyfunc.Header("Client"), rule{Name: "hops", Key: keyfunc.Proxies{Hops: 1}.IP(), Limit: perIP.Limit}), hint: `rule "hops": 1000 of the first 1000 requests had no key`},
		"chi's RealIP in front":                 {forwarded: "203.0.113.7, 10.0.0.1", wrap: realIP, hint: `rule "r": RemoteAddr is what X-Forwarded-For says. If middleware in front, such as chi's RealIP, copies it, any client can choose its address: remove it, and use keyfunc.Proxies with the networks of your proxies. If there is none, the client made it up`},
		"RealIP by X-Real-IP":                   {header: []string{"X-Real-IP", "203.0.113.7"}, wrap: realIP, hint: "RemoteAddr is what X-Real-Ip says"},
		"X-Real-IP alone":                       {header: []string{"X-Real-IP", "203.0.113.7"}},

		"twice": {wrap: func(m *ratelimit.Middleware) http.Handler { return m.Handler(m.Handler(ok)) },
			hint: `a request was charged twice by rule "r", since it passed the same middleware twice`},
		"two middlewares with one limiter": {wrap: func(m *ratelimit.Middleware) http.Handler {
			return mustNew(t, config{Limiter: m.Limiter(), Rules: m.Rules()}).Handler(m.Handler(ok))
		}, hint: `charged twice by rule "r"`},
		"two with one limiter and other keys": {wrap: func(m *ratelimit.Middleware) http.Handler {
			other := m.Rules()
			other[0].Key = keyfunc.Join(keyfunc.IP, keyfunc.Everyone)
			return mustNew(t, config{Limiter: m.Limiter(), Rules: other}).Handler(m.Handler(ok))
		}},
		"two middlewares are not twice": {wrap: func(m *ratelimit.Middleware) http.Handler {
			return m.Handler(mustNew(t, config{Rules: m.Rules()}).Handler(ok))
		}},
		"messages behind Handler": {wrap: func(m *ratelimit.Middleware) http.Handler {
			return m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				for range 3 {
					if _, err := m.Take(r); err != nil {
						t.Error(err)
					}
				}
			}))
		}},

		"a route that chi does not know yet": {change: from(chiRoute), wrap: func(m *ratelimit.Middleware) http.Handler {
			router := chi.NewRouter()
			router.Use(m.Handler)
			router.Handle("/*", ok)
			return router
		}, hint: `rule "r": no request has a route yet when its key is taken`},
		"a route that net/http does not know yet": {change: from(keyfunc.Route(func(r *http.Request) string { return r.Pattern })),
			wrap: func(m *ratelimit.Middleware) http.Handler { return m.Handler(mux) },
			hint: `ask the router (net/http: keyfunc.Mux(mux); chi: keyfunc.Route with Find of the router that uses the middleware, as in ExampleRoute_chi)`},
		"a route that is never known": {change: from(chiRoute), wrap: func(m *ratelimit.Middleware) http.Handler {
			router := chi.NewRouter()
			router.Handle("/*", ok)
			return m.Handler(router)
		}, hint: `rule "r": no request has a route yet when its key is taken`},
		"a route that it knows": {change: from(chiRoute), wrap: func(m *ratelimit.Middleware) http.Handler {
			router := chi.NewRouter()
			router.With(m.Handler).Handle("/*", ok)
			return router
		}},
		"a route on each route of a chi group": {change: from(chiRoute), wrap: func(m *ratelimit.Middleware) http.Handler {
			router := chi.NewRouter()
			router.Route("/", func(r chi.Router) { r.With(m.Handler).Handle("/*", ok) })
			return router
		}},
		"requests to no route": {change: from(keyfunc.Mux(http.NewServeMux())), hint: `1000 of the first 1000 requests had no key ("keyfunc: no key: no pattern matches the request")`},
		"some requests have no route": {change: from(keyfunc.Mux(mux)), wrap: func(m *ratelimit.Middleware) http.Handler {
			n := 0
			return m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				if n++; n == 1 {
					times(50, m.Handler(ok), "GET /no/thing")
				}
			}))
		}, hint: `50 of the first 1000 requests had no key ("keyfunc: no key: no pattern matches the request")`},

		"nobody has a key":            {change: from(keyfunc.Header("User"), perIP), hint: `rule "r": 1000 of the first 1000 requests had no key ("keyfunc: no key: no header`},
		"somebody has a key":          {change: from(keyfunc.First(keyfunc.Header("User"), keyfunc.Header("Client")), perIP)},
		"nobody has the required key": {change: from(keyfunc.Required(keyfunc.Header("User"), 401), perIP)},
		"an API key alone":            {change: from(keyfunc.APIKey("Client")), hint: `rule "r" is keyed by an API key`},
		"an API key and per IP":       {change: from(keyfunc.APIKey("Client"), perIP)},
		"first an API key alone":      {change: from(keyfunc.First(keyfunc.APIKey("Client"), keyfunc.IP)), hint: `rule "r" is keyed by an API key`},
		"never matched":               {change: from(keyfunc.IP, perHour("typo", 1_000_000, "GET /nowhere")), hint: `rule "typo": 0 of the first 1000 requests matched it`},
		"always skipped": {change: from(keyfunc.IP, rule{Name: "user", Key: keyfunc.Optional(keyfunc.Header("User")), Limit: perIP.Limit}),
			hint: `rule "user": 1000 of the first 1000 requests were skipped by its Key`},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			config := ratelimit.Config{Limiter: new(algorithms.Memory), DenialLogRate: -1, Logger: slog.New(slog.NewTextHandler(&log, nil)),
				Rules: []rule{{Name: "r", Key: keyfunc.IP, Limit: algorithms.PerHour(1_000_000)}}}
			r := config.Rules[0]
			if c.change != nil {
				c.change(&config, &r)
			}
			config.Rules[0] = r
			m, err := ratelimit.New(config)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "\n") != (name == "all of it is trusted, in halves") {
					t.Errorf("error %v, want %s", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.handler == nil {
				c.handler = ok
			}
			h := m.Handler(c.handler)
			if c.wrap != nil {
				h = c.wrap(m)
			}
			for i := range 1100 {
				r := httptest.NewRequest(http.MethodPost, fmt.Sprint("/", i), strings.NewReader("email=a"))
				for j := 0; j < len(c.header); j += 2 {
					r.Header.Set(c.header[j], c.header[j+1])
				}
				r.RemoteAddr = fmt.Sprintf("192.0.2.%d:%d", i%200, i)
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				r.Header.Set("Client", fmt.Sprint(i))
				if c.forwarded != "" {
					r.Header.Set("X-Forwarded-For", strings.ReplaceAll(c.forwarded, "%d", fmt.Sprint(i%200)))
				}
				if strings.HasPrefix(name, "bodies of") {
					r.Method = http.MethodGet
				}
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
			got := strings.ReplaceAll(log.String(), `\"`, `"`)
			if lines := strings.Count(got, "\n"); !strings.Contains(got, c.hint) || lines != min(len(c.hint), 1) {
				t.Errorf("logged\n%swant %q", got, c.hint)
			}
		})
	}
}

// Requests without a key share one count. If one client could have it banned, it
// could have all others denied.
func TestWhoHasNoKeyIsNotBanned(t *testing.T) {
	for name, key := range map[string]keyfunc.Key{
		"no header":    keyfunc.Header("User"),
		"an empty key": keyfunc.Func(func(r *http.Request) (string, error) { return r.Header.Get("User"), nil }),
	} {
		r := ratelimit.Rule{Name: "user", Key: key, Limit: algorithms.PerMinute(30), Ban: ratelimit.Ban{After: 1, For: 24 * time.Hour}}
		for user, want := range map[string]bool{"": false, "mallory": true} {
			m := inMemory(t, r)
			h := m.Handler(ok)
			var header []string
			if user != "" {
				header = []string{"User", user}
			}
			times(40, h, "GET /", header...)
			if d, err := m.Peek(request("GET /", header...)); err != nil || d.Allowed || d.Results[0].BannedFor > 0 != want {
				t.Errorf("%s: user %q: %+v, %v", name, user, d, err)
			}
		}
	}
}

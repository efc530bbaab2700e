package middleware

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed75154129/ratelimit/algorithms"
)

// Admin returns a handler for operators: the rules in force and their generation,
// the keys that were denied most, and, for one client, its counts, Reset, Ban and
// the end of a ban. It answers browsers with a page and all others with JSON.
//
//	mux.Handle("/ratelimit/", limit.Admin())
//
//	GET   ?rule=per-ip&value=2001:db8::1      the client's counts; without rule, all rules
//	POST  action=reset&rule=per-ip&value=…    forgets what the client has used
//	POST  action=ban&for=15m&rule=…&value=…   denies it for so long; action=unban ends that
//	POST  action=peek&rule=…&value=…          as GET, with nothing secret in the URL
//
// A client is named as for [Middleware.Checks], with a value for each part of the
// rule's Key, or by the id of an entry in the list of those denied most. The path
// does not matter. What is changed is logged. Keys are hashed as in the log, unless
// Config.LogKeys.
//
// Never serve it to the public: it has no authentication, and shows and lifts all
// limits. Put it on a listener of its own, or behind authentication. It refuses what
// pages of other sites make a browser send and, where it listens on a loopback
// address, requests for any other host than localhost or an address.
func (m *Middleware) Admin() http.Handler {
	m.mustBeMade()
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.answerOperator(w, r, nil, &operatorError{http.StatusForbidden,
			errors.New("refused: sent by a page of another site, or through a proxy that changed the Host")})
	}))
	protected := protection.Handler(http.HandlerFunc(m.serveOperator))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range adminHeaders {
			w.Header().Set(name, value)
		}
		if rebound(r) {
			m.answerOperator(w, r, nil, &operatorError{http.StatusMisdirectedRequest,
				errors.New("refused: on a loopback address only the host localhost or an address is served; a proxy must send one of these as Host")})
			return
		}
		protected.ServeHTTP(w, r)
	})
}

// adminHeaders keep the page out of caches and frames, and scripts out of the page.
var adminHeaders = map[string]string{
	"Cache-Control":                "no-store",
	"Content-Security-Policy":      "default-src 'none'; style-src '" + adminStyleHash + "'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Referrer-Policy":              "same-origin", // with no-referrer, browsers send "Origin: null" even to their own site
	"Vary":                         "Accept",
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
}

// rebound reports whether a request came to a loopback address by a name that is
// not localhost. Whoever owns a name can make it resolve to 127.0.0.1, and so make
// a browser believe that this handler is a part of their site.
func rebound(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	at, err := netip.ParseAddrPort(local.String())
	if err != nil || !at.Addr().Unmap().IsLoopback() {
		return false
	}
	host := (&url.URL{Host: r.Host}).Hostname()
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	_, err = netip.ParseAddr(host)
	return err != nil && host != "localhost" && !strings.HasSuffix(host, ".localhost")
}

// An operatorError is what an operator is told, and its status.
type operatorError struct {
	status int
	err    error
}

func (e *operatorError) Error() string { return e.err.Error() }
func (e *operatorError) Unwrap() error { return e.err }

// An order is what an operator asks for.
type order struct {
	action string // "peek", "reset", "ban" or "unban"
	rule   string // "" asks for the overview
	values []string
	id     string        // of a denied key, instead of values
	lasts  time.Duration // the ban
}

const (
	maxOrder    = 64 << 10 // bytes of a form or a query
	maxValues   = 16
	overviewTop = 50 // denied keys
)

func (m *Middleware) serveOperator(w http.ResponseWriter, r *http.Request) {
	o, err := orderOf(w, r)
	if err != nil || o.rule == "" {
		m.answerOperator(w, r, nil, err)
		return
	}
	client, err := m.carryOut(r, o)
	m.answerOperator(w, r, client, err)
}

// orderOf reads a request. A form that is posted counts without the URL's query.
func orderOf(w http.ResponseWriter, r *http.Request) (o order, err error) {
	bad := func(status int, format string, args ...any) (order, error) {
		return order{}, &operatorError{status, fmt.Errorf(format, args...)}
	}
	var form url.Values
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		if len(r.URL.RawQuery) > maxOrder {
			return bad(http.StatusRequestURITooLong, "the query has more than %d bytes", maxOrder)
		}
		form, err = url.ParseQuery(r.URL.RawQuery)
		o.action = "peek"
		if form.Has("action") {
			return bad(http.StatusMethodNotAllowed, "an action takes POST")
		}
	case http.MethodPost:
		r.Body = http.MaxBytesReader(w, r.Body, maxOrder)
		err = r.ParseForm()
		form, o.action = r.PostForm, r.PostForm.Get("action")
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			return bad(http.StatusRequestEntityTooLarge, "the form has more than %d bytes", maxOrder)
		}
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		return bad(http.StatusMethodNotAllowed, "takes GET and POST")
	}
	if err != nil {
		return bad(http.StatusBadRequest, "%w", err)
	}
	o.rule, o.id = form.Get("rule"), form.Get("id")
	if o.rule == "" && r.Method != http.MethodPost {
		return o, nil
	}
	for _, value := range form["value"] {
		if !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl) {
			return bad(http.StatusBadRequest, "a value has control characters or is not UTF-8: use Middleware.Checks in the program")
		}
		o.values = append(o.values, strings.TrimSpace(value))
	}
	switch {
	case o.rule == "":
		return bad(http.StatusBadRequest, "no rule: send a form with action, rule and value")
	case len(o.values) > maxValues:
		return bad(http.StatusBadRequest, "more than %d values", maxValues)
	case o.id != "" && o.values != nil:
		return bad(http.StatusBadRequest, "an id and values: send one of them")
	}
	switch o.action {
	case "peek", "reset", "unban":
	case "ban":
		if o.lasts, err = spanOf(form.Get("for")); err != nil {
			return bad(http.StatusBadRequest, "for: %w", err)
		}
	default:
		return bad(http.StatusBadRequest, "no such action: %.64q; send peek, reset, ban or unban", o.action)
	}
	return o, nil
}

// spanOf reads a duration in the form of a limit's period: "15m", "30d".
func spanOf(text string) (time.Duration, error) {
	if strings.ContainsFunc(text, unicode.IsSpace) {
		return 0, fmt.Errorf("%.64q is no duration", text)
	}
	l, err := algorithms.ParseLimit("1/" + text)
	if err != nil {
		return 0, fmt.Errorf("%.64q is no duration; write one such as 15m, 24h or 30d", text)
	}
	return l.Period, nil
}

// span is the text that spanOf reads.
func span(d time.Duration) string {
	return strings.TrimPrefix(algorithms.Limit{Rate: 1, Period: d}.String(), "1/")
}

// carryOut does what an operator asks for, and returns how the client stands then.
func (m *Middleware) carryOut(r *http.Request, o order) (*clientView, error) {
	rule, err := m.rules.Load().named(o.rule)
	if err != nil {
		return nil, &operatorError{http.StatusNotFound, err}
	}
	var keys []string
	if o.id != "" {
		keys, err = m.deniedKey(o.rule, o.id)
	} else if keys, err = rule.keysOf(o.values); err != nil {
		err = &operatorError{http.StatusBadRequest, err}
	}
	if err != nil {
		return nil, err
	}
	ctx := r.Context()
	switch o.action {
	case "reset":
		err = m.limiter.Reset(ctx, rule.checks(keys)...)
	case "ban", "unban": // a ban of no length ends one
		err = m.limiter.Ban(ctx, o.lasts, rule.checks(keys)...)
	}
	client := &clientView{Rule: o.rule, Action: o.action, order: o, secret: strings.Contains(keyName(rule.key), "apikey:")}
	if o.action != "peek" {
		m.logOrder(r, o, keys, err)
	}
	if err != nil {
		err = &operatorError{http.StatusInternalServerError, fmt.Errorf("%s: %w", o.action, err)}
	}
	client.Counts = m.counts(ctx, rule, keys)
	for _, key := range keys {
		client.Keys = append(client.Keys, m.shown(key))
	}
	return client, err
}

// logOrder logs what was changed by hand.
func (m *Middleware) logOrder(r *http.Request, o order, keys []string, err error) {
	shown := make([]string, len(keys))
	for i, key := range keys {
		shown[i] = m.shown(key)
	}
	attrs := []slog.Attr{slog.String("action", o.action), slog.String("rule", o.rule), slog.Any("keys", shown), slog.String("from", r.RemoteAddr)}
	if o.lasts > 0 {
		attrs = append(attrs, slog.Duration("for", o.lasts))
	}
	level, text := slog.LevelInfo, "ratelimit: changed by an operator"
	if err != nil {
		level, text = slog.LevelError, "ratelimit: change by an operator failed"
		attrs = append(attrs, slog.Any("error", err))
	}
	m.logger.LogAttrs(r.Context(), level, text, attrs...)
}

// deniedKey returns the key that has an id in the list of those denied most.
func (m *Middleware) deniedKey(rule, id string) ([]string, error) {
	for _, d := range m.top.list(time.Since(m.start)) {
		if d.Rule != rule || keyID(d.Key) != id {
			continue
		}
		if isBounded(d.Key) {
			return nil, &operatorError{http.StatusUnprocessableEntity, fmt.Errorf("the key has more than %d bytes, of which only a hash is kept: name the client by its values", maxShown)}
		}
		return []string{d.Key}, nil
	}
	return nil, &operatorError{http.StatusNotFound, errors.New("that key is no longer in the list of this process: name the client by its values")}
}

// counts are how keys stand by each limit that a rule may have for them.
func (m *Middleware) counts(ctx context.Context, r *rule, keys []string) (counts []countView) {
	for _, l := range r.limits() {
		d, err := m.ask(ctx, m.limiter.Peek, r.checksOf(l.Limit, keys))
		if err != nil {
			counts = append(counts, countView{Tier: l.tier, Limit: filled(l.Limit), Error: err.Error()})
			continue
		}
		for i := range d.Results {
			res := &d.Results[i]
			c := countView{
				Key: m.shown(res.Check.Key), Tier: l.tier, Limit: filled(res.Check.Limit), Cost: res.Check.Cost, Shadow: res.Check.Shadow,
				Source: string(res.Source), Allowed: res.Allowed, Banned: res.Banned, Remaining: res.Remaining,
				RetryAfter: seconds(res.RetryAfter), ResetAfter: seconds(res.ResetAfter), quota: res.Check.Limit.Quota(),
			}
			if res.Err != nil {
				c.Error = res.Err.Error()
			}
			counts = append(counts, c)
		}
	}
	return counts
}

// answerOperator responds with a client, or else with the overview.
func (m *Middleware) answerOperator(w http.ResponseWriter, r *http.Request, client *clientView, err error) {
	status := http.StatusOK
	if e, ok := errors.AsType[*operatorError](err); ok {
		status = e.status
	}
	if strings.Contains(strings.Join(r.Header["Accept"], ","), "text/html") {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(status)
		p := new(page)
		if status == http.StatusForbidden || status == http.StatusMisdirectedRequest {
			p.document(nil, nil, err) // shows nothing to who may be another site
		} else {
			p.document(m.overview(), client, err)
		}
		_, _ = w.Write(p.html) // nobody to tell
		return
	}
	var body any
	switch {
	case err != nil:
		body = struct {
			Error string `json:"error"`
		}{err.Error()}
	case client != nil:
		body = client
	default:
		body = m.overview()
	}
	text, err := json.MarshalIndent(body, "", "  ")
	if err != nil { // not reached: texts and numbers
		text = []byte(`{"error": "cannot be written as JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // nobody to tell
}

// overview is what operators see first.
func (m *Middleware) overview() *overview {
	set := m.rules.Load()
	o := &overview{Generation: set.generation, Share: m.share.text, Rules: make([]ruleView, len(set.rules)), TopDenied: []deniedView{}}
	if err := m.failures.current(); err != nil {
		o.RulesError = err.Error()
	}
	for inner := range layers(m.limiter) {
		if guard, ok := inner.(interface{ Down() []string }); ok {
			o.Down = guard.Down()
			break
		}
	}
	for i := range set.rules {
		o.Rules[i] = viewOf(&set.rules[i].source)
	}
	top := m.top.list(time.Since(m.start))
	for _, d := range top[:min(overviewTop, len(top))] {
		_, known := set.find(d.Rule, 0)
		o.TopDenied = append(o.TopDenied, deniedView{Rule: d.Rule, Key: m.shown(d.Key), ID: keyID(d.Key), Count: d.Count, Error: d.Error, known: known && !isBounded(d.Key)})
	}
	slices.Sort(o.Down)
	return o
}

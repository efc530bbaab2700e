package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// An order is what an operator asks for.
type order struct {
	action string // "peek", "reset", "ban" or "unban"
	rule   string // "" asks for the overview or, with values, for all rules
	values []string
	id     string        // of a denied key, instead of values
	lasts  time.Duration // the ban
}

const (
	maxOrder  = 64 << 10 // bytes of a form or a query
	maxValues = 16
)

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
	for _, value := range form["value"] {
		if !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl) {
			return bad(http.StatusBadRequest, "a value has control characters or is not UTF-8: use Middleware.Checks in the program")
		}
		o.values = append(o.values, strings.TrimSpace(value))
	}
	switch {
	case o.rule == "" && o.action != "peek" || o.rule == "" && o.values == nil && r.Method == http.MethodPost:
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
		keys, err = m.listedKey(o.rule, o.id)
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
	for _, key := range keys {
		switch b := (banned{o.rule, bounded(key)}); o.action {
		case "reset", "unban":
			m.bans.forget(b)
		case "ban":
			m.bans.note(b, byOperator+r.RemoteAddr, time.Now(), o.lasts)
		}
	}
	if o.action != "peek" {
		m.logOrder(r, o, keys, err)
	}
	if err != nil {
		status := http.StatusInternalServerError
		if errors.Is(err, errors.ErrUnsupported) {
			status = http.StatusNotImplemented
		}
		err = &operatorError{status, fmt.Errorf("%s: %w", o.action, err)}
	}
	return m.look(ctx, rule, o, keys), err
}

// look returns how keys stand by a rule.
func (m *Middleware) look(ctx context.Context, rule *rule, o order, keys []string) *clientView {
	client := &clientView{Rule: rule.check.Rule, Action: o.action, order: o, secret: keyfunc.Describe(rule.key).Secret(), Counts: m.counts(ctx, rule, keys)}
	for _, key := range keys {
		client.Keys = append(client.Keys, m.shown(key))
	}
	return client
}

// lookEverywhere returns how a client stands by each rule that counts by its values.
func (m *Middleware) lookEverywhere(ctx context.Context, o order) (clients []*clientView, err error) {
	set, secret := m.rules.Load(), false
	for i := range set.rules {
		if keys, err := set.rules[i].keysOf(o.values); err == nil {
			clients = append(clients, m.look(ctx, &set.rules[i], o, keys))
			secret = secret || clients[len(clients)-1].secret
		}
	}
	if clients == nil {
		return nil, &operatorError{http.StatusBadRequest, errors.New("no rule counts by such a value; name a rule to see what it takes")}
	}
	for _, client := range clients {
		client.secret = secret // a secret is one under all rules
	}
	return clients, nil
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

// listedKey returns the key that has an id in the list of those denied most, or of bans.
func (m *Middleware) listedKey(rule, id string) ([]string, error) {
	var listed []banned
	for _, d := range m.top.List(time.Since(m.start)) {
		listed = append(listed, banned{d.Rule, d.Key})
	}
	for _, b := range m.bans.list(time.Now()) {
		listed = append(listed, b.banned)
	}
	for _, b := range listed {
		if b.rule != rule || m.keyID(b.key) != id {
			continue
		}
		if isBounded(b.key) {
			return nil, &operatorError{http.StatusUnprocessableEntity, fmt.Errorf("the key has more than %d bytes, of which only a hash is kept: name the client by its values", maxShown)}
		}
		return []string{b.key}, nil
	}
	return nil, &operatorError{http.StatusNotFound, errors.New("that key is no longer in the list of this process: name the client by its values")}
}

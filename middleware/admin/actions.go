package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/banned"
	"github.com/seed75154129/ratelimit/internal/naming"
	"github.com/seed75154129/ratelimit/internal/near"
	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/internal/view"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// carryOut does what an operator asks for, and returns how the client stands then.
func (h *handler) carryOut(r *http.Request, o order) (*clientView, error) {
	ctx := r.Context()
	rules := h.limit.Operator().State().Rules
	at := slices.IndexFunc(rules, func(rule view.Rule) bool { return rule.Name == o.rule })
	if at < 0 {
		return nil, &mistake{http.StatusNotFound, noRule(o.rule, rules)}
	}
	keys, err := h.keysOf(o)
	if err != nil {
		return nil, err
	}
	client, err := h.limit.Operator().Client(o.rule, keys...)
	if err != nil { // the rules were replaced meanwhile
		return nil, &mistake{http.StatusNotFound, err}
	}
	switch o.action {
	case "reset":
		err = h.limiter.Reset(ctx, client.Checks...)
	case "used":
		err = h.use(ctx, &rules[at], o, client.Limits)
	case "raise":
		err = h.raise(ctx, &rules[at], o, keys)
	case "ban", "unban": // a ban of no length ends one
		why := ""
		if rules[at].Ban == nil {
			why = "the rule has no ban, so its requests look at none; give it one"
		} else if o.action == "ban" {
			why = deniesNothing(client.Limits)
		}
		if why != "" {
			err = &mistake{http.StatusConflict, fmt.Errorf("not done, because a ban would deny nothing: %s", why)}
			break
		}
		err = h.limit.Operator().Ban(ctx, o.rule, o.lasts, keys, r.RemoteAddr)
	}
	_, told := errors.AsType[*mistake](err)
	for _, key := range keys {
		if o.action == "reset" && !told {
			h.limit.Operator().Bans().Forget(banned.Key{Rule: o.rule, Key: h.limit.Operator().Shown(key).Kept})
		}
	}
	v := h.look(ctx, &rules[at], o, keys, client.Limits)
	if o.action != "peek" {
		h.logOrder(r, v, err)
	}
	if err == nil || told {
		return v, err
	}
	if errors.Is(err, errors.ErrUnsupported) {
		return v, &mistake{http.StatusNotImplemented, fmt.Errorf("%s: %w", o.action, err)}
	}
	if errors.Is(err, failmode.ErrOpen) && o.action != "used" {
		err = fmt.Errorf("not done on servers that are out of reach, repeat it when they are back: %w", err)
	}
	return v, &mistake{http.StatusInternalServerError, fmt.Errorf("%s: %w", o.action, err)}
}

// raise adds an override for each key to the document that has the rules.
func (h *handler) raise(ctx context.Context, rule *view.Rule, o order, keys []string) error {
	edit := h.limit.Operator().Editor()
	if edit == nil {
		return &mistake{http.StatusConflict, errors.New("not raised: this process does not follow a document in Redis; add an override to the rules")}
	}
	var overrides []ratelimit.Override
	for _, key := range keys {
		client := h.clientOf(rule, o, key)
		if client == nil {
			return &mistake{http.StatusConflict, errors.New("not raised: the client's key is a secret, so its override has to be written into the document")}
		}
		overrides = append(overrides, ratelimit.Override{Client: client, Limits: o.limits, Until: time.Now().Add(o.lasts).Truncate(time.Second)})
	}
	if _, err := edit(ctx, rule.Name, overrides); err != nil {
		return &mistake{http.StatusConflict, fmt.Errorf("not raised: %w", err)}
	}
	return nil
}

// deniesNothing says why a rule denies nothing to a client, whatever it has used; "" if it
// may deny.
func deniesNothing(limits []view.ClientLimit) (why string) {
	for _, c := range limits[0].Checks { // one for each key
		switch {
		case slices.ContainsFunc(limits, func(l view.ClientLimit) bool {
			return l.Limit.Rate < 0 && !l.Ended && l.Checks[0].Key == c.Key
		}):
			why = "an override makes this client unlimited"
		case c.Shadow:
			why = "the rule is in shadow for this client"
		default:
			return ""
		}
	}
	return why
}

// noRule is the error for a name that no rule has.
func noRule(name string, rules []view.Rule) error {
	names := make([]string, len(rules))
	for i := range rules {
		names[i] = rules[i].Name
	}
	err := fmt.Errorf("rule %.64q: no such rule", name)
	if best := near.Word(name, names); best != "" {
		err = fmt.Errorf("%w (did you mean %s?)", err, best)
	}
	return err
}

// use sets what is used of one count: it is forgotten, with the key's ban, and charged again.
// Requests that come between are counted on top.
func (h *handler) use(ctx context.Context, rule *view.Rule, o order, limits []view.ClientLimit) error {
	bad := func(format string, args ...any) error {
		return &mistake{http.StatusBadRequest, fmt.Errorf("used: "+format, args...)}
	}
	var found []algorithms.Check
	counts := make(map[step.Name]bool)
	for i := range limits {
		for j := range limits[i].Checks {
			c := h.countOf(&limits[i], &algorithms.Result{Check: limits[i].Checks[j]})
			is := func(field, has string) bool { sent, ok := o.count[field]; return !ok || sent == has }
			if is("key", c.Key) && is("tier", c.Tier) && is("override", c.Override) && is("limit", c.Limit) {
				found = append(found, limits[i].Checks[j])
				counts[naming.Of(&limits[i].Checks[j])] = true
			}
		}
	}
	if len(counts) != 1 {
		return bad("%d counts are meant; send the limit of one and, if there are several with it, its tier, override or key, as a look-up shows them", len(counts))
	}
	check := found[0]
	l := check.Limit
	window := l.Calendar != "" || l.Burst == 0 && slices.Contains([]algorithms.Algorithm{0, algorithms.FixedWindow, algorithms.SlidingWindow}, l.Algorithm)
	switch {
	case l.Rate < 0 || l.Algorithm == algorithms.InFlight:
		return bad("%s counts nothing that could be set", view.Limit(l))
	case window: // more than the limit may be used
	case slices.ContainsFunc(found, func(c algorithms.Check) bool { return c.Limit != l }):
		return bad("several limits share this count; send limit= or tier= of the one that applies to the client, as a look-up shows it")
	case o.used > l.Quota():
		return bad("of %s at most %d can be used, got %d", view.Limit(l), l.Quota(), o.used)
	}
	err := h.limiter.Reset(ctx, found[0])
	if rule.Ban != nil {
		err = errors.Join(err, h.limit.Operator().Ban(ctx, o.rule, 0, []string{check.Key}, ""))
	}
	if err != nil {
		return fmt.Errorf("not set, and forgotten in this process: %w", err)
	}
	if o.used == 0 {
		return nil
	}
	check.Cost, check.Shadow, check.Sync = min(o.used, l.Quota()), false, 0
	d, err := h.limiter.Take(ctx, check)
	if err == nil && d.Allowed && check.Cost < o.used {
		d.Results, err = h.limiter.Settle(ctx, algorithms.Charge{Result: d.Results[0], Cost: o.used})
	}
	if err != nil {
		return err
	}
	if r := &d.Results[0]; r.Charged != o.used || r.Source == algorithms.SourceFallback || window && l.Quota()-r.Remaining < o.used {
		return errors.New("the count was forgotten, but not all of it was charged again")
	}
	return nil
}

// keysOf returns the keys that an order is about.
func (h *handler) keysOf(o order) ([]string, error) {
	if o.ID != "" {
		return h.listedKey(o.rule, o.ID)
	}
	keys, err := h.limit.Operator().Keys(o.rule, o.Values...)
	if err != nil {
		status := http.StatusBadRequest
		if errors.Is(err, ratelimit.ErrNoRule) { // the rules were replaced meanwhile
			status = http.StatusNotFound
		} else if len(o.Values) == 0 {
			err = fmt.Errorf("%w; send value=…, once for each part of the key", err)
		}
		return nil, &mistake{status, err}
	}
	return keys, nil
}

// listedKey returns the key that has an id in the list of those denied most, or of bans.
func (h *handler) listedKey(rule, id string) ([]string, error) {
	var listed []banned.Key
	for _, d := range h.limit.Operator().Denied() {
		listed = append(listed, banned.Key{Rule: d.Rule, Key: d.Key})
	}
	for _, b := range h.limit.Operator().Bans().All(time.Now()) {
		listed = append(listed, b.Key)
	}
	missing := errors.New("no key in the lists of this process has that id: ids belong to the process that lists them; name the client by its values")
	for _, l := range listed {
		switch key := h.limit.Operator().Shown(l.Key); {
		case key.ID != id:
		case l.Rule != rule:
			missing = fmt.Errorf("this id is of a key of rule %.64q: send rule=%s", l.Rule, url.QueryEscape(l.Rule))
		case !key.Whole:
			return nil, &mistake{http.StatusUnprocessableEntity, errors.New("the key is too long, so that only a hash of it is kept: name the client by its values")}
		default:
			return []string{l.Key}, nil
		}
	}
	return nil, &mistake{http.StatusNotFound, missing}
}

// lookEverywhere returns how a client stands by each rule that counts by its values.
func (h *handler) lookEverywhere(ctx context.Context, o order) (clients []*clientView, err error) {
	rules := h.limit.Operator().State().Rules
	for i := range rules {
		if o.rule = rules[i].Name; rules[i].Secret && !o.secret {
			_, err := h.keysOf(o)
			o.secret = err == nil
		}
	}
	for i := range rules {
		o.rule = rules[i].Name
		keys, err := h.keysOf(o)
		if err != nil {
			continue
		}
		if client, err := h.limit.Operator().Client(o.rule, keys...); err == nil {
			clients = append(clients, h.look(ctx, &rules[i], o, keys, client.Limits))
		}
	}
	if clients == nil {
		return nil, &mistake{http.StatusBadRequest, errors.New("no rule counts by such a value; name a rule to see what it takes")}
	}
	return clients, nil
}

// logOrder logs what was changed by hand.
func (h *handler) logOrder(r *http.Request, c *clientView, err error) {
	attrs := []slog.Attr{slog.String("action", c.Action), slog.String("rule", c.Rule), slog.Any("keys", c.Keys), slog.String("from", r.RemoteAddr)}
	if c.Action == "used" {
		attrs = append(attrs, slog.Int64("n", c.Order.used), slog.String("limit", c.Order.count["limit"]))
	}
	if c.Order.lasts > 0 {
		attrs = append(attrs, slog.Duration("for", c.Order.lasts))
	}
	level, text := slog.LevelInfo, "ratelimit: changed by an operator"
	if err != nil {
		level, text = slog.LevelError, "ratelimit: change by an operator failed"
		if _, refused := errors.AsType[*mistake](err); refused {
			level = slog.LevelInfo
		}
		attrs = append(attrs, slog.Any("error", err))
	}
	h.limit.Operator().Logger().LogAttrs(r.Context(), level, text, attrs...)
}

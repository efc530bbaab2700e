package admin

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/view"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// A handler shows and changes a Middleware.
type handler struct {
	limit   *ratelimit.Middleware
	limiter algorithms.Limiter

	mu    sync.Mutex
	looks []order // the last that browsers were sent to
}

// An overview is what operators see first.
type overview struct {
	Generation int          `json:"generation"` // 1 for the first rules
	Version    int64        `json:"version,omitempty"`
	RulesError string       `json:"rules_error,omitempty"`
	Share      string       `json:"share,omitempty"`
	Down       int          `json:"down,omitempty"` // servers whose circuit is open
	Rules      []view.Rule  `json:"rules"`
	TopDenied  []deniedView `json:"top_denied"`
	Bans       []bannedView `json:"bans"`
}

// overviewTop is how many keys each list of an overview has.
const overviewTop = 50

func (h *handler) overview(ctx context.Context) *overview {
	s := h.limit.Operator().State()
	o := &overview{Generation: s.Generation, Version: s.Version, Share: s.Share, Down: s.Down, Rules: s.Rules, TopDenied: []deniedView{}, Bans: []bannedView{}}
	if s.Err != nil {
		o.RulesError = s.Err.Error()
	}
	rules := make(map[string]*view.Rule, len(s.Rules))
	for i := range s.Rules {
		rules[s.Rules[i].Name] = &s.Rules[i]
	}
	top := h.limit.Operator().Denied()
	for _, d := range top[:min(overviewTop, len(top))] {
		key := h.limit.Operator().Shown(d.Key)
		o.TopDenied = append(o.TopDenied, deniedView{Rule: d.Rule, Key: key.Text, ID: key.ID, Count: d.Count, Error: d.Error, Why: whyNot(rules[d.Rule], key)})
	}
	now, shown := time.Now(), 0
	for _, b := range h.limit.Operator().Bans().All(now) {
		rule := rules[b.Rule]
		if rule == nil {
			continue
		}
		if shown++; shown > overviewTop {
			break
		}
		key, rest := h.limit.Operator().Shown(b.Key.Key), b.Until.Sub(now)
		if key.Whole {
			rest = h.restOfBan(ctx, b.Rule, b.Key.Key, rest)
		}
		if rest > 0 {
			o.Bans = append(o.Bans, bannedView{Rule: b.Rule, Key: key.Text, ID: key.ID, By: b.By, Since: b.Since.UTC().Truncate(time.Second), EndsIn: view.Seconds(rest), Why: whyNot(rule, key)})
		}
	}
	return o
}

// whyNot says why a listed key cannot be looked up; "" if it can be.
func whyNot(rule *view.Rule, key view.Key) string {
	switch {
	case rule == nil:
		return "the rule was removed"
	case !key.Whole:
		return "long key: look it up by its value"
	}
	return ""
}

// restOfBan asks the limiter for how long a key is still banned. If the limiter cannot
// tell, it is as known. A ban is the rule's, so one of its limits is enough.
func (h *handler) restOfBan(ctx context.Context, rule, key string, known time.Duration) (rest time.Duration) {
	client, err := h.limit.Operator().Client(rule, key)
	if err != nil {
		return known
	}
	d, err := h.limit.Operator().Peek(ctx, client.Limits[0].Checks...)
	if err != nil {
		return known
	}
	for i := range d.Results {
		if d.Results[i].Err != nil {
			return known
		}
		rest = max(rest, d.Results[i].BannedFor)
	}
	return rest
}

// A deniedView is a key that was denied often.
type deniedView struct {
	Rule  string `json:"rule"`
	Key   string `json:"key"`
	ID    string `json:"id"` // names the key in this list
	Count int64  `json:"count"`
	Error int64  `json:"error"`

	Why string `json:"-"` // it cannot be looked up
}

// Least is how often the key was denied at least.
func (d *deniedView) Least() int64 { return d.Count - d.Error }

// A bannedView is a ban that this process knows of.
type bannedView struct {
	Rule   string       `json:"rule"`
	Key    string       `json:"key"`
	ID     string       `json:"id"`           // names the key in this list
	By     string       `json:"by,omitempty"` // "" for a ban that another process began
	Since  time.Time    `json:"since"`        // when this process has learned of it
	EndsIn view.Seconds `json:"ends_in"`

	Why string `json:"-"` // it cannot be looked up
}

// A clientView is how a client stands by one rule, after what was done to it.
type clientView struct {
	Action string      `json:"action"`
	Rule   string      `json:"rule"`
	Keys   []string    `json:"keys"`
	Counts []countView `json:"counts"`

	Order     order  `json:"-"`
	Secret    bool   `json:"-"` // the values are not shown
	Powerless string `json:"-"` // why nothing is denied; "" if something may be
	Bans      bool   `json:"-"` // the rule has a ban, so that clients can be banned by hand
	YAML      string `json:"-"` // an override for the client; "" if the rule takes none
	Raises    bool   `json:"-"` // the override can be added here
	Limit     string `json:"-"` // the rule's own
}

// ByTier reports whether the tier of a request decides.
func (c *clientView) ByTier() bool {
	return slices.ContainsFunc(c.Counts, func(c countView) bool { return c.Applies == "by tier" })
}

// Choice reports whether some limits do not apply, for which those that do are marked.
func (c *clientView) Choice() bool {
	return slices.ContainsFunc(c.Counts, func(c countView) bool { return c.Applies == "no" })
}

// Held reports whether requests in flight are counted.
func (c *clientView) Held() bool {
	return slices.ContainsFunc(c.Counts, func(c countView) bool { return c.Held && c.Used() > 0 })
}

// Counted reports whether anything is counted for the client, unless that is unknown.
func (c *clientView) Counted() bool {
	return slices.ContainsFunc(c.Counts, func(c countView) bool {
		return c.Elsewhere() || c.Error != "" || c.Banned || c.Remaining != c.Quota || c.ResetAfter != 0
	})
}

// A countView is how a key stands by one limit.
type countView struct {
	Key        string            `json:"key"`
	Tier       string            `json:"tier,omitempty"` // "" is the rule's own limit
	Override   string            `json:"override,omitempty"`
	Limit      string            `json:"limit"`
	Applies    string            `json:"applies"` // "yes", "no"; "by tier" and "by request" if the program decides
	Cost       int64             `json:"cost"`
	Shadow     bool              `json:"shadow,omitempty"`
	Source     algorithms.Source `json:"source"`
	Allowed    bool              `json:"allowed"`
	Banned     bool              `json:"banned,omitempty"`
	Remaining  int64             `json:"remaining"`
	RetryAfter view.Seconds      `json:"retry_after"`
	ResetAfter view.Seconds      `json:"reset_after"`
	Error      string            `json:"error,omitempty"`

	Quota     int64        `json:"-"`
	Held      bool         `json:"-"` // what is used is in flight
	BannedFor view.Seconds `json:"-"`
}

// Elsewhere reports whether the store has not answered.
func (c *countView) Elsewhere() bool {
	return c.Source != algorithms.SourceRedis && c.Source != algorithms.SourceMemory
}

// Used is what is in flight.
func (c *countView) Used() int64 { return c.Quota - c.Remaining }

// Left is what is left; 0 beyond the limit.
func (c *countView) Left() int64 { return max(0, c.Remaining) }

// Over is what is used beyond the limit.
func (c *countView) Over() int64 { return max(0, -c.Remaining) }

// look returns how keys stand by each limit that a rule may have for them.
func (h *handler) look(ctx context.Context, rule *view.Rule, o order, keys []string, limits []view.ClientLimit) *clientView {
	c := &clientView{Rule: rule.Name, Action: o.action, Order: o, Secret: rule.Secret || o.secret, Powerless: deniesNothing(limits), Bans: rule.Ban != nil}
	c.YAML, c.Raises = h.overrideFor(rule, o, keys), h.limit.Operator().Editor() != nil
	c.Limit = strings.Join(rule.Limit, ", ")
	for _, key := range keys {
		c.Keys = append(c.Keys, h.limit.Operator().Shown(key).Text)
	}
	overridden := make(map[string]bool)
	for _, l := range limits {
		if l.Override != "" && !l.Ended {
			overridden[l.Checks[0].Key] = true
		}
	}
	applies := func(l *view.ClientLimit, key string) string {
		switch {
		case l.Ended, l.Override == "" && overridden[key]:
			return "no"
		case l.Override != "":
			return "yes"
		case len(rule.Tiers) > 0:
			return "by tier"
		case rule.LimitsFor:
			return "by request"
		}
		return "yes"
	}
	for _, l := range limits {
		if l.Limit.Rate < 0 { // unlimited
			c.Counts = append(c.Counts, countView{Key: h.limit.Operator().Shown(l.Checks[0].Key).Text, Override: l.Override, Limit: view.Limit(l.Limit), Applies: applies(&l, l.Checks[0].Key), Allowed: true})
			continue
		}
		d, err := h.limit.Operator().Peek(ctx, l.Checks...)
		if err != nil {
			d.Results = make([]algorithms.Result, len(l.Checks))
			for i := range l.Checks {
				d.Results[i] = algorithms.Result{Check: l.Checks[i], Err: err}
			}
		}
		for i := range d.Results {
			count := h.countOf(&l, &d.Results[i])
			count.Applies = applies(&l, d.Results[i].Check.Key)
			c.Counts = append(c.Counts, count)
		}
	}
	return c
}

// overrideFor returns lines to add to the overrides of a rule, one for each key. What the
// lists do not show is not in them.
func (h *handler) overrideFor(rule *view.Rule, o order, keys []string) string {
	if rule.Values == 0 {
		return ""
	}
	list := func(texts []string) string {
		if len(texts) == 1 {
			return texts[0]
		}
		return "[" + strings.Join(texts, ", ") + "]"
	}
	var b strings.Builder
	for _, key := range keys {
		client := h.clientOf(rule, o, key)
		if client == nil {
			client = []string{"the client"}
		}
		quoted := make([]string, len(client))
		for i := range client {
			quoted[i] = strconv.Quote(client[i])
		}
		fmt.Fprintf(&b, "- {client: %s, limit: %s, until: %s@UTC}\n", list(quoted), list(rule.Limit), time.Now().UTC().AddDate(0, 0, 7).Format(time.DateOnly))
	}
	return strings.TrimSpace(b.String())
}

func (h *handler) countOf(l *view.ClientLimit, r *algorithms.Result) countView {
	c := countView{
		Key: h.limit.Operator().Shown(r.Check.Key).Text, Tier: l.Tier, Override: l.Override, Limit: view.Limit(r.Check.Limit), Cost: r.Check.Cost, Shadow: r.Check.Shadow,
		Source: r.Source, Allowed: r.HasRoom, Banned: r.BannedFor > 0, Remaining: r.Remaining, RetryAfter: view.Seconds(r.RetryAfter), ResetAfter: view.Seconds(r.ResetAfter),
		Quota: r.Check.Limit.Quota(), Held: r.Check.Limit.Algorithm == algorithms.InFlight, BannedFor: view.Seconds(r.BannedFor),
	}
	if r.Err != nil {
		c.Error = r.Err.Error()
	}
	return c
}

// clientOf returns what an Override has as its Client to stand for a key; nil if that is not
// shown.
func (h *handler) clientOf(rule *view.Rule, o order, key string) []string {
	number, _, _ := strings.Cut(key, ":")
	candidates := [][]string{{h.limit.Operator().Shown(key).Text}}
	if !rule.Secret && !o.secret && o.Values != nil {
		candidates = append([][]string{o.Values, {number + ":" + o.Values[0]}}, candidates...)
	}
	return h.limit.Operator().Names(rule.Name, key, candidates...)
}

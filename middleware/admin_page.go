package middleware

import (
	"crypto/sha256"
	_ "embed" // the style
	"encoding/base64"
	"fmt"
	"html"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// markup is HTML as it stands in this file. Whatever is not a constant of this
// package is text, which is escaped. (html/template would make the program of every
// user 9 MB larger: with it, the linker keeps all methods of all types.)
type markup string

// A page is HTML that is being written.
type page struct{ html []byte }

// raw writes what is HTML already.
func (p *page) raw(html string) { p.html = append(p.html, html...) }

// add writes markup, with a text in place of each {}. Placeholders stand between
// tags or in quoted attributes that are no URLs, scripts or styles.
func (p *page) add(m markup, texts ...string) {
	rest := string(m)
	for _, text := range texts {
		var before string
		before, rest, _ = strings.Cut(rest, "{}")
		p.raw(before)
		p.raw(html.EscapeString(visible(text)))
	}
	p.raw(rest)
}

// visible spells out what cannot be seen, such as a character that turns the
// direction of the text around it.
func visible(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) || r == '\n' {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRuneToGraphic(r), "'"))
		}
	}
	return b.String()
}

//go:embed admin.css
var adminStyle string

var adminStyleHash = func() string {
	sum := sha256.Sum256([]byte(adminStyle))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}()

// document writes the whole page. The clients are above all else; both they and the
// overview may be nil.
func (p *page) document(o *overview, clients []*clientView, err error) {
	p.add(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>Rate limits</title><style>`)
	p.raw(adminStyle)
	p.add(`</style></head><body>
<header><h1><a href="?">Rate limits</a></h1>`)
	if o != nil {
		p.add(`<p class="soft">{}, `, several(len(o.Rules), "rule"))
		if o.Version != 0 {
			p.add(`version {}, `, strconv.FormatInt(o.Version, 10))
		}
		p.add(`generation {}</p>`, strconv.Itoa(o.Generation))
	}
	p.add("</header>\n<main>\n")
	if err != nil {
		p.add(`<div class="card notice bad" role="alert">{}</div>`+"\n", err.Error())
	}
	if o != nil {
		p.add(`<form class="search" method="post"><input name="value" required autocomplete="off" autocapitalize="none" spellcheck="false" placeholder="a client, under all rules" aria-label="a client, under all rules">`)
		p.add(`<button class="strong" name="action" value="peek">Look up</button></form>` + "\n")
	}
	var empty []string
	for _, client := range clients {
		if len(clients) > 1 && !client.counted() {
			empty = append(empty, client.Rule)
		} else {
			p.client(client, err == nil)
		}
	}
	if empty != nil {
		p.add(`<div class="card notice">Nothing is counted for this client under {}.</div>`+"\n", strings.Join(empty, ", "))
	}
	if o != nil {
		p.overview(o)
	}
	p.add("</main></body></html>\n")
}

func several(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}

func (p *page) overview(o *overview) {
	if o.RulesError != "" {
		p.add(`<div class="card notice bad" role="alert"><b>New rules are refused; these stay in force.</b><pre>{}</pre></div>`+"\n", o.RulesError)
	}
	if len(o.Down) > 0 {
		p.add(`<div class="card notice bad" role="alert"><b>Out of reach: {}.</b> Rules follow their fail modes.</div>`+"\n", strings.Join(o.Down, ", "))
	}
	if len(o.Bans) > 0 {
		p.add(`<h2>Banned</h2><p class="soft">The bans that this process began or met, those by hand first.</p>`)
		list(p, o.Bans, p.ban)
	}
	p.add("<h2>Denied most</h2>\n")
	if len(o.TopDenied) == 0 {
		p.add(`<p class="soft">Nobody was denied by this process in the last ten minutes.</p>` + "\n")
	} else {
		p.add(`<p class="soft">By this process, in the last ten to twenty minutes.</p>`)
		list(p, o.TopDenied, p.deniedKey)
	}
	p.add("<h2>Rules in force</h2>\n")
	if o.Share != "" {
		p.add(`<p class="soft">This region has {} of each limit.</p>`+"\n", o.Share)
	}
	p.add(`<div class="grid">` + "\n")
	for i := range o.Rules {
		p.rule(&o.Rules[i])
	}
	p.add("</div>\n")
}

// list writes a row for each key, the first ten in sight.
func list[T any](p *page, keys []T, row func(*T)) {
	card := func(keys []T) {
		p.add(`<div class="card list">` + "\n")
		for i := range keys {
			row(&keys[i])
		}
		p.add("</div>\n")
	}
	first := min(len(keys), 10)
	card(keys[:first])
	if rest := keys[first:]; len(rest) > 0 {
		p.add("<details><summary>{} more</summary>", strconv.Itoa(len(rest)))
		card(rest)
		p.add("</details>\n")
	}
}

func (p *page) deniedKey(d *deniedView) {
	p.add(`<div class="row"><span class="who"><b>{}</b> <code>{}</code></span><span><b>{}</b> denied`, d.Rule, named(d.Key), strconv.FormatInt(d.Count, 10))
	if d.Error > 0 {
		p.add(` <span class="soft" title="at most so many too many">−{}</span>`, strconv.FormatInt(d.Error, 10))
	}
	p.add(`</span>`)
	p.listed(d.Rule, d.ID, d.known)
}

func (p *page) ban(b *bannedView) {
	what := "set by " + b.By
	if b.By == "" {
		what = "met"
	}
	p.add(`<div class="row"><span class="who ban"><b>{}</b> <code>{}</code> <span class="soft"><b>{}</b> left, {}, {}</span></span>`,
		b.Rule, named(b.Key), b.EndsIn.String(), what, b.Since.Format("2006-01-02 15:04 UTC"))
	p.listed(b.Rule, b.ID, b.known)
}

// listed ends the row of a key in a list.
func (p *page) listed(rule, id string, known bool) {
	if known {
		p.add(`<form method="post"><input type="hidden" name="rule" value="{}"><input type="hidden" name="id" value="{}"><button name="action" value="peek">Look up</button></form>`, rule, id)
	}
	p.add("</div>\n")
}

// named is a key as text; requests without a key share one.
func named(key string) string {
	if key == "" {
		return "(no key)"
	}
	return key
}

func (p *page) rule(r *ruleView) {
	p.add(`<section class="card rule"><div class="head"><h3>{}</h3>`, r.Name)
	switch {
	case r.Disabled:
		p.add(`<span class="chip bad">disabled</span>`)
	case r.Shadow && r.Enforce == 0:
		p.add(`<span class="chip bad">shadow: not enforced</span>`)
	case r.Shadow:
		p.add(`<span class="chip bad">shadow: enforced for {} %</span>`, strconv.FormatFloat(r.Enforce*100, 'g', 4, 64))
	}
	p.add(`<span class="chip">fail {}</span>`, r.Fail)
	for _, flag := range []struct {
		set  bool
		name string
	}{{r.Hidden, "hidden"}, {r.Lease, "lease"}} {
		if flag.set {
			p.add(`<span class="chip">{}</span>`, flag.name)
		}
	}
	p.add("</div><dl>")
	p.term("limit", r.Limit.String(), r.LimitsFor)
	for _, tier := range slices.Sorted(maps.Keys(r.Tiers)) {
		p.term("tier "+tier, r.Tiers[tier].String(), false)
	}
	if r.TierBy != "" {
		p.term("tiers by", r.TierBy, false)
	}
	if r.Overrides > 0 {
		p.term("overrides", strconv.Itoa(r.Overrides), false)
	}
	p.term("per", r.Key, false)
	for _, pattern := range r.Match {
		p.term("on", pattern, false)
	}
	if r.Cost != 1 || r.CostFor {
		p.term("cost", strconv.FormatInt(r.Cost, 10), r.CostFor)
	}
	if r.MaxReserve > 0 {
		p.term("reserves at most", strconv.FormatFloat(r.MaxReserve*100, 'g', 4, 64)+" %", false)
	}
	for _, pattern := range slices.Sorted(maps.Keys(r.Costs)) {
		p.term("cost "+strconv.FormatInt(r.Costs[pattern], 10), pattern, false)
	}
	if r.ChargeOn != nil {
		p.term("charged on", strings.Trim(fmt.Sprint(r.ChargeOn), "[]"), false)
	}
	if r.Ban != nil {
		p.term("ban", fmt.Sprintf("after %d denials within %s, for %s", r.Ban.After, r.Ban.Within, r.Ban.For), false)
	}
	p.add(`</dl><form method="post"><input type="hidden" name="rule" value="{}">`, r.Name)
	parts := strings.Split(strings.Trim(r.Key, "[]"), ", ")
	for i := range r.values {
		hint := fmt.Sprintf("value %d of %d", i+1, r.values)
		if len(parts) == r.values {
			hint = parts[i]
		}
		p.add(`<input name="value" required autocomplete="off" autocapitalize="none" spellcheck="false" placeholder="{}" aria-label="{}">`, hint, r.Name+": "+hint)
	}
	p.add(`<button name="action" value="peek">Look up</button></form></section>` + "\n")
}

// term writes a field of a rule, which a function of the program may override.
func (p *page) term(name, value string, function bool) {
	p.add(`<dt>{}</dt><dd><code>{}</code>`, name, value)
	if function {
		p.add(` <span class="soft">or what the program says</span>`)
	}
	p.add("</dd>")
}

// What was done, where it was.
var done = map[string]string{"reset": "Reset.", "ban": "Banned.", "unban": "Ban lifted."}

func (p *page) client(c *clientView, ok bool) {
	if text := done[c.Action]; ok && text != "" {
		p.add(`<div class="card notice" role="status">{}</div>`+"\n", text)
	}
	p.add(`<h2>One client of {}</h2><div class="card"><div class="head">`, c.Rule)
	switch {
	case c.order.id != "" || len(c.order.values) == 0:
	case c.secret:
		p.add(`<h3>a secret</h3>`)
	default:
		p.add(`<h3>{}</h3>`, strings.Join(c.order.values, ", "))
	}
	p.add(`<span class="soft">counted as `)
	for i, key := range c.Keys {
		if i > 0 {
			p.add(", ")
		}
		p.add(`<code>{}</code>`, named(key))
	}
	p.add(`</span></div>`)
	if !c.counted() {
		p.add(`<p><b>Nothing is counted for this client.</b> It has sent nothing lately, or its value is spelled differently.</p>`)
	}
	p.add(`<div class="counts">`)
	for i := range c.Counts {
		p.count(&c.Counts[i], len(c.Keys) > 1)
	}
	p.add(`</div><div class="orders">`)
	p.order(c, `<button class="strong" name="action" value="reset">Reset</button>`)
	p.order(c, `<button name="action" value="unban">Lift ban</button>`)
	p.order(c, `<button name="action" value="peek">Look again</button>`)
	p.add(`</div><details><summary>Ban…</summary><p>Every process denies all of this client's requests to the rule {} for so long.</p>`, c.Rule)
	p.order(c, `<select name="for" aria-label="how long"><option>1m</option><option selected>15m</option><option>1h</option><option>24h</option><option>30d</option></select>
<button class="bad" name="action" value="ban">Ban this client</button>`)
	p.add("</details></div>\n")
}

// order writes a form about the same client.
func (p *page) order(c *clientView, buttons markup) {
	p.add(`<form method="post"><input type="hidden" name="rule" value="{}">`, c.Rule)
	if c.order.id != "" {
		p.add(`<input type="hidden" name="id" value="{}">`, c.order.id)
	}
	for _, value := range c.order.values {
		// Exactly what was sent: not made visible, and checked when it was read.
		p.add(`<input type="hidden" name="value" value="`)
		p.raw(html.EscapeString(value))
		p.add(`">`)
	}
	p.add(buttons)
	p.add("</form>\n")
}

func (p *page) count(c *countView, several bool) {
	p.add(`<div class="count"><div class="head"><code>{}</code>`, c.Limit)
	if c.Tier != "" {
		p.add(`<span class="chip">tier {}</span>`, c.Tier)
	}
	if c.Override != "" {
		p.add(`<span class="chip">{}</span>`, c.Override)
	}
	if c.Shadow {
		p.add(`<span class="chip">shadow</span>`)
	}
	switch {
	case c.Error != "":
	case c.Banned:
		p.add(`<span class="chip bad">banned</span>`)
	case c.Allowed:
		p.add(`<span class="chip good">admits</span>`)
	default:
		p.add(`<span class="chip bad">denies</span>`)
	}
	p.add("</div>")
	if several {
		p.add(`<code>{}</code>`, named(c.Key))
	}
	switch {
	case c.Error != "":
		p.add(`<p class="soft">Not known: {}</p>`, c.Error)
	case c.quota == 0: // unlimited
	case c.held:
		used, quota := strconv.FormatInt(c.quota-c.Remaining, 10), strconv.FormatInt(c.quota, 10)
		p.add(`<p><span class="big">{}</span> of {} in flight</p><meter max="{}" value="{}">{}</meter><p class="soft">Counted by {}. `,
			used, quota, quota, strconv.FormatInt(min(c.quota-c.Remaining, c.quota), 10), used, c.Source)
		p.add("After a reset, what still runs is counted again within a third of the lease.</p>")
	default:
		left, quota := strconv.FormatInt(c.Remaining, 10), strconv.FormatInt(c.quota, 10)
		p.add(`<p><span class="big">{}</span> of {} left</p><meter max="{}" value="{}">{}</meter><p class="soft">`,
			left, quota, quota, strconv.FormatInt(max(c.Remaining, 0), 10), left)
		if !c.Allowed && c.RetryAfter != c.ResetAfter {
			p.add("Next in {}. ", c.RetryAfter.String())
		}
		if c.ResetAfter != 0 {
			p.add("All is free in {}. ", c.ResetAfter.String())
		}
		p.add("Counted by {}.</p>", c.Source)
	}
	p.add("</div>\n")
}

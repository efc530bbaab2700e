package middleware

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/banned"
	"github.com/seed75154129/ratelimit/internal/given"
	"github.com/seed75154129/ratelimit/internal/hint"
	"github.com/seed75154129/ratelimit/internal/naming"
	"github.com/seed75154129/ratelimit/internal/pattern"
	"github.com/seed75154129/ratelimit/internal/view"
	"github.com/seed75154129/ratelimit/keyfunc"
)

const (
	maxName    = 64   // bytes
	maxEntries = 1000 // of Match, Costs, Tiers and Overrides, which are compared with each other
	maxWindows = 8    // that a request may have by one rule
	// shortest is the shortest time that a rule may count by. Anything below is shorter
	// than a decision may take, and limits nobody.
	shortest = 10 * time.Millisecond

	fewUnits = 10             // fewer are better counted one by one
	longBan  = 365 * day      // longer ones are mostly a unit too large
	longFill = 30 * day       // to refill a bucket
	day      = 24 * time.Hour // without leap seconds

	minSync, maxSync = 20 * time.Millisecond, time.Second
	syncPart         = 20 // of a period
)

// unseen is the remedy for a character that editors and reviews do not show.
const unseen = "there is a character in it that is not visible; remove it"

// ofHeld is the remedy for costs of requests in flight.
const ofHeld = "a request in flight costs 1; leave it out, and count units by another rule, such as one with the limit 1000/1m"

// table has all that can be wrong with a rule, in the order of its fields. New, SetRules and
// rule files report it; limits of LimitsFor are held against its rows of limits; the log has
// its warnings.
var table = []row{
	{field: "Name", required: true, rule: func(r *Rule, f *found) {
		bad := strings.IndexFunc(r.Name, func(c rune) bool {
			return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.'
		})
		switch {
		case r.Name == "":
			f.say("required")
		case len(r.Name) > maxName:
			f.say("%d bytes; at most %d", len(r.Name), maxName)
		case bad >= 0:
			f.say("%q in %q; use letters, digits, '-', '_' and '.'", []rune(r.Name[bad:])[0], r.Name)
		}
	}},
	{field: "Match", rule: func(r *Rule, f *found) {
		for i, text := range r.Match {
			_, err := pattern.Parse(text)
			f.err([]any{i}, err)
		}
	}},
	{field: "Match", warn: true, rule: func(r *Rule, f *found) {
		match := r.patterns()
		if len(match) > 0 && keyfunc.Describe(r.Key).ReadsBody() && !slices.ContainsFunc(match, func(p pattern.Pattern) bool { return p.HasBodies() }) {
			f.say("its Key reads the body, and requests that its Match takes mostly have none; add the method that sends one, such as POST")
		}
	}},
	{field: "Key", required: true, rule: func(r *Rule, f *found) { f.err(nil, validateKey(r.Key)) }},
	{field: "Limits", rule: func(r *Rule, f *found) {
		if r.Limit != (algorithms.Limit{}) {
			f.say("set beside Limit; set one of the two")
		}
	}},
	{field: "Tiers", rule: func(r *Rule, f *found) {
		lower := make(map[string]string, len(r.Tiers))
		for _, tier := range slices.Sorted(maps.Keys(r.Tiers)) {
			other, taken := lower[strings.ToLower(tier)]
			lower[strings.ToLower(tier)] = tier
			switch {
			case tier == "":
				f.in([]any{tier}, `a tier needs a name: "" is the tier of requests that have none`)
			case tier != strings.TrimSpace(tier):
				f.in([]any{tier}, "there is white space around it; write %q", strings.TrimSpace(tier))
			case strings.ContainsFunc(tier, pattern.Invisible):
				f.in([]any{tier}, unseen)
			case taken:
				f.in([]any{tier}, "differs from %q only in case; keep the one that Config.TierFor returns", other)
			}
		}
	}},
	{field: "Overrides", rule: func(r *Rule, f *found) {
		if validateKey(r.Key) != nil {
			return // it is reported
		}
		first := make(map[string]int, len(r.Overrides))
		for i, o := range r.Overrides {
			if strings.ContainsFunc(o.Note, pattern.Invisible) {
				f.in([]any{i, "note"}, unseen)
			}
			if y := o.Until.UTC().Year(); !o.Until.IsZero() && (y < 2000 || y > 9998) { // others cannot be written as JSON
				f.in([]any{i, "until"}, "must be in the years 2000 to 9998, got %d; leave it out if the override does not end", y)
			}
			client := []any{i, "client"}
			if mistake := inClient(o.Client); mistake != "" {
				f.in(client, "%s", mistake)
			} else if key, err := keyOfOverride(r.Key, o.Client); err != nil {
				f.in(client, "%w", err)
			} else if other, taken := first[key]; taken {
				f.in(client, "the same as of overrides[%d]: keep one of them", other)
			} else {
				first[key] = i
			}
		}
	}},
	{field: "Overrides", warn: true, rule: func(r *Rule, f *found) {
		if chosen := r.forgeable(); len(r.Overrides) > 0 && chosen != "" {
			f.say("its Key is %s, so any client can have the limits of its Overrides; "+
				"use a Key that the program or a proxy has verified, such as keyfunc.Context or keyfunc.Proxies.UserID", chosen)
		}
		for i := range r.Overrides {
			if o := &r.Overrides[i]; o.ended() {
				f.say("%s ended at %s; remove it", nameOfOverride(i, o), o.Until.UTC().Format(time.RFC3339))
			}
		}
	}},

	{limits: func(_ *Rule, set *limitSet, f *found) {
		if n := len(set.all); n == 0 || n > maxWindows {
			f.say("%d limits; write 1 to %d", n, maxWindows)
			return
		}
		for i, l := range set.all {
			if l == unlimited {
				f.say("Unlimited is for a tier, an override or LimitsFor, alone and not beside other limits; to turn a whole rule off, leave it out or set Shadow")
				continue
			}
			if l.Calendar == "" && l.Period > 0 && l.Period < shortest {
				f.err(nil, given.TooShort("the period", l.Period, shortest))
				l.Period = shortest // which is reported once
			}
			f.err(nil, l.Validate())
			if isHeld(l) && len(set.all) > 1 {
				f.say("%s counts requests, and other limits may count units; write two rules", l)
			}
			for _, other := range set.all[:i] {
				if naming.Limit(other).Window() == naming.Limit(l).Window() {
					f.say("%s and %s are one count; keep one of them, or write another period", other, l)
				}
			}
		}
	}},
	{limits: func(r *Rule, set *limitSet, f *found) {
		for _, l := range set.valid {
			part, err := f.share.limit(l) // rounded up, it would admit more than the limit in all regions together
			if cost := r.largestCost(); err != nil {
				f.say("%w; raise the limit or Config.Share", err)
			} else if f.share.part != nil && part.Quota() < cost && set.field != "" {
				f.say("the share %s of %s holds %d units, and a request costs up to %d: it would never pass; raise the limit or Config.Share",
					f.share.text, l, part.Quota(), cost)
			}
		}
	}},
	{warn: true, limits: func(_ *Rule, set *limitSet, f *found) {
		for _, l := range set.limited() {
			bucket, quota := !isWindow(l), l.Quota()
			if l.Algorithm == 0 && !bucket && l.Rate < fewUnits && l.Period >= time.Minute {
				f.say("%s is a sliding_window, which may deny for up to %s; for so few units write Algorithm: algorithms.SlidingLog, "+
					"in text %q, or name the sliding_window to keep it", set.name(l), l.Period+l.Period/time.Duration(l.Rate), l.String()+" sliding_log")
			}
			if bucket && quota/l.Rate > 1000 && refill(l) > float64(longFill) {
				f.say("%s admits %d units at once, and needs more than %d days to refill; write a smaller burst or a higher rate", set.name(l), quota, longFill/day)
			}
		}
	}},

	{field: "Cost", rule: func(r *Rule, f *found) {
		if r.Cost < 0 {
			f.say("must not be negative, got %d", r.Cost)
		}
	}},
	{field: "Cost", limits: func(r *Rule, set *limitSet, f *found) {
		if r.Cost > 1 && slices.ContainsFunc(set.valid, isHeld) {
			f.say("%s; got %d", ofHeld, r.Cost)
		}
		f.above(nil, r.Cost, set)
	}},
	{field: "Costs", rule: func(r *Rule, f *found) {
		mux, match := http.NewServeMux(), r.patterns()
		for _, text := range slices.Sorted(maps.Keys(r.Costs)) {
			p, err := pattern.Parse(text)
			if err == nil && len(f.all) < maxFound { // finding conflicts takes time
				err = pattern.Conflict(mux, text)
			}
			if f.err([]any{text}, err); err == nil && match != nil && !slices.ContainsFunc(match, func(m pattern.Pattern) bool { return m.Meets(&p) }) {
				f.in([]any{text}, "the rule matches no such request, so the cost would never apply; let the rule match it, or leave the cost out")
			}
			if r.Costs[text] < 1 {
				f.in([]any{text}, "must be at least 1, got %d", r.Costs[text])
			}
		}
	}},
	{field: "Costs", limits: func(r *Rule, set *limitSet, f *found) {
		if slices.ContainsFunc(set.valid, isHeld) {
			f.say(ofHeld)
			return
		}
		for _, text := range slices.Sorted(maps.Keys(r.Costs)) {
			f.above([]any{text}, r.Costs[text], set)
		}
	}},
	{field: "CostFor", limits: func(_ *Rule, set *limitSet, f *found) {
		if slices.ContainsFunc(set.valid, isHeld) {
			f.say(ofHeld)
		}
	}},

	{field: "ChargeOn", rule: func(r *Rule, f *found) {
		if len(r.ChargeOn) == 0 {
			f.say("empty: every response would be given back; leave it nil to charge all")
		}
		for i, status := range r.ChargeOn {
			if status < 200 || status > 599 {
				f.in([]any{i}, "status %d: must be 200 to 599", status)
			} else if slices.Contains(r.ChargeOn[:i], status) {
				f.in([]any{i}, "status %d: listed twice", status)
			}
		}
	}},
	{field: "ChargeOn", limits: func(_ *Rule, set *limitSet, f *found) {
		for _, l := range set.valid {
			if isHeld(l) {
				f.say("every request in flight is released when it ends, whatever its status; leave it out, or write another rule with a window, such as 5/1m")
			} else if !isWindow(l) {
				f.say("needs a window, from which all can be given back, and %s is none; use %s, %s or %s",
					set.name(l), algorithms.FixedWindow, algorithms.SlidingWindow, algorithms.SlidingLog)
			}
		}
	}},
	{field: "ChargeOn", warn: true, limits: func(r *Rule, set *limitSet, f *found) {
		for _, l := range set.limited() {
			if part, _ := f.share.limit(l); part.Quota()/r.largestCost() < 2 {
				f.say("until its response is written, a request takes %d of the limit %s, so no other one of its key passes at the same time; raise the limit",
					r.largestCost(), part)
			}
		}
	}},

	{field: "Ban", rule: func(r *Rule, f *found) {
		b := r.Ban
		for i, d := range [...]*time.Duration{&b.Within, &b.For} {
			if *d > 0 && *d < shortest {
				f.err([]any{[...]string{"within", "for"}[i]}, given.TooShort("the time", *d, shortest))
				*d = shortest // which is reported once
			}
		}
		for _, err := range view.Each(banned.Terms{After: b.After, Within: cmp.Or(b.Within, shortest), For: b.For}.Validate()) {
			part, text, _ := strings.Cut(err.Error(), ": ")
			f.in([]any{part}, "%s", text)
		}
		if most, within, l := r.mostCharged(f.share); r.ChargeOn != nil && b.After > most && most > 0 {
			by := "the limit"
			if f.share.part != nil {
				by = "this region's share"
			}
			f.in([]any{"after"}, "%d responses that count cannot come within %s, since %s %s admits %d, and with charge_on a denial is no strike; write a longer within or a lower after",
				b.After, within, by, l, most)
		}
		if r.Key != nil && keyfunc.Describe(r.Key).Values() == 0 {
			f.say("all clients have one key, so each of them could have all others denied: " +
				"ban by another key, such as keyfunc.IP, or leave the ban out")
		}
	}},
	{field: "Ban", limits: func(r *Rule, set *limitSet, f *found) {
		by := ""
		if set.by != "" {
			by = "by " + set.by + ": "
		}
		switch {
		case slices.ContainsFunc(set.all, isHeld):
			f.say("not with in_flight, whose denials come of requests that end; put the ban on a rule with a rate, such as 100/1m")
		case !slices.ContainsFunc(set.all, leadsToBan):
			f.say("%sdenials by calendar windows lead to no ban, since a client that has used up its quota is no attacker; add a limit with a short period, or leave the ban out", by)
		case len(set.all) > 1 && r.Ban.Within == 0:
			f.say("%sneeds within, since the periods of several limits differ", by)
		}
	}},
	{field: "Ban", warn: true, rule: func(r *Rule, f *found) {
		if r.Ban.For > longBan {
			f.say("it bans for %d days, so whoever has the address next is denied, too; write less than a year", r.Ban.For/day)
		}
		if chosen := r.forgeable(); r.Ban.For > time.Hour && chosen != "" && !hint.Of(r.Key).Address {
			f.say("its Key is %s, so anybody can have the keys of others banned for %s; write a shorter ban", chosen, view.Span(r.Ban.For))
		}
	}},
	{field: "Ban", warn: true, limits: func(r *Rule, set *limitSet, f *found) {
		shortest, least := algorithms.Limit{}, longBan // until a denied client has room
		for _, l := range set.valid {
			free := l.Period
			if !isWindow(l) {
				free /= time.Duration(l.Rate)
			}
			if l.Calendar == "" && free < least {
				shortest, least = l, free
			}
		}
		if set.by == "" && r.Ban.For < least && least < longBan {
			f.say("it bans for %s, and the limit %s denies for up to %s anyway; write a longer ban", r.Ban.For, shortest, least)
		}
	}},

	{field: "Fail", rule: func(r *Rule, f *found) {
		_, err := r.Fail.MarshalText()
		f.err(nil, err)
	}},
	{field: "RetryAfter", rule: func(r *Rule, f *found) {
		switch d := r.RetryAfter; {
		case d < time.Second || d > time.Hour:
			f.say("must be from a second to an hour, got %s; write one such as 15*time.Second, in a file 15s", d)
		case !r.hasHeld():
			f.say("is for limits in flight, such as 2 in flight; others know when they have room: leave it out")
		}
	}},
	{field: "Enforce", rule: func(r *Rule, f *found) {
		if !(r.Enforce >= 0 && r.Enforce <= 1) { // NaN is neither
			f.say("must be 0 to 1, the fraction of keys that are limited; got %v", r.Enforce)
		} else if !r.Shadow {
			f.say("needs shadow: without it the rule is enforced for all keys; write shadow: true, or leave enforce out")
		}
	}},
	{field: "Enforce", warn: true, rule: func(r *Rule, f *found) {
		if r.Enforce < 1 && keyfunc.Describe(r.Key).Values() == 0 {
			f.say("all clients have one key, so Enforce enforces it for all or for none; write a key that tells clients apart")
		}
	}},

	{field: "Sync", rule: func(r *Rule, f *found) {
		if err := given.TooShort("the time", r.Sync, minSync); err != nil {
			f.err(nil, err)
		} else if r.Sync > maxSync {
			f.say("must be at most %s, got %s", maxSync, r.Sync)
		}
		if r.ChargeOn != nil {
			f.say("does not go with charging by response, whose refunds have to be counted at once; leave one of them out")
		}
		if r.Ban != (Ban{}) {
			f.say("does not go with a ban, since only Redis knows who is denied; leave one of them out")
		}
	}},
	{field: "Sync", limits: func(r *Rule, set *limitSet, f *found) {
		for _, l := range set.valid {
			switch row := naming.Limit(l).Row(); {
			case !row.Copied:
				f.say("not with %s, of which a process has no copy; use %s, %s or %s, or leave sync out",
					set.name(l), algorithms.FixedWindow, algorithms.SlidingWindow, algorithms.TokenBucket)
			case l.Calendar == "" && r.Sync > l.Period/syncPart:
				f.say("%s is more than a twentieth of the period of %s; write %s or less", r.Sync, set.name(l), l.Period/syncPart)
			}
		}
	}},

	{field: "Note", rule: func(r *Rule, f *found) {
		if strings.ContainsFunc(r.Note, pattern.Invisible) {
			f.say(unseen)
		}
	}},
}

// above says that a cost is more than a limit can ever hold. LimitsFor may return such limits,
// which deny.
func (f *found) above(at []any, cost int64, set *limitSet) {
	for _, l := range set.valid {
		if quota := l.Quota(); cost > quota && set.field != "" {
			f.in(at, "%d is above the %d units that %s can hold: no request would pass", cost, quota, set.name(l))
		}
	}
}

func validateKey(key keyfunc.Key) error {
	if f, ok := key.(keyfunc.Func); key == nil || ok && f == nil {
		return errors.New("required; use keyfunc.IP to limit each address, keyfunc.Everyone to limit all together")
	}
	return keyfunc.Describe(key).Validate()
}

// inClient says what is wrong with the values of an override, which may be secrets.
func inClient(values []string) string {
	for _, value := range values {
		switch {
		case strings.ContainsFunc(value, pattern.Invisible):
			return unseen
		case value != strings.TrimSpace(value):
			return "there is white space around it; remove it"
		case value == "*":
			return "an override is for one client, and * stands for itself; for all others write the rule's limit"
		}
	}
	return ""
}

// forgeable names what any client can write into the rule's key; "" if there is nothing.
func (r *Rule) forgeable() string {
	if chosen := hint.Of(r.Key).Chosen; chosen != "an API key" {
		return chosen
	}
	return ""
}

// patterns returns those of Match; nil if there are none, or bad ones.
func (r *Rule) patterns() (match []pattern.Pattern) {
	for _, text := range r.Match {
		p, err := pattern.Parse(text)
		if err != nil {
			return nil
		}
		match = append(match, p)
	}
	return match
}

// largestCost returns the largest cost that is known before there are requests.
func (r *Rule) largestCost() int64 {
	most := max(r.Cost, 1)
	for _, units := range r.Costs {
		most = max(most, units)
	}
	return most
}

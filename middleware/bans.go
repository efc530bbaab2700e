package middleware

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// maxBans is how many bans are remembered. With more, those by hand stay, and those that
// end first go.
const maxBans = 256

// A banned key has a ban.
type banned struct{ rule, key string }

// A ban is one that this process knows of.
type ban struct {
	banned
	by           string    // byRule, or an operator; "" if another process began it
	since, until time.Time // since this process knows of it; until when at least
}

// Who has begun a ban.
const (
	byRule     = "the rule"
	byOperator = "an operator at " // and an address
)

// knownBans are the bans that this process has begun or met. The zero value is none.
type knownBans struct {
	mu   sync.Mutex
	bans map[banned]*ban
}

// note remembers that a key is banned for so long.
func (k *knownBans) note(key banned, by string, now time.Time, rest time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.bans[key]
	switch {
	case known == nil:
		k.makeRoom(now)
		known = &ban{banned: key, by: by, since: now}
		k.bans[key] = known
	case by != "" || known.until.Before(now):
		known.by, known.since = by, now
	}
	if until := now.Add(rest); until.After(known.until) {
		known.until = until
	}
}

func (k *knownBans) makeRoom(now time.Time) {
	if k.bans == nil {
		k.bans = make(map[banned]*ban)
	}
	if len(k.bans) < maxBans {
		return
	}
	var first *ban
	for _, b := range k.bans {
		if !b.until.After(now) {
			first = b
			break
		}
		if first == nil || cmp.Or(cmp.Compare(b.byHand(), first.byHand()), b.until.Compare(first.until)) < 0 {
			first = b
		}
	}
	delete(k.bans, first.banned)
}

// byHand is 1 for a ban that an operator has begun, and 0 for others.
func (b *ban) byHand() int {
	if strings.HasPrefix(b.by, byOperator) {
		return 1
	}
	return 0
}

func (k *knownBans) forget(key banned) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.bans, key)
}

// list returns what is known of bans that have not ended: those by hand first, then the
// newest first.
func (k *knownBans) list(now time.Time) (all []ban) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, b := range k.bans {
		if b.until.After(now) {
			all = append(all, *b)
		}
	}
	slices.SortFunc(all, func(a, b ban) int {
		return cmp.Or(cmp.Compare(b.byHand(), a.byHand()), b.since.Compare(a.since), cmp.Compare(a.rule, b.rule), cmp.Compare(a.key, b.key))
	})
	return all
}

// bansInForce asks the limiter which of the known bans still hold, and returns them. Of
// those that it cannot tell, it returns what is known.
func (m *Middleware) bansInForce(ctx context.Context, set *ruleset) []bannedView {
	now := time.Now()
	known := slices.DeleteFunc(m.bans.list(now), func(b ban) bool { _, ok := set.find(b.rule, 0); return !ok })
	views := []bannedView{}
	for _, b := range known[:min(overviewTop, len(known))] {
		view := bannedView{Rule: b.rule, Key: m.shown(b.key), ID: m.keyID(b.key), By: b.by, Since: b.since.UTC().Truncate(time.Second), EndsIn: seconds(b.until.Sub(now)), known: !isBounded(b.key)}
		if view.known {
			rule, _ := set.named(b.rule)
			if rest, ok := m.restOfBan(ctx, rule, b.key); ok {
				if rest <= 0 {
					continue
				}
				view.EndsIn = seconds(rest)
			}
		}
		views = append(views, view)
	}
	return views
}

// restOfBan is for how long a key is still banned, if the limiter can tell. The windows of
// a rule that lead to no ban may not know of it.
func (m *Middleware) restOfBan(ctx context.Context, r *rule, key string) (rest time.Duration, ok bool) {
	var checks []algorithms.Check
	for _, l := range r.own.windows {
		checks = append(checks, r.checksOf(ruleLimit{Limit: l}, []string{key})...)
	}
	d, err := m.callLimiter(ctx, m.limiter.Peek, true, checks)
	if err != nil {
		return 0, false
	}
	for i := range d.Results {
		if d.Results[i].Err != nil {
			return 0, false
		}
		rest = max(rest, d.Results[i].BannedFor)
	}
	return rest, true
}

// noteBan remembers a ban that a denial has met or begun.
func (m *Middleware) noteBan(r *algorithms.Result) {
	by := ""
	if r.BanBegan {
		by = byRule
	}
	m.bans.note(banned{r.Check.Rule, bounded(r.Check.Key)}, by, time.Now(), r.BannedFor)
}

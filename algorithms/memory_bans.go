package algorithms

import "errors"

// errNoRoom is why a ban by hand failed.
var errNoRoom = errors.New("algorithms: memory: no room for another ban by hand; raise MaxKeys")

// A ban is an entry of its own, beside those of its key's counts. Like them it is never
// evicted while it counts.

// banState is what is stored of the place's ban. Denials are forgotten after the
// Within of the check that counted the last of them.
func (pl *place) banState(now int64) banState {
	if e := pl.shard.table.find(pl.ban); e != nil && (e.c <= 0 || e.until > now) {
		return banState{since: e.a, until: e.b, count: max(e.c, 0), byHand: e.c < 0}
	}
	return banState{}
}

// meetsBan reports whether a check obeys bans: its own Ban, or one by hand.
func (pl *place) meetsBan(c *Check, charge bool, now int64) bool {
	if pl.bans = c.bans(); !pl.bans && !pl.shard.byHand {
		return false
	}
	stored := pl.banState(now)
	current, _ := c.banRule().at(stored, now)
	if stored.byHand && charge && current.until <= now {
		pl.shard.table.find(pl.ban).c = 0 // it is over, also if the clock steps back
	}
	pl.bans = pl.bans || stored.byHand && !c.Shadow
	pl.bannedUntil = current.until
	return pl.bans
}

// banByHand bans the place's key for some µs; 0 lifts. It finds room where keys do
// not, up to as many entries again: operators ban during floods.
func (pl *place) banByHand(now, length int64, rule banRule, most int) error {
	if length == 0 {
		pl.shard.table.remove(pl.ban)
		return nil
	}
	if !pl.hasRoomForBan(now, 2*most) {
		return errNoRoom
	}
	s, _ := rule.at(pl.banState(now), now)
	pl.storeBan(rule, rule.extended(s, now, length))
	return nil
}

// followBan makes the place's ban what another store says. A check without a Ban
// is told of bans by hand only, and so says nothing of others. One with a Ban is
// told of both: there the ban is taken for the rule's, unless it is known better.
func (pl *place) followBan(now int64, r *Result, most int) {
	rules := r.Check.bans()
	switch {
	case r.Banned:
		if pl.hasRoomForBan(now, most) {
			byHand := pl.banState(now).byHand || !rules
			pl.storeBan(banRule{}, banState{since: now, until: now + r.bannedFor.Microseconds(), byHand: byHand})
		}
	case rules, pl.shard.byHand && !r.Check.Shadow && pl.banState(now).byHand:
		pl.shard.table.remove(pl.ban)
	}
}

// banned returns what a check comes to whose key is known to be banned, by hand or
// by another store.
func (m *Memory) banned(c *Check) (Result, bool) {
	m.ready()
	checks := []Check{*c}
	var room [4]params
	ps, err := prepare(checks, &room)
	if err != nil {
		return Result{}, false
	}
	places := []place{m.place(&checks[0], &ps[0])}
	shard := places[0].shard
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if !shard.byHand && !c.bans() {
		return Result{}, false
	}
	r := m.decideAt(m.now(), false, checks, ps, places).Results[0]
	return r, r.Banned
}

// hasRoomForBan reports whether the place's ban has an entry, or there is room for one.
func (pl *place) hasRoomForBan(now int64, most int) bool {
	return pl.shard.table.find(pl.ban) != nil || pl.shard.hasRoom(now, most)
}

// storeBan remembers a ban. The caller has looked for room.
func (pl *place) storeBan(rule banRule, s banState) {
	e := pl.shard.table.find(pl.ban)
	if e == nil {
		e = pl.shard.table.add(pl.ban)
	}
	e.a, e.b, e.c, e.until = s.since, s.until, s.count, rule.forgotten(s)
	if s.byHand {
		e.c, pl.shard.byHand = -1, true
	}
}

// decideBan makes an answer say whether the key is banned, and has a denial count.
// Twin: lua/take_bans.lua.
//
// A denial that finds no room is not counted: only keys that were denied before
// can then be banned. All others are limited as ever.
func (pl *place) decideBan(now int64, charge bool, r *Result, most int) {
	rule := r.Check.banRule()
	s, healed := rule.at(pl.banState(now), now)
	counts := charge && !r.Allowed && s.until <= now && rule.counts(r)
	until := s.until
	if counts {
		s = rule.deny(s, now)
		until = -s.until // it begins, if it does
	}
	if charge && (counts || healed) {
		if !pl.hasRoomForBan(now, most) {
			pl.shard.overflowed++
			return
		}
		pl.storeBan(rule, s)
	}
	if pl.bannedUntil > now || !r.Allowed {
		r.ban(until, now)
	}
}

package memory

import (
	"errors"

	"github.com/seed75154129/ratelimit/internal/step"
)

var errNoRoom = errors.New("algorithms: memory: no room for another ban by hand; raise MaxKeys")

// A ban has an entry of its own, beside those of its key's counts. Like these, it is never
// evicted while it counts.

// banState returns the stored state of the place's ban. Denials are forgotten after the
// Within of the check that counted the last of them.
func (pl *place) banState(now int64) step.Denials {
	if e := pl.shard.table.Find(pl.ban); e != nil && (e.Value.c <= 0 || e.Until > now) {
		return step.Denials{Since: e.Value.a, Until: e.Value.b, Count: max(e.Value.c, 0), ByHand: e.Value.c < 0}
	}
	return step.Denials{}
}

// meetsBan reports whether the count obeys bans: it has a Ban, or its key is banned by hand.
// It looks up when the ban ends.
func (c *Count) meetsBan(charge bool, now int64) bool {
	if c.bans = c.Bans; !c.bans && !c.shard.byHand {
		return false
	}
	stored := c.banState(now)
	current, _ := c.Ban.At(stored, now)
	if stored.ByHand && charge && current.Until <= now {
		c.shard.table.Find(c.ban).Value.c = 0 // it has ended, even if the clock steps back
	}
	c.bans = c.bans || stored.ByHand && !c.Shadow
	c.bannedUntil = current.Until
	return c.bans
}

// banByHand bans the place's key for length µs; 0 lifts its ban. Bans by hand may use as many
// entries again as there are for keys, because operators ban during floods.
func (pl *place) banByHand(now, length int64, rule step.Ban, most int) error {
	if length == 0 {
		pl.shard.table.Remove(pl.ban)
		return nil
	}
	if !pl.hasRoomForBan(now, 2*most) {
		return errNoRoom
	}
	s, _ := rule.At(pl.banState(now), now)
	pl.storeBan(rule, rule.Extended(s, now, length))
	return nil
}

// Banned reports whether a ban denies the count.
func (m *Store) Banned(c *Count) bool {
	defer m.locked(c).Unlock()
	if c.Shadow || !c.shard.byHand && !c.Bans {
		return false
	}
	now := m.Now()
	stored := c.banState(now)
	current, _ := c.Ban.At(stored, now)
	return current.Until > now && (c.Bans || stored.ByHand)
}

// hasRoomForBan reports whether the place's ban has an entry or can have one.
func (pl *place) hasRoomForBan(now int64, most int) bool {
	return pl.shard.table.Find(pl.ban) != nil || pl.shard.hasRoom(now, most)
}

// storeBan stores the state of a ban. The caller has called hasRoomForBan.
func (pl *place) storeBan(rule step.Ban, s step.Denials) {
	e := pl.shard.table.Find(pl.ban)
	if e == nil {
		e = pl.shard.table.Add(pl.ban)
	}
	e.Value, e.Until = stored{s.Since, s.Until, s.Count}, rule.Forgotten(s)
	if s.ByHand {
		e.Value.c, pl.shard.byHand = -1, true
	}
}

// decideBan sets BannedUntil, and counts a denial towards the ban. Twin:
// internal/script/take_bans.lua.
//
// told says that another count of the request has counted a denial of the rule and the key:
// a request is one.
//
// If the table is full, a denial of a key without an entry for its ban is not counted. The
// key is limited as usual.
func (c *Count) decideBan(now int64, charge, told bool, most int) {
	s, healed := c.Ban.At(c.banState(now), now)
	counts := charge && !told && !c.Room && s.Until <= now && c.Ban.After > 0 && !c.DeniedByDelay(c.Waits, c.Answer.Remaining, c.Cost)
	until := s.Until
	if c.denied = counts; counts {
		s = c.Ban.Deny(s, now)
		until = -s.Until // the ban begins with this denial, if it begins
	}
	if charge && (counts || healed) {
		if !c.hasRoomForBan(now, most) {
			c.shard.overflowed++
			return
		}
		c.storeBan(c.Ban, s)
	}
	if c.bannedUntil > now || !c.Room {
		c.BannedUntil = until
	}
}

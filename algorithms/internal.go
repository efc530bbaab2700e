package algorithms

import (
	"time"

	"github.com/seed75154129/ratelimit/internal/inside"
)

// Internal is for the packages of this module, and no part of the API.
var Internal internals

type internals struct{}

// Open returns what the siblings of this package need of it.
func (internals) Open(k *inside.Key) opened {
	if k != &inside.Allow {
		panic("Internal is for the packages of this module")
	}
	return opened{}
}

type opened struct{}

// Store is a Redis beside its decisions.
func (opened) Store(r *Redis) store { return store{r} }

func (opened) Follow(m *Memory, rs []Result, share func(*Result) (Check, bool)) { m.follow(rs, share) }
func (opened) Unfollow(m *Memory, cs []Charge, share func(*Result) (Check, bool)) {
	m.unfollow(cs, share)
}
func (opened) Stats(m *Memory) inside.MemoryStats        { return m.stats() }
func (opened) Clock(m *Memory, now func() time.Time)     { m.clock = now }
func (opened) Banned(m *Memory, c *Check) (Result, bool) { return m.banned(c) }

func (opened) AlgorithmOf(l Limit) string                  { return string(l.algorithm()) }
func (opened) IsQueue(l Limit) bool                        { return l.Algorithm == LeakyBucket }
func (opened) Impatient(r *Result) bool                    { return r.impatient() }
func (opened) StateOf(r *Result) (state [3]int64, ok bool) { return stateOf(r) }
func (opened) Block(r *Result) int64                       { return r.charge.at }
func (opened) InBlock(r *Result, window int64)             { r.charge = placed{at: window} }
func (opened) JoinFollowed(r, older *Result, units int64)  { r.followed += min(older.followed, units) }
func (opened) Again(c *Check, state [3]int64, later, earlier, underWay int64) inside.Verdict {
	return again(c, state, later, earlier, underWay)
}
func (opened) Valid(checks []Check) bool { return valid(checks) }
func (opened) InvalidBan(c *Check) []error {
	if c.Ban == (Ban{}) {
		return nil
	}
	return c.Ban.invalid()
}
func (opened) Spare(c *Check)                    { c.spared = true }
func (opened) BanBegins(r *Result) bool          { return r.banBegins }
func (opened) BannedFor(r *Result) time.Duration { return r.bannedFor }

package memory

import (
	"slices"
	"strings"

	"github.com/seed75154129/ratelimit/internal/step"
)

const (
	maxSketches = 6          // in each shard, beside that of the rest
	sketchSpare = 60_000_000 // µs for which one that counts nothing more is kept
)

// A class is keys whose states compare. Rules are the program's own, so there
// are few.
type class struct {
	rule      string
	counts    uint64 // its period or calendar
	algorithm *step.Row
}

// sketches are a shard's: they count the keys that found no room in it.
type sketches struct {
	own  []*sketch // of the first classes that needed one
	rest *sketch   // of all further ones
}

// find returns the sketch in which a class is counted, or nil.
func (ss *sketches) find(c *class) *sketch {
	for _, sk := range ss.own {
		if sk.class == *c {
			return sk
		}
	}
	return ss.rest
}

// need returns the sketch in which a class is to be counted from now on. While
// the rest counts anything, that may be of this class, and it stays there.
func (ss *sketches) need(c class, now int64) *sketch {
	sk := ss.find(&c)
	if sk != nil && (!sk.rest || sk.until > now) {
		return sk
	}
	c.rule = strings.Clone(c.rule)
	if len(ss.own) < maxSketches {
		sk = &sketch{class: c}
		ss.own = append(ss.own, sk)
		return sk
	}
	for _, sk := range ss.own {
		if sk.until <= now {
			*sk = sketch{class: c}
			return sk
		}
	}
	if ss.rest == nil {
		ss.rest = &sketch{rest: true}
	}
	return ss.rest
}

// sweep lets go of sketches that have counted nothing for a while.
func (ss *sketches) sweep(now int64) {
	idle := func(sk *sketch) bool { return sk.until+sketchSpare <= now }
	if ss.own != nil {
		if ss.own = slices.DeleteFunc(ss.own, idle); len(ss.own) == 0 {
			ss.own = nil
		}
	}
	if ss.rest != nil && idle(ss.rest) {
		ss.rest = nil
	}
}

// inUse returns how many sketches count something.
func (ss *sketches) inUse(now int64) (n int) {
	for _, sk := range ss.own {
		if sk.until > now {
			n++
		}
	}
	if ss.rest != nil && ss.rest.until > now {
		n++
	}
	return n
}

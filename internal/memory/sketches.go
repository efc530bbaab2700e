package memory

import (
	"slices"
	"strings"
)

const (
	maxSketches = 6          // of one class each, in a shard
	sketchSpare = 60_000_000 // µs for which an empty sketch is kept
)

// sketches count the keys that have no entry in a shard's table.
type sketches struct {
	own  []*sketch // of the first classes that needed one
	rest *sketch   // of all further classes
}

// find returns the sketch of a class, or nil.
func (ss *sketches) find(c *class) *sketch {
	for _, sk := range ss.own {
		if sk.class == *c {
			return sk
		}
	}
	return ss.rest
}

// need returns the sketch of a class, and makes it if there is none. A class stays in rest
// while rest is not empty, because keys of the class may be in it.
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

// sweep drops sketches that have been empty for sketchSpare.
func (ss *sketches) sweep(now int64) {
	idle := func(sk *sketch) bool { return sk.until+sketchSpare <= now }
	if ss.own = slices.DeleteFunc(ss.own, idle); len(ss.own) == 0 {
		ss.own = nil
	}
	if ss.rest != nil && idle(ss.rest) {
		ss.rest = nil
	}
}

// inUse returns how many sketches are not empty.
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

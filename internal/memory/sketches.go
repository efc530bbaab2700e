package memory

import (
	"slices"
	"strings"
)

const (
	maxSketches = 6          // of one class each, in a shard
	sketchSpare = 60_000_000 // µs for which an empty sketch is kept
)

// sketches count the keys that have no entry in a shard's table: one for each of the first
// classes that needed one and, behind these, perhaps one for all further classes.
type sketches []*sketch

func (ss sketches) find(c *class) *sketch {
	for _, sk := range ss {
		if sk.rest || sk.class == *c {
			return sk
		}
	}
	return nil
}

// need returns the sketch of a class, and makes it if there is none. A class stays in rest
// while rest is not empty, because keys of the class may be in it.
func (ss *sketches) need(c class, now int64) *sketch {
	sk := ss.find(&c)
	if sk != nil && (!sk.rest || sk.until > now) {
		return sk
	}
	c.rule = strings.Clone(c.rule)
	own := *ss
	if sk != nil {
		own = own[:len(own)-1]
	}
	if len(own) < maxSketches {
		*ss = slices.Insert(*ss, 0, &sketch{class: c})
		return (*ss)[0]
	}
	for _, sk := range own {
		if sk.until <= now {
			*sk = sketch{class: c}
			return sk
		}
	}
	if sk == nil {
		sk = &sketch{rest: true}
		*ss = append(*ss, sk)
	}
	return sk
}

// sweep drops sketches that have been empty for sketchSpare.
func (ss *sketches) sweep(now int64) {
	*ss = slices.DeleteFunc(*ss, func(sk *sketch) bool { return sk.until+sketchSpare <= now })
	if len(*ss) == 0 {
		*ss = nil
	}
}

func (ss sketches) inUse(now int64) (n int) {
	for _, sk := range ss {
		if sk.until > now {
			n++
		}
	}
	return n
}

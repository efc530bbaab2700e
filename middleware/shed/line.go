package shed

import "slices"

// A line has the slots that wait, in the order in which they go on: by priority; of one
// priority, first those that come back, which hold memory and perhaps locks; of these, by when
// they joined.
type line struct {
	all  []*slot
	back int // those that come back
}

func (p *slot) order() int {
	if p.phase == returning {
		return 2*p.level + 1
	}
	return 2 * p.level
}

func (l *line) push(p *slot) {
	at, _ := slices.BinarySearchFunc(l.all, p, func(q, p *slot) int {
		if q.order() >= p.order() {
			return -1 // p goes after it
		}
		return 1
	})
	l.all = slices.Insert(l.all, at, p)
	if p.phase == returning {
		l.back++
	}
}

// remove takes a slot out, and reports whether it was in line.
func (l *line) remove(p *slot) bool {
	at := slices.Index(l.all, p)
	if at < 0 {
		return false
	}
	l.all = slices.Delete(l.all, at, at+1)
	if p.phase == returning {
		l.back--
	}
	return true
}

// lastBelow is the last of those that have arrived below a level; nil if there is none.
func (l *line) lastBelow(level int) *slot {
	for _, p := range slices.Backward(l.all) {
		if p.level >= level {
			break
		}
		if p.phase == waiting {
			return p
		}
	}
	return nil
}

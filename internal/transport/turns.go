package transport

// turns is a queue in which lines take turns, so that one with many callers does
// not keep the others waiting. Within a line, who came first is first.
type turns struct {
	n     int // in all lines
	lines map[uint64]*line
	order []*line // the next one's turn first
	spare *line
}

type line struct {
	turn        uint64
	n           int
	first, last *pending
}

func (l *line) add(p *pending) {
	if l.first == nil {
		l.first = p
	} else {
		l.last.next = p
	}
	l.last = p
	l.n++
}

func (l *line) shift() *pending {
	p := l.first
	l.first, p.next = p.next, nil
	l.n--
	return p
}

func (q *turns) push(p *pending) {
	l := q.lines[p.turn]
	if l == nil {
		if q.lines == nil {
			q.lines = map[uint64]*line{}
		}
		if l, q.spare = q.spare, nil; l == nil {
			l = new(line)
		}
		l.turn = p.turn
		q.lines[p.turn] = l
		q.order = append(q.order, l)
	}
	l.add(p)
	q.n++
}

// pop returns whose turn it is, or nil.
func (q *turns) pop() *pending {
	if q.n == 0 {
		return nil
	}
	q.n--
	l := q.order[0]
	p := l.shift()
	copy(q.order, q.order[1:])
	if l.first != nil { // behind the others
		q.order[len(q.order)-1] = l
		return p
	}
	q.order = q.order[:len(q.order)-1]
	delete(q.lines, l.turn)
	*l = line{}
	q.spare = l
	return p
}

// giveWay removes and returns the first of the longest line, for one who would come
// to a line that is shorter by two at least; nil if there is none such.
func (q *turns) giveWay(turn uint64) *pending {
	most := 1
	if l := q.lines[turn]; l != nil {
		most += l.n
	}
	var longest *line
	for _, l := range q.order {
		if l.n > most {
			most, longest = l.n, l
		}
	}
	if longest == nil {
		return nil
	}
	q.n--
	return longest.shift()
}

// remove removes and returns those for whom gone is true.
func (q *turns) remove(gone func(*pending) bool) (removed []*pending) {
	order := q.order[:0]
	for _, l := range q.order {
		p := l.first
		l.first, l.last, l.n = nil, nil, 0
		for p != nil {
			next := p.next
			p.next = nil
			if gone(p) {
				removed = append(removed, p)
			} else {
				l.add(p)
			}
			p = next
		}
		if l.first == nil {
			delete(q.lines, l.turn)
		} else {
			order = append(order, l)
		}
	}
	clear(q.order[len(order):])
	q.order = order
	q.n -= len(removed)
	return removed
}

package pattern

import (
	"cmp"
	"net/http"
	"slices"
)

// A cost is what requests cost that match a pattern.
type cost struct {
	pattern
	units int64
}

// compileCosts returns valid costs, each pattern before those that match all its
// requests and others.
func compileCosts(byPattern map[string]int64) []cost {
	var costs []cost
	for text, units := range byPattern {
		p, _ := parsePattern(text) // it is valid
		costs = append(costs, cost{p, units})
	}
	slices.SortFunc(costs, func(a, b cost) int {
		return cmp.Or(
			cmp.Compare(len(b.segs), len(a.segs)),
			cmp.Compare(a.wildcards(), b.wildcards()),
			cmp.Compare(a.openness(), b.openness()),
			cmp.Compare(methodOpenness(a.method), methodOpenness(b.method)))
	})
	return costs
}

func (p *pattern) wildcards() (n int) {
	for _, seg := range p.segs {
		if seg == "" {
			n++
		}
	}
	return n
}

// openness is greater for a pattern that may match more paths, the segments being
// the same.
func (p *pattern) openness() int {
	if p.end == endAnything {
		return 1
	}
	return 0
}

func methodOpenness(method string) int {
	switch method {
	case "":
		return 2
	case http.MethodGet: // and HEAD
		return 1
	}
	return 0
}

// costAt is what a request costs: what the most specific pattern says that
// matches it, otherwise the rule's own cost. Where routers may read the path
// differently, it is the most that one reading costs, so that no spelling of a
// path is cheaper than the path.
func costAt(costs []cost, t *target, own int64) int64 {
	units := costOfPath(costs, t.method, t.path, false, own)
	if !t.odd {
		return units
	}
	if t.cleanPath != "" {
		units = max(units, costOfPath(costs, t.method, t.cleanPath, false, own))
	}
	if t.raw != "" {
		units = max(units, costOfPath(costs, t.method, t.raw, true, own))
	}
	if t.cleanRaw != "" {
		units = max(units, costOfPath(costs, t.method, t.cleanRaw, true, own))
	}
	return units
}

// costOfPath goes on to less specific patterns until one matches exactly: others
// match a path that some router may serve as something else.
func costOfPath(costs []cost, method, path string, escaped bool, own int64) int64 {
	var most int64
	for i := range costs {
		c := &costs[i]
		if !escaped && (c.at >= len(path) || path[c.at] != c.last) || !c.matchMethod(method) || !c.matchPath(path, escaped) {
			continue
		}
		most = max(most, c.units)
		if c.matchPathExactly(path, escaped) {
			return most
		}
	}
	return max(most, own)
}

package middleware

import (
	"fmt"
	"math/big"
	"strconv"
	"sync"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/banned"
	"github.com/seed75154129/ratelimit/internal/hint"
	"github.com/seed75154129/ratelimit/internal/pattern"
)

// A rule is a Rule made ready for requests.
type rule struct {
	source    Rule              // a copy of it
	patterns  []pattern.Pattern // none matches every request
	readsBody bool              // to find its key
	reused    int               // number of the key's answer among those that other rules reuse; 0 if no other rule has this key
	traits    hint.Traits       // of the key
	check     algorithms.Check  // by the first of the own limits, without the key
	limits                      // of requests
	costs     pattern.Values
	ban       banned.Terms // of source.Ban, if there is one
	shadow    float64      // the fraction of keys that are not enforced
	costSaid  sync.Once    // that CostFor returns more than a limit can hold
}

// applies reports whether the rule matches a request.
func (r *rule) applies(t *pattern.Target) bool {
	for i := range r.patterns {
		if r.patterns[i].Match(t) {
			return true
		}
	}
	return len(r.patterns) == 0
}

// A share is a part of each limit, as the decimal fraction that the program has
// written: floating-point numbers would make 28 of 100 × 0.29. The zero value is
// all of it.
type share struct {
	part *big.Rat
	text string
}

// parseShare reads Config.Share.
func parseShare(f float64) (share, error) {
	if f == 0 || f == 1 {
		return share{}, nil
	}
	if !(f > 0 && f < 1) { // NaN is neither
		return share{}, fmt.Errorf("middleware: share: must be above 0 and at most 1, this region's part of each limit; got %v", f)
	}
	text := strconv.FormatFloat(f, 'f', -1, 64)
	part, _ := new(big.Rat).SetString(text) // it is a number
	return share{part, text}, nil
}

// units is the share of so many, rounded down.
func (s share) units(n int64) int64 {
	all := new(big.Rat).Mul(s.part, new(big.Rat).SetInt64(n))
	return new(big.Int).Quo(all.Num(), all.Denom()).Int64()
}

// limit is the share of a valid limit. The error says that it is too small.
func (s share) limit(l algorithms.Limit) (algorithms.Limit, error) {
	if s.part == nil {
		return l, nil
	}
	part := l
	part.Rate, part.Burst = s.units(l.Rate), s.units(l.Burst)
	if part.Rate < 1 || l.Burst > 0 && part.Burst < 1 {
		return part, fmt.Errorf("the share %s of %s is less than one unit", s.text, l)
	}
	if err := part.Validate(); err != nil {
		return part, fmt.Errorf("the share %s of %s: %w", s.text, l, err)
	}
	return part, nil
}

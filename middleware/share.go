package middleware

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/seed75154129/ratelimit/algorithms"
)

// A share is a part of each limit, as the decimal fraction that the program has
// written: floating-point numbers would make 28 of 100 × 0.29. The zero value is
// all of it.
type share struct {
	part, of uint64
	text     string
}

// maxDecimals is what of a share counts: 10^18 is below 2^64. More are cut off,
// so that no sum of shares exceeds the whole.
const maxDecimals = 18

// parseShare reads Config.Share.
func parseShare(f float64) (share, error) {
	if f == 0 || f == 1 {
		return share{}, nil
	}
	if !(f > 0 && f < 1) { // NaN is neither
		return share{}, fmt.Errorf("middleware: share: must be above 0 and at most 1, this region's part of each limit; got %v", f)
	}
	text := strconv.FormatFloat(f, 'f', -1, 64)
	digits := strings.TrimPrefix(text, "0.")
	digits = digits[:min(len(digits), maxDecimals)]
	s := share{of: 1, text: text}
	for _, c := range []byte(digits) {
		s.part, s.of = 10*s.part+uint64(c-'0'), 10*s.of
	}
	return s, nil
}

// units is the share of so many, rounded down.
func (s share) units(n int64) int64 {
	hi, lo := bits.Mul64(uint64(n), s.part)
	q, _ := bits.Div64(hi, lo, s.of) // part < of, so it fits
	return int64(q)
}

// limit is the share of a valid limit. The error says that it is too small.
func (s share) limit(l algorithms.Limit) (algorithms.Limit, error) {
	if s.of == 0 {
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

// validate reports the limits of valid rules whose share cannot hold the largest
// cost. Rounding them up would admit more than the limit in all regions together.
func (s share) validate(rules []Rule) (errs []error) {
	if s.of == 0 {
		return nil
	}
	for i := range rules {
		r := &rules[i]
		for _, l := range r.limits() {
			switch err := s.holds(l.Limit, r.largestCost()); {
			case err == nil:
			case l.tier == "":
				errs = append(errs, &RuleError{i, r.Name, "Limit", err})
			default:
				errs = append(errs, &RuleError{i, r.Name, "Tiers", fmt.Errorf("tier %q: %w", l.tier, err)})
			}
		}
	}
	return errs
}

func (s share) holds(l algorithms.Limit, cost int64) error {
	part, err := s.limit(l)
	if err == nil && part.Quota() < cost {
		err = fmt.Errorf("the share %s of %s holds %d units, and a request costs up to %d: it would never pass", s.text, l, part.Quota(), cost)
	}
	if err != nil {
		return fmt.Errorf("%w; raise the limit or Config.Share", err)
	}
	return nil
}

package headers

import (
	"strconv"
	"strings"
)

// jsonRanges are the media ranges of Accept that include a problem document,
// the most specific last.
var jsonRanges = [...]string{"*/*", "application/*", "application/json", "application/problem+json"}

// acceptsJSON reports whether a client with these Accept lines takes a problem
// document. By RFC 9110, section 12.5.1, the most specific range decides, and a weight of 0
// means "not acceptable". Without Accept, everything is accepted.
func acceptsJSON(lines []string) bool {
	said, accepted, best := false, false, -1
	for _, line := range lines {
		for member := range strings.SplitSeq(line, ",") {
			media, params, _ := strings.Cut(member, ";")
			if media = strings.TrimSpace(media); media == "" {
				continue
			}
			said = true
			for rank := max(best, 0); rank < len(jsonRanges); rank++ {
				if !strings.EqualFold(media, jsonRanges[rank]) {
					continue
				}
				// The same range may come again with other parameters.
				accepted = weight(params) > 0 || rank == best && accepted
				best = rank
			}
		}
	}
	return accepted || !said
}

// weight returns the parameter q; 1 if there is none, or none that parses.
func weight(params string) float64 {
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(param, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "q") {
			continue
		}
		if q, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil && q >= 0 {
			return q
		}
	}
	return 1
}

package headers

import (
	"strconv"
	"strings"
)

// jsonRanges are the media ranges of Accept that a problem document answers.
// What a later one says counts more.
var jsonRanges = []string{"*/*", "application/*", "application/json", "application/problem+json"}

// acceptsJSON reports whether a client with these Accept lines takes a problem
// document: by RFC 9110, section 12.5.1, the most specific range decides, and one
// with a weight of 0 refuses. Without Accept, everything is accepted.
func acceptsJSON(lines []string) bool {
	said, accepted, most := false, false, -1
	for _, line := range lines {
		for member := range strings.SplitSeq(line, ",") {
			media, params, _ := strings.Cut(member, ";")
			if media = strings.TrimSpace(media); media == "" {
				continue
			}
			said = true
			for rank, name := range jsonRanges {
				switch takes := weight(params) > 0; {
				case !strings.EqualFold(media, name) || rank < most:
				case rank > most:
					most, accepted = rank, takes
				default:
					accepted = accepted || takes // the same with other parameters
				}
			}
		}
	}
	return accepted || !said
}

// weight is the parameter q, 1 where there is none that can be read.
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

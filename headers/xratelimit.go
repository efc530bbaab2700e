package headers

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/field"
)

// XRateLimit is the default [Writer]. It describes the tightest enforced rule or, in a
// denial, the tightest of those that denied:
//
//	X-RateLimit-Limit      units that can be used at once
//	X-RateLimit-Remaining  units left
//	X-RateLimit-Reset      when all units are free again, in Unix seconds, rounded up
//
// The reset is a time on the clock that decided, so it is the same on every
// instance and does not change while nothing is charged.
//
// A rule with in_flight is described only if no other rule is, and without a reset,
// because it is not known when its requests will end. Remaining is never below 0.
//
// If no rule was decided, XRateLimit sets nothing. In a denial by rules that are hidden or
// could not be counted, it removes the fields. If the request is admitted and the fields are
// already set, one set of the three remains: the one with the fewest units left and, among
// equals, the latest reset. A reset in another form, such as seconds from now, is converted.
// A limit or a reset that does not parse is replaced by the rule's, and a Remaining with all
// that goes with it.
func XRateLimit(h http.Header, d algorithms.Decision) { writeX(h, d, false) }

// XRateLimitDelta is [XRateLimit] with the reset in seconds from now, as Reddit and
// Kong send it. Use it only for clients that are known to read the reset as seconds
// from now: other clients take it for a time in the past and retry at once.
func XRateLimitDelta(h http.Header, d algorithms.Decision) { writeX(h, d, true) }

func writeX(h http.Header, d algorithms.Decision, delta bool) {
	there := h[field.XRemaining]
	if !d.Allowed { // what else was asked is no reason to wait
		there = nil
	}
	result, ok := tightestOf(&d)
	if held := ok && isHeld(&result.Check.Limit); !ok || held {
		if !d.Allowed {
			delete(h, field.XLimit)
			delete(h, field.XRemaining)
			delete(h, field.XReset)
		}
		if held && len(there) == 0 {
			h[field.XLimit] = []string{strconv.FormatInt(result.Check.Limit.Quota(), 10)}
			h[field.XRemaining] = []string{strconv.FormatInt(max(result.Remaining, 0), 10)}
		}
		return
	}
	tightest := quota{result.Check.Limit.Quota(), max(result.Remaining, 0), result.ResetAfter, true}
	if len(there) > 0 {
		tightest = tightest.orTighter(h, result.At)
	}
	reset := unixCeil(result.At, tightest.resetAfter)
	if delta {
		reset = max(secondsCeil(tightest.resetAfter), 0)
	}
	var room [3 * 20]byte
	limitEnd := len(strconv.AppendInt(room[:0], tightest.limit, 10))
	remainingEnd := len(strconv.AppendInt(room[:limitEnd], tightest.remaining, 10))
	all := strconv.AppendInt(room[:remainingEnd], reset, 10)
	if len(there) > 0 && is(there, all[limitEnd:remainingEnd]) && is(h[field.XLimit], all[:limitEnd]) && is(h[field.XReset], all[remainingEnd:]) {
		return
	}
	// One string and one array hold all three values. Their capacities are 1, so
	// that appending to one does not overwrite the next.
	text := string(all)
	values := [...]string{text[:limitEnd], text[limitEnd:remainingEnd], text[remainingEnd:]}
	h[field.XLimit] = values[0:1:1]
	h[field.XRemaining] = values[1:2:2]
	h[field.XReset] = values[2:3:3]
}

// orTighter returns the tightest of the quota and those that the fields describe already.
func (q quota) orTighter(h http.Header, now time.Time) (tightest quota) {
	tightest = q
	var room [4]quota
	for _, there := range appendQuotas(room[:0], h[field.XLimit], h[field.XRemaining], h[field.XReset], now) {
		if there.limit == absent {
			there.limit = tightest.limit
		}
		if !there.resets {
			there.resetAfter = tightest.resetAfter
		}
		if there.tighter(tightest) {
			tightest = there
		}
	}
	return tightest
}

// denying returns the results that deny the request. They are mostly next to each other, and
// then not copied.
func denying(results []algorithms.Result) (all []algorithms.Result) {
	for i := range results {
		switch {
		case !results[i].Denies():
		case i > 0 && len(all) > 0 && &all[len(all)-1] == &results[i-1]:
			all = all[:len(all)+1]
		case len(all) == 0:
			all = results[i : i+1]
		default:
			all = append(slices.Clip(all), results[i])
		}
	}
	return all
}

// isHeld reports whether a limit is of requests in flight, of which nobody knows when they
// end.
func isHeld(l *algorithms.Limit) bool { return l.Algorithm == algorithms.InFlight }

// tightestOf returns the tightest result that is decided and enforced, in a denial of those
// that deny, and of a rule with in_flight only if there is no other; false if there is none.
func tightestOf(d *algorithms.Decision) (*algorithms.Result, bool) {
	of := algorithms.Decision{Allowed: d.Allowed, Results: d.Results}
	if !d.Allowed {
		of.Results = denying(d.Results)
	}
	for i := range of.Results {
		if isHeld(&of.Results[i].Check.Limit) {
			held := func(r algorithms.Result) bool { return isHeld(&r.Check.Limit) }
			others := algorithms.Decision{Results: slices.DeleteFunc(slices.Clone(of.Results), held)}
			if tightest, ok := others.Tightest(); ok {
				return tightest, true
			}
			break
		}
	}
	return of.Tightest()
}

func is(lines []string, text []byte) bool { return len(lines) == 1 && lines[0] == string(text) }

// A quota is one limit as X-RateLimit-Limit, -Remaining and -Reset describe it, or similar
// fields.
type quota struct {
	limit      int64 // or absent
	remaining  int64
	resetAfter time.Duration
	resets     bool // resetAfter is known
}

func (q quota) tighter(than quota) bool {
	return q.remaining < than.remaining || q.remaining == than.remaining && q.resetAfter > than.resetAfter
}

// appendQuotas reads the three fields of a family. Values of one limit have the same line,
// or else the same position in each field. If the numbers of values differ, the first limit
// and the longest reset go with every Remaining. A Remaining that does not parse is left
// out, with what goes with it.
func appendQuotas(quotas []quota, limits, remaining, resets []string, now time.Time) []quota {
	if n := len(remaining); n > 1 && n == len(limits) && n == len(resets) {
		for i := range n {
			quotas = appendQuotas(quotas, limits[i:i+1], remaining[i:i+1], resets[i:i+1], now)
		}
		return quotas
	}
	var limitRoom, remainingRoom, resetRoom [4]string
	limits = appendValues(limitRoom[:0], limits)
	remaining = appendValues(remainingRoom[:0], remaining)
	resets = appendValues(resetRoom[:0], resets)
	paired := len(resets) == len(remaining)
	var longest time.Duration
	var found bool
	if !paired {
		longest, found = longestOf(resets, now)
	}
	for i, text := range remaining {
		q := quota{limit: limitOf(limits, i, len(remaining)), resetAfter: longest, resets: found}
		if paired {
			q.resetAfter, q.resets = duration(resets[i], now)
		}
		if left, ok := number(text); ok {
			q.remaining = units(left)
			quotas = append(quotas, q)
		}
	}
	return quotas
}

func units(n float64) int64 { return int64(min(n, maxInteger)) }

// limitOf returns limit i if there are n, or else the first: Envoy sends a number
// and then the windows.
func limitOf(limits []string, i, n int) int64 {
	if len(limits) != n {
		i = 0
	}
	if i < len(limits) {
		if limit, ok := number(limits[i]); ok {
			return units(limit)
		}
	}
	return absent
}

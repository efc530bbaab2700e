package headers

import (
	"net/http"
	"strconv"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// X has the options of the X-RateLimit fields; its method Write is a [Writer].
// The zero value is [XRateLimit].
type X struct {
	// Delta makes X-RateLimit-Reset the seconds from now, as Reddit and Kong
	// send it, instead of a time. Only for clients known to read it so: others
	// take it for a time long past and come back at once.
	Delta bool
}

// XRateLimit is the default Writer. It sets, from the tightest enforced rule:
//
//	X-RateLimit-Limit      units that can be used at once
//	X-RateLimit-Remaining  units left
//	X-RateLimit-Reset      when all units are free again, in Unix seconds, rounded up
//
// The reset is a time on the clock that decided, so it does not wobble between
// requests or instances. Where no rule was decided it sets nothing, and where
// the three are there already with fewer units left, they stay.
func XRateLimit(h http.Header, d algorithms.Decision) { X{}.Write(h, d) }

// Write is the [Writer] with these options.
func (x X) Write(h http.Header, d algorithms.Decision) {
	tightest, ok := d.Tightest()
	if !ok {
		return
	}
	remaining, reset := max(tightest.Remaining, 0), unixCeil(tightest.At, tightest.ResetAfter)
	if x.Delta {
		reset = secondsCeil(tightest.ResetAfter)
	}
	if xTighter(h, remaining, reset) {
		return
	}
	// One text and one array serve all three; nobody can append into the next
	// value.
	var room [3 * 20]byte
	limitEnd := len(strconv.AppendInt(room[:0], tightest.Check.Limit.Quota(), 10))
	remainingEnd := len(strconv.AppendInt(room[:limitEnd], remaining, 10))
	text := string(strconv.AppendInt(room[:remainingEnd], reset, 10))
	values := [...]string{text[:limitEnd], text[limitEnd:remainingEnd], text[remainingEnd:]}
	h[xLimitKey] = values[0:1:1]
	h[xRemainingKey] = values[1:2:2]
	h[xResetKey] = values[2:3:3]
}

const (
	xLimitKey     = "X-Ratelimit-Limit"
	xRemainingKey = "X-Ratelimit-Remaining"
	xResetKey     = "X-Ratelimit-Reset"
)

// xTighter reports whether the three fields are there already, with fewer units
// left or with as many for longer. Fields that are not three whole numbers are
// of no use to a client.
func xTighter(h http.Header, remaining, reset int64) bool {
	var there [3]int64
	for i, key := range [...]string{xLimitKey, xRemainingKey, xResetKey} {
		lines, ok := h[key]
		if !ok || len(lines) != 1 {
			return false
		}
		if there[i], ok = parseCount(lines[0]); !ok {
			return false
		}
	}
	return there[1] < remaining || there[1] == remaining && there[2] >= reset
}

// unixCeil is the first whole Unix second that is not before t+d.
func unixCeil(t time.Time, d time.Duration) int64 {
	micros := t.UnixMicro() + d.Microseconds()
	seconds := micros / 1e6
	if micros%1e6 > 0 {
		seconds++
	}
	return seconds
}

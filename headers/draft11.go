package headers

import (
	"math/bits"
	"net/http"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/field"
)

// IETFDraft11 is the [Writer] of RateLimit-Policy and RateLimit in the syntax of
// draft-ietf-httpapi-ratelimit-headers-11:
//
//	RateLimit-Policy: "per-ip";q=200;w=60, "login";q=5;w=60
//	RateLimit: "login";r=3;t=42
//
// An item's name is the rule. q is the number of units that can be used at once, and w the
// seconds in which q units become free again. r is the number of units left, and t the
// seconds until all units are free. On an admitted request, RateLimit-Policy lists every
// enforced rule, and RateLimit the tightest of them. On a denied request, both list the
// rules that denied it. In such a RateLimit, t is the seconds until the request fits the
// rule's limit; t is missing if the request will never fit.
//
// The items of a rule with in_flight have qu="concurrent-requests", no w and no t. The
// items of a calendar window have no w, because months differ in length.
//
// If a rule has several windows, an item's name ends in its window: "plan/month@UTC".
// Names of windows with the same period also have the algorithm: "plan/1m/token_bucket".
//
// Seconds are rounded up. Shadow rules and rules that could not be counted are
// not listed. In a name, bytes that are not printable ASCII are written as %XX.
//
// If the fields are already set, the items of an admitted request are added to them; of
// two items with the same name, the one with fewer units stays. The items of a denied
// request replace the fields: an item of a rule that did not deny could ask for a longer
// wait than needed. Fields that do not parse are replaced.
//
// The draft may change before it is an RFC. Later versions will be writers with names of
// their own.
func IETFDraft11(h http.Header, d algorithms.Decision) {
	var policyRoom, limitRoom [4]item
	policies, limits := policyRoom[:0], limitRoom[:0]
	for i := range d.Results {
		r := &d.Results[i]
		if r.Check.Shadow || r.Err != nil || !d.Allowed && !r.Denies() {
			continue
		}
		name := policyName(&d, i)
		policies = addItem(policies, policyItem(r, name))
		if !d.Allowed {
			limits = addItem(limits, limitItem(r, name))
		}
	}
	if d.Allowed {
		if i := tightestAt(&d); i >= 0 {
			limits = append(limits, limitItem(&d.Results[i], policyName(&d, i)))
		}
		if there := h[field.Policy]; len(there) > 0 && len(policies) > 0 {
			policies = mergeItems(there, policies, 'q', 'w')
		}
		if there := h[field.RateLimit]; len(there) > 0 && len(limits) > 0 {
			limits = mergeItems(there, limits, 'r', 't')
		}
	} else {
		delete(h, field.Policy)
		delete(h, field.RateLimit)
	}
	if len(policies) == 0 {
		return
	}
	// One string and one array hold both values.
	var room [512]byte
	text := appendItems(room[:0], policies, 'q', 'w')
	end := len(text)
	both := string(appendItems(text, limits, 'r', 't'))
	values := [...]string{both[:end], both[end:]}
	h[field.Policy] = values[0:1:1]
	h[field.RateLimit] = values[1:2:2]
}

// tightestAt returns the index of the tightest result; -1 if there is none.
func tightestAt(d *algorithms.Decision) int {
	tightest, _ := d.Tightest()
	for i := range d.Results {
		if &d.Results[i] == tightest {
			return i
		}
	}
	return -1
}

func policyItem(r *algorithms.Result, name string) item {
	m := item{
		name:    name,
		units:   r.Check.Limit.Quota(),
		seconds: windowSeconds(r.Check.Limit),
	}
	if isHeld(&r.Check.Limit) {
		m.seconds, m.unit = absent, "concurrent-requests"
	}
	return m
}

func limitItem(r *algorithms.Result, name string) item {
	seconds := secondsCeil(r.ResetAfter)
	if isHeld(&r.Check.Limit) {
		seconds = absent
	} else if r.Denies() {
		seconds = waitSeconds(r.RetryAfter)
		if r.RetryAfter == algorithms.Never {
			seconds = absent
		}
	}
	return item{
		name:    name,
		units:   max(r.Remaining, 0), // a field has no debts
		seconds: seconds,
	}
}

// windowSeconds returns the time in which the whole quota becomes free again, in whole
// seconds because the field has no fractions. For a window that is its period;
// for a bucket it is the period times burst/rate. So q/w is always the sustained
// rate. It is absent for limits that are not valid.
func windowSeconds(l algorithms.Limit) int64 {
	quota := l.Quota()
	if l.Rate < 1 || quota < 1 || l.Period <= 0 {
		return absent
	}
	hi, lo := bits.Mul64(uint64(quota), uint64(l.Period))
	if hi >= uint64(l.Rate) {
		return absent // over 584 years
	}
	window, rest := bits.Div64(hi, lo, uint64(l.Rate))
	seconds := int64(window / uint64(time.Second))
	if rest > 0 || window%uint64(time.Second) > 0 {
		seconds++
	}
	return seconds
}

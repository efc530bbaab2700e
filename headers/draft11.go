package headers

import (
	"crypto/hmac"
	"crypto/sha256"
	"math/bits"
	"net/http"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// Draft11 has the options of the fields of [IETFDraft11]; its method Write is a
// [Writer]. The zero value is IETFDraft11.
type Draft11 struct {
	// PartitionSecret adds the parameter pk to both fields, by which a client
	// that acts for several users can tell their counts apart: the HMAC-SHA-256
	// of the check's key with this secret. nil means no pk: a key itself, or a
	// hash that anybody can compute, would tell who is counted. So it is with less
	// than 16 bytes. Take 32 random ones, the same in all instances.
	PartitionSecret []byte
}

// IETFDraft11 is the Writer of RateLimit-Policy and RateLimit in the syntax of
// draft-ietf-httpapi-ratelimit-headers-11:
//
//	RateLimit-Policy: "per-ip";q=200;w=60, "login";q=5;w=60
//	RateLimit: "login";r=3;t=42
//
// An item has the name of a rule. q is how many units can be used at once and w
// the seconds in which so many come back, r the units left and t the seconds
// until all of them are free. An admitted request has every enforced rule in
// RateLimit-Policy and the tightest in RateLimit. A denied one has in both the
// rules that denied it; there t is until the request fits, and missing if it
// never will.
//
// Seconds are rounded up. Rules that nobody could count are not shown, nor are
// shadow rules. In a name, bytes that are not printable ASCII are written %XX.
//
// If a limiter in front has set the fields, an admitted request's items are
// added to them; of two with one name the one with fewer units stays. A denied
// request's replace them: an item of a rule that did not deny could ask for a
// longer wait than Retry-After. So do they replace what does not parse.
//
// The draft may change before it is an RFC; its successors will be Writers with
// their own names.
func IETFDraft11(h http.Header, d algorithms.Decision) { Draft11{}.Write(h, d) }

// minPartitionSecret is 128 bits.
const minPartitionSecret = 16

const (
	policyKey = "Ratelimit-Policy"
	limitKey  = "Ratelimit"
)

// Write is the [Writer] with these options.
func (o Draft11) Write(h http.Header, d algorithms.Decision) {
	var policyRoom, limitRoom, policyMerge, limitMerge [4]item
	policies, limits := policyRoom[:0], limitRoom[:0]
	for i := range d.Results {
		r := &d.Results[i]
		if r.Check.Shadow || r.Err != nil || !d.Allowed && r.Allowed {
			continue
		}
		policies = addItem(policies, o.policy(r))
		if !d.Allowed {
			limits = addItem(limits, o.limit(r))
		}
	}
	if d.Allowed {
		if tightest, ok := d.Tightest(); ok {
			limits = append(limits, o.limit(&tightest))
		}
		if there := h[policyKey]; len(there) > 0 && len(policies) > 0 {
			policies = mergeItems(policyMerge[:0], there, policies, 'q', 'w')
		}
		if there := h[limitKey]; len(there) > 0 && len(limits) > 0 {
			limits = mergeItems(limitMerge[:0], there, limits, 'r', 't')
		}
	} else {
		delete(h, policyKey)
		delete(h, limitKey)
	}
	if len(policies) == 0 {
		return
	}
	// One text and one array serve both.
	var room [512]byte
	text := appendItems(room[:0], policies, 'q', 'w')
	end := len(text)
	both := string(appendItems(text, limits, 'r', 't'))
	values := [...]string{both[:end], both[end:]}
	h[policyKey] = values[0:1:1]
	h[limitKey] = values[1:2:2]
}

func (o Draft11) policy(r *algorithms.Result) item {
	return item{
		name:    itemName(r.Check.Rule),
		units:   r.Check.Limit.Quota(),
		seconds: windowSeconds(r.Check.Limit),
		key:     o.partition(r.Check.Key),
	}
}

func (o Draft11) limit(r *algorithms.Result) item {
	seconds := secondsCeil(r.ResetAfter)
	if !r.Allowed {
		seconds = waitSeconds(r.RetryAfter)
		if r.RetryAfter == algorithms.Never {
			seconds = absent
		}
	}
	return item{
		name:    itemName(r.Check.Rule),
		units:   max(r.Remaining, 0), // a field has no debts
		seconds: seconds,
		key:     o.partition(r.Check.Key),
	}
}

func (o Draft11) partition(key string) []byte {
	if len(o.PartitionSecret) < minPartitionSecret {
		return nil
	}
	mac := hmac.New(sha256.New, o.PartitionSecret)
	mac.Write([]byte(key))
	return mac.Sum(nil)
}

// windowSeconds is how long the whole quota takes to come back: the period of a
// window, or that of a bucket stretched as its burst stretches its rate, so that
// q/w is always the rate that can be kept up. The field knows whole seconds only.
// It is absent for what no valid limit is.
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

// addItem appends an item, unless one with its name is there: then the one with
// fewer units stays or, among equals, the one that lasts longer.
func addItem(items []item, add item) []item {
	at := slices.IndexFunc(items, func(there item) bool { return there.name == add.name })
	if at < 0 {
		return append(items, add)
	}
	if there := &items[at]; add.units < there.units || add.units == there.units && add.seconds > there.seconds {
		*there = add
	}
	return items
}

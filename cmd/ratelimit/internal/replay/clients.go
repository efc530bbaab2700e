package replay

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strings"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/step"
)

// maxClients is how many clients of a rule are counted one by one. If a log has more,
// only those with every second hash are counted, then every fourth, and so on. Shares
// are estimated from these.
const maxClients = 1 << 20

// clients are the clients of a rule.
type clients struct {
	all  map[string]*client
	most int    // 0 means maxClients
	mask uint64 // of hashes: those with none of its bits are counted
	seed maphash.Seed
}

// A client is a key of a rule.
type client struct {
	requests, denied int64
	own              bool     // it had the rule's own limit, not a tier's
	needs            [3]int64 // units that each of the rule's candidates would have to hold
}

// of returns the client with a key; nil if it is not counted.
func (c *clients) of(key string) *client {
	if found := c.all[key]; found != nil {
		return found
	}
	if c.all == nil {
		c.all, c.seed = make(map[string]*client), maphash.MakeSeed()
	}
	if c.mask > 0 && maphash.String(c.seed, key)&c.mask != 0 {
		return nil
	}
	found := new(client)
	c.all[strings.Clone(key)] = found
	for len(c.all) > cmp.Or(c.most, maxClients) {
		c.mask = c.mask<<1 | 1
		for key := range c.all {
			if maphash.String(c.seed, key)&c.mask != 0 {
				delete(c.all, key)
			}
		}
	}
	return found
}

// scale is how many clients each counted one stands for.
func (c *clients) scale() int64 { return int64(c.mask + 1) }

// A candidate is a limit whose smallest sufficient quota is searched. No client reaches
// the Quota that it has meanwhile.
type candidate struct {
	name  string
	limit algorithms.Limit
}

// candidates returns the limits that may replace a limit. For a window the rate is
// searched; for a bucket the burst, at the same rate, twice and four times that rate.
//
// How a key is counted does not depend on the quota as long as nothing is denied.
// So one decision with a quota out of reach says by its Remaining how large the
// quota would have had to be for all the key's requests so far to be admitted.
func candidates(rule string, l algorithms.Limit) []candidate {
	bucket := l
	bucket.Algorithm, bucket.Burst = algorithms.Algorithm(step.Limit{Burst: l.Burst, Algorithm: uint16(l.Algorithm)}.Number()), 1
	if bucket.Validate() != nil { // it is a window
		l.Rate = most(func(n int64) bool { l.Rate = n; return l.Validate() == nil })
		return []candidate{{rule, l}}
	}
	var all []candidate
	for _, times := range []int64{1, 2, 4} {
		c := l
		c.Rate *= times
		c.Burst = most(func(n int64) bool { c.Burst = n; return c.Validate() == nil })
		if c.Validate() == nil {
			all = append(all, candidate{fmt.Sprint(rule, "*", times), c})
		}
	}
	return all
}

// most returns the largest number that is good, if all smaller ones are.
func most(good func(int64) bool) int64 {
	least, most := int64(0), int64(1)<<50
	for least < most {
		if n := least + (most-least+1)/2; good(n) {
			least = n
		} else {
			most = n - 1
		}
	}
	return least
}

// unreachable is a need that no limit meets.
const unreachable = math.MaxInt64

// smallest returns the quota that denies less than a fraction of the clients, and
// how many it denies.
func smallest(needs []int64, under float64) (quota int64, denied int) {
	slices.Sort(needs)
	most := int(math.Ceil(under*float64(len(needs)))) - 1 // clients that may be denied
	quota = needs[len(needs)-1-max(most, 0)]
	for denied < len(needs) && needs[len(needs)-1-denied] > quota {
		denied++
	}
	return quota, denied
}

package table

import (
	"hash/maphash"

	"github.com/seed75154129/ratelimit/internal/step"
)

// An ID is 128 bits of hash of a count's name, with secret seeds of this process. It is
// never zero. Keys may be long, and clients choose them.
type ID [2]uint64

// Seeds are two seeds, so that clients cannot choose an ID.
type Seeds [2]maphash.Seed

// NewSeeds returns random seeds.
func NewSeeds() Seeds { return Seeds{maphash.MakeSeed(), maphash.MakeSeed()} }

const odd = 0x9e3779b97f4a7c15

// ID returns the ID of a count, and a hash of its key alone.
func (s *Seeds) ID(n step.Name) (id ID, ofKey uint64) {
	ofKey, rule := maphash.String(s[0], n.Key), maphash.String(s[0], n.Rule)
	id[0] = (ofKey*odd ^ rule) * odd
	id[1] = (maphash.String(s[1], n.Key)*odd ^ rule) * odd
	return ID{(id[0] ^ n.Window) * odd, (id[1]^n.Window)*odd | 1}, ofKey // the first half differs in each window
}

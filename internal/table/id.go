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

// ID returns the ID of a count.
func (s *Seeds) ID(n step.Name) ID {
	id, _ := s.Client(n.Rule, n.Key)
	return id.Of(n.Window)
}

// Client hashes a rule and a key, and the key alone.
func (s *Seeds) Client(rule, key string) (id ID, ofKey uint64) {
	ofKey = maphash.String(s[0], key)
	id[0] = (ofKey*odd ^ maphash.String(s[0], rule)) * odd
	id[1] = (maphash.String(s[1], key)*odd ^ maphash.String(s[1], rule)) * odd
	return id, ofKey
}

// Of returns the ID of a window of a client.
func (id ID) Of(window uint64) ID {
	return ID{(id[0] ^ window) * odd, (id[1]^window)*odd | 1} // the first half differs in each window
}

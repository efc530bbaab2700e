// Package countid identifies the counts of checks by hashes.
package countid

import (
	"hash/maphash"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/inside"
)

// internal has unexported functions of package algorithms.
var internal = algorithms.Internal.Open(&inside.Allow)

// An ID is 128 bits of hash of what identifies a count: rule, key, algorithm and
// period or calendar. Keys may be long, and clients choose them.
type ID [2]uint64

// Seeds are two seeds of this process, so that clients cannot choose an ID.
type Seeds [2]maphash.Seed

// NewSeeds returns random seeds.
func NewSeeds() Seeds { return Seeds{maphash.MakeSeed(), maphash.MakeSeed()} }

// ID returns the ID of a check's count.
func (s *Seeds) ID(c *algorithms.Check) ID { return ID{s.Half(0, c), s.Half(1, c)} }

// Half returns one of the two halves of an ID.
func (s *Seeds) Half(i int, c *algorithms.Check) uint64 {
	const odd = 0x9e3779b97f4a7c15
	h := maphash.String(s[i], c.Rule)
	h = h*odd ^ maphash.String(s[i], c.Key)
	window := internal.Counting(c.Limit)
	h = h*odd ^ maphash.String(s[i], window.Algorithm)
	h = (h ^ uint64(window.Period)) * odd
	if window.Calendar != "" {
		h = h*odd ^ maphash.String(s[i], window.Calendar)
	}
	return h ^ h>>32
}

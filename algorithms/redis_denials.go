package algorithms

import (
	"hash/maphash"
	"sync/atomic"
	"time"
)

const (
	// denialSlots is how many denied keys are remembered: 8 KB.
	denialSlots = 1024
	// maxDenial is the longest time for which a denial is remembered.
	maxDenial = 10 * time.Second
)

// denials remembers keys that Redis denied, until they may be admitted. It only
// advises to look before charging: a key that is forgotten, or mistaken for
// another one, costs a flush and changes no decision.
type denials struct {
	seed  maphash.Seed
	start time.Time
	slots [denialSlots]atomic.Uint64 // 32 bits of a key's hash, 32 of the ms since start at which it ends
}

func newDenials() *denials {
	return &denials{seed: maphash.MakeSeed(), start: time.Now()}
}

func (d *denials) slot(key string) (slot *atomic.Uint64, tag uint64) {
	hash := maphash.String(d.seed, key)
	return &d.slots[hash%denialSlots], hash &^ (1<<32 - 1)
}

func (d *denials) now() uint32 { return uint32(time.Since(d.start).Milliseconds()) }

// add remembers a key that may be admitted after a time.
func (d *denials) add(key string, after time.Duration) {
	slot, tag := d.slot(key)
	slot.Store(tag | uint64(d.now()+uint32(min(after, maxDenial).Milliseconds())))
}

// has reports whether a key was denied and may not be admitted yet.
func (d *denials) has(key string) bool {
	slot, tag := d.slot(key)
	v := slot.Load()
	return v != 0 && v&^(1<<32-1) == tag && int32(uint32(v)-d.now()) > 0
}

// remove forgets a key.
func (d *denials) remove(key string) {
	slot, _ := d.slot(key)
	slot.Store(0)
}

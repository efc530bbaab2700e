package algorithms

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"
)

// crowded decides in one shard of a Memory, where keys have few cells to share.
type crowded struct{ m Memory }

func newCrowded() *crowded {
	c := &crowded{Memory{MaxKeys: memoryShards}} // one key in each shard
	c.m.ready()
	return c
}

// place says where a key is counted. Of each row it has one of two cells, by
// the bits of cells.
func (c *crowded) place(check *Check, p *params, cells uint64) place {
	pl := c.m.place(check, p)
	pl.hash = 0
	for row := range sketchRows {
		pl.hash |= (cells >> row & 1) << (row * sketchBits)
	}
	pl.hash *= memoryShards
	pl.shard = &c.m.shards[0]
	return pl
}

func (c *crowded) take(us int64, check Check, cells uint64) Result {
	p := paramsOf(&check, check.Limit.row())
	pl := c.place(&check, &p, cells)
	return c.m.decideAt(us, true, []Check{check}, []params{p}, []place{pl}).Results[0]
}

func (c *crowded) settle(us, cost int64, charged Result, cells uint64) {
	_, corrections, _ := prepareSettle(chargesOf(cost, charged), SourceMemory)
	for i := range corrections {
		pl := c.place(&corrections[i].result.Check, &corrections[i].params, cells)
		c.m.settleAt(us, &corrections[i], &pl)
	}
}

// What is admitted without a count of one's own would have been admitted with
// one too, whoever shares the cells, when a key comes to an entry of its own, when
// classes share a sketch, and when charges are corrected.
func TestSketchesErrOnlyTowardsDenying(t *testing.T) {
	for i := range table {
		t.Run(string(table[i].name), func(t *testing.T) {
			for range 5 {
				rapid.Check(t, func(t *rapid.T) { crowd(t, &table[i]) })
			}
		})
	}
}

func crowd(t *rapid.T, a *algorithm) {
	type charge struct {
		here, there Result
		cells       uint64
	}
	l := Limit{Rate: rapid.Int64Range(1, 4).Draw(t, "rate"), Period: time.Duration(rapid.Int64Range(1, 20).Draw(t, "period")) * time.Microsecond, Algorithm: a.name}
	if a.bucket {
		l.Burst = rapid.Int64Range(1, 4).Draw(t, "burst")
	}
	tiers := [2]Limit{l, l} // keys of one rule may have different limits
	tiers[1].Rate = rapid.Int64Range(1, 16).Draw(t, "other rate")
	c, alone := newCrowded(), new(Memory)
	now := someTime + rapid.Int64Range(0, 20).Draw(t, "begin")
	// Some sketches are in use by other rules, for ever or a while: then rules
	// share the one of the rest.
	rest := rapid.Bool().Draw(t, "rest")
	for i := range maxSketches {
		if rest {
			until := now + rapid.SampledFrom([]int64{0, 30, 100, year}).Draw(t, "in use")
			c.m.shards[0].sketches.own = append(c.m.shards[0].sketches.own, &sketch{class: class{rule: fmt.Sprint("other ", i)}, until: until})
		}
	}
	var open []charge
	for range rapid.IntRange(1, 100).Draw(t, "steps") {
		if rapid.IntRange(0, 50).Draw(t, "long") == 0 {
			now += 2 * sketchSpare
		}
		now += rapid.OneOf(rapid.Just[int64](0), rapid.Int64Range(0, 2), rapid.Int64Range(0, l.Period.Microseconds())).Draw(t, "dt")
		if len(open) > 0 && rapid.IntRange(0, 4).Draw(t, "op") == 0 {
			i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
			o := open[i]
			open = append(open[:i:i], open[i+1:]...)
			most := 2 * o.here.Charged
			if a.name == SlidingLog {
				most = o.here.Charged // what a log may owe is of all its units together
			}
			cost := rapid.Int64Range(0, most).Draw(t, "to")
			c.settle(now, cost, o.here, o.cells)
			settleModelAt(alone, now, cost, []Result{o.there})
			continue
		}
		tier := rapid.IntRange(0, 1).Draw(t, "tier")
		cells := rapid.SampledFrom([]uint64{0, 1<<sketchRows - 2, 1<<sketchRows - 1}).Draw(t, "cells")
		check := Check{
			Rule:  rapid.SampledFrom([]string{"r", "r", "s"}).Draw(t, "rule"),
			Key:   fmt.Sprint(cells, "-", tier),
			Limit: tiers[tier],
			Cost:  rapid.Int64Range(1, max(l.Quota()/2, 1)).Draw(t, "cost"),
		}
		here, there := c.take(now, check, cells), modelAt(alone, now, false, []Check{check}).Results[0]
		if here.Allowed && !there.Allowed {
			t.Fatalf("admitted:\n     got %+v\nby itself %+v", here, there)
		}
		if here.Charged > 0 {
			there = modelAt(alone, now, true, []Check{check}).Results[0]
			open = append(open, charge{here, there, cells})
		}
		if here.Remaining > there.Remaining || here.Allowed && here.Delay < there.Delay || !there.Allowed && here.RetryAfter < there.RetryAfter {
			t.Fatalf("more room than its own count has:\n     got %+v\nby itself %+v", here, there)
		}
	}
}

// The bound that Memory's documentation states.
func TestSizeOfSketches(t *testing.T) {
	if size := unsafe.Sizeof(sketch{}) * memoryShards; size>>20 != 8 || size-8<<20 > 64<<10 {
		t.Errorf("a sketch takes %d bytes, want 8 MiB", size)
	}
}

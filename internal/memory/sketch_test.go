package memory

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/seed75154129/ratelimit/internal/step"
)

const someTime = 1_795_000_000_000_000 // Unix µs

// crowded decides in one shard of a Store, where keys have few cells to share.
type crowded struct{ m Store }

func newCrowded() *crowded {
	c := &crowded{Store{MaxKeys: shardCount}} // one key in each shard
	c.m.ready()
	return c
}

// place says where a count is kept. Of each row it has one of two cells, by the
// bits of cells.
func (c *crowded) place(n *Count, cells uint64) {
	c.m.place(&n.place, n.Rule, n.Key, &n.Params)
	n.hash = 0
	for row := range sketchRows {
		n.hash |= (cells >> row & 1) << (row * sketchBits)
	}
	n.hash *= shardCount
	n.shard = &c.m.shards[0]
}

func (c *crowded) take(us int64, n Count, cells uint64) Count {
	c.place(&n, cells)
	counts := []Count{n}
	c.m.decideAt(us, true, counts)
	return counts[0]
}

func (c *crowded) settle(us int64, charged Count, delta int64, cells uint64) {
	c.place(&charged, cells)
	c.m.settleAt(us, &charged.place, correction(&charged, delta))
}

// alone decides in a Store in which each key has a count of its own.
func alone(m *Store, us int64, charge bool, n Count) Count {
	m.ready()
	m.place(&n.place, n.Rule, n.Key, &n.Params)
	counts := []Count{n}
	m.decideAt(us, charge, counts)
	return counts[0]
}

func correction(charged *Count, delta int64) *step.Correction {
	return &step.Correction{Params: charged.Params, Placed: charged.Where, Units: charged.Charged, Delta: delta}
}

// What is admitted without a count of one's own would have been admitted with
// one too, whichever keys share the cells, when a key comes to an entry of its own,
// when classes share a sketch, and when charges are corrected.
func TestSketchesErrOnlyTowardsDenying(t *testing.T) {
	for i := range step.Table {
		if step.Table[i].Held {
			continue // is never in a sketch
		}
		t.Run(step.Table[i].Name, func(t *testing.T) {
			for range 5 {
				rapid.Check(t, func(t *rapid.T) { crowd(t, &step.Table[i]) })
			}
		})
	}
}

func crowd(t *rapid.T, row *step.Row) {
	type charge struct {
		here, there Count
		cells       uint64
	}
	l := step.Limit{
		Rate: rapid.Int64Range(1, 4).Draw(t, "rate"), Algorithm: row.Number,
		Period: time.Duration(rapid.Int64Range(1, 20).Draw(t, "period")) * time.Microsecond,
	}
	span := l.Period.Microseconds() // by which the clock moves at most
	if row.Calendar {
		l.Period, l.Calendar, span = 0, "day@UTC", 24*3600*1e6
	}
	if row.Bucket {
		l.Burst = rapid.Int64Range(1, 4).Draw(t, "burst")
	}
	tiers := [2]step.Limit{l, l} // keys of one rule may have different limits
	tiers[1].Rate = rapid.Int64Range(1, 16).Draw(t, "other rate")
	c, own := newCrowded(), new(Store)
	now := someTime + rapid.Int64Range(0, 20).Draw(t, "begin")
	// Some sketches are in use by other rules, for ever or a while: then rules
	// share the one of the rest.
	rest := rapid.Bool().Draw(t, "rest")
	for i := range maxSketches {
		if rest {
			const year = 365 * 24 * 3600 * 1_000_000
			until := now + rapid.SampledFrom([]int64{0, 30, 100, year}).Draw(t, "in use")
			c.m.shards[0].sketches = append(c.m.shards[0].sketches, &sketch{class: class{rule: fmt.Sprint("other ", i)}, until: until})
		}
	}
	var open []charge
	for range rapid.IntRange(1, 100).Draw(t, "steps") {
		if rapid.IntRange(0, 50).Draw(t, "long") == 0 {
			now += 2 * sketchSpare
		}
		now += rapid.OneOf(rapid.Just[int64](0), rapid.Int64Range(0, 2), rapid.Int64Range(0, span)).Draw(t, "dt")
		if len(open) > 0 && rapid.IntRange(0, 4).Draw(t, "op") == 0 {
			i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
			o := open[i]
			open = append(open[:i:i], open[i+1:]...)
			most := 2 * o.here.Charged
			if row.Summary {
				most = o.here.Charged // what a log may owe is of all its units together
			}
			delta := rapid.Int64Range(0, most).Draw(t, "to") - o.here.Charged
			c.settle(now, o.here, delta, o.cells)
			own.place(&o.there.place, o.there.Rule, o.there.Key, &o.there.Params)
			own.settleAt(now, &o.there.place, correction(&o.there, delta))
			continue
		}
		tier := rapid.IntRange(0, 1).Draw(t, "tier")
		cells := rapid.SampledFrom([]uint64{0, 1<<sketchRows - 2, 1<<sketchRows - 1}).Draw(t, "cells")
		count := Count{
			Rule:   rapid.SampledFrom([]string{"r", "r", "s"}).Draw(t, "rule"),
			Key:    fmt.Sprint(cells, "-", tier),
			Params: tiers[tier].Params(rapid.Int64Range(1, max(l.Quota()/2, 1)).Draw(t, "cost"), 0, row),
		}
		here, there := c.take(now, count, cells), alone(own, now, false, count)
		if here.Room && !there.Room {
			t.Fatalf("admitted:\n     got %+v\nby itself %+v", here, there)
		}
		if here.Charged > 0 {
			there = alone(own, now, true, count)
			open = append(open, charge{here, there, cells})
		}
		h, o := here.Answer, there.Answer
		if h.Remaining > o.Remaining || here.Room && h.Delay < o.Delay || !there.Room && h.RetryAfter < o.RetryAfter {
			t.Fatalf("more room than its own count has:\n     got %+v\nby itself %+v", here, there)
		}
	}
}

// A clock that steps back over an edge of windows does not free a key: what it charges
// there is counted, until the clock has come back too.
func TestSketchesCountWhileTheClockIsBack(t *testing.T) {
	const edge = someTime - someTime%(24*3600*1_000_000) // in UTC, of a day and of each period
	for i := range step.Table {
		row := &step.Table[i]
		if row.Held {
			continue
		}
		l := step.Limit{Rate: 3, Period: time.Second, Algorithm: row.Number}
		switch {
		case row.Calendar:
			l.Period, l.Calendar = 0, "day@UTC"
		case row.Bucket:
			l.Burst = l.Rate
		}
		c, admitted := newCrowded(), int64(0)
		take := func(us int64) {
			if c.take(us, Count{Rule: "r", Key: "k", Params: l.Params(1, 0, row)}, 0).Room {
				admitted++
			}
		}
		c.take(edge, Count{Rule: "r", Key: "other", Params: l.Params(1, 0, row)}, 1<<sketchRows-1) // the one with an entry
		for _, us := range []int64{edge, edge - 1, edge - 1, edge - 1, edge - 1, edge} {
			take(us)
		}
		if admitted != l.Rate {
			t.Errorf("%s: admitted %d of %d", row.Name, admitted, l.Rate)
		}
	}
}

// The bound that Memory's documentation states.
func TestSizeOfSketches(t *testing.T) {
	if size := unsafe.Sizeof(sketch{}) * shardCount; size>>20 != 8 || size-8<<20 > 64<<10 {
		t.Errorf("a sketch takes %d bytes, want 8 MiB", size)
	}
}

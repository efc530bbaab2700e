package denials

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

func taken(t *testing.T, m *algorithms.Memory, c algorithms.Check) algorithms.Decision {
	t.Helper()
	d, err := m.Take(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Of answers that overtake each other, the one that the store gave last counts.
func TestTheNewerAnswerCounts(t *testing.T) {
	d := new(Cache)
	d.Start(func(algorithms.Check) bool { return false })
	c := algorithms.Check{Rule: "r", Key: "k", Limit: algorithms.Limit{Rate: 2, Period: time.Hour, Algorithm: algorithms.FixedWindow}}
	m := new(algorithms.Memory)
	sent := d.Now()
	first := taken(t, m, c).Results[0]
	taken(t, m, c)
	last := taken(t, m, c).Results[0]
	for _, r := range []*algorithms.Result{&last, &first} { // the first comes last
		d.Learn(sent, new(Lookup), r)
		l := d.lookUp(&c, d.now())
		if l.next != deny {
			t.Errorf("%+v", l)
		}
		first.Check.NoCache = true // so that it is looked at although it was admitted
	}
	d.Forget(&c, false)
	if l := d.lookUp(&c, d.now()); l.entry != nil {
		t.Errorf("%+v", l)
	}
}

// However many keys are denied, the table stays as large as it is.
func TestCacheIsBounded(t *testing.T) {
	d := new(Cache)
	d.Start(func(algorithms.Check) bool { return false })
	c := algorithms.Check{Rule: "r", Limit: algorithms.PerMinute(1)}
	m := new(algorithms.Memory)
	taken(t, m, c)
	r := taken(t, m, c).Results[0]
	for i := range 100_000 {
		r.Check.Key = fmt.Sprint(i)
		d.Learn(d.Now(), new(Lookup), &r)
	}
	n := 0
	for i := range d.sets {
		s := &d.sets[i]
		n += s.used
		for _, h := range s.hashes[:s.used] {
			if !d.mayKnow(h) {
				t.Fatal("there is an entry that no look-up finds")
			}
		}
		for s.used > 0 {
			s.remove(s.entries[0])
		}
		if d.signs[i].Load() != 0 {
			t.Fatal("a set without entries has signs of some")
		}
	}
	if n > setCount*setSize || n < setCount*setSize*9/10 {
		t.Errorf("%d entries", n)
	}
}

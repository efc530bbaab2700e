package algorithms

import (
	"slices"
	"testing"
	"time"
)

// Chained middlewares may have rules of one name. Result is for the innermost, whose
// results are the last, as Settle and Add are.
func TestResultOfARuleThatComesTwice(t *testing.T) {
	m := &Memory{Now: func() time.Time { return time.Unix(1_000_000, 0) }}
	take := func(key string, cost int64) Decision {
		hour, day := Check{Rule: "plan", Key: key, Cost: cost, Limit: PerHour(10)}, Check{Rule: "plan", Key: key, Cost: cost, Limit: PerDay(15, "UTC")}
		d, err := m.Take(t.Context(), Check{Rule: "other", Key: key, Limit: PerHour(1)}, hour, day)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for name, c := range map[string]struct {
		outer, inner int64 // costs; the larger one leaves less
	}{
		"the outer is tighter": {9, 1},
		"the inner is tighter": {1, 9},
		"the outer denies":     {11, 1},
		"the inner denies":     {1, 11},
	} {
		t.Run(name, func(t *testing.T) {
			outer, inner := take(name+" outer", c.outer), take(name+" inner", c.inner)
			d := Decision{Results: slices.Concat(outer.Results, inner.Results)}
			if r, ok := d.Result("plan"); !ok || r.Check.Key != name+" inner" || r.Denies() != (c.inner > 10) {
				t.Errorf("%s of %q: %+v", r.Check.Limit, r.Check.Key, r)
			}
		})
	}
}

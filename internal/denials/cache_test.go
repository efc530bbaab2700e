package denials

import (
	"fmt"
	"testing"
	"testing/synctest"
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
		first.Check.Ban = algorithms.Ban{After: 1, For: time.Hour} // so that it is looked at although it was admitted
	}
	d.Forget(&c, false)
	if l := d.lookUp(&c, d.now()); l.entry != nil {
		t.Errorf("%+v", l)
	}
}

// An answer is newer if its request was sent after the entry's last answer came, and else by
// the store's clock. Of the same microsecond, the one that has more used is.
func TestNewer(t *testing.T) {
	known := lastAnswer{exact: true, state: [3]int64{7, 2}, room: 5, at: 100, sent: 10, received: 20}
	with := func(change func(*lastAnswer)) lastAnswer {
		a := known
		change(&a)
		return a
	}
	for _, c := range []struct {
		what string
		a    lastAnswer
		want bool
	}{
		{"sent afterwards, by a clock that is behind", with(func(a *lastAnswer) { a.sent, a.at = 20, 50 }), true},
		{"sent before that, by an earlier clock", with(func(a *lastAnswer) { a.sent, a.at = 19, 99 }), false},
		{"sent before that, by a later clock", with(func(a *lastAnswer) { a.sent, a.at = 0, 101 }), true},
		{"more used", with(func(a *lastAnswer) { a.state[1] = 3 }), true},
		{"as much used", known, true},
		{"less used", with(func(a *lastAnswer) { a.state[1] = 1 }), false},
		{"no state, less room", with(func(a *lastAnswer) { a.exact, a.room = false, 4 }), true},
		{"no state, more room", with(func(a *lastAnswer) { a.exact, a.room = false, 6 }), false},
	} {
		if e := (&entry{lastAnswer: known}); e.newer(&c.a) != c.want {
			t.Errorf("%s: newer is not %v", c.what, c.want)
		}
	}
}

// started is a Cache for a store that can be asked, and answers of a Memory: units of a
// limit of four that are charged, and then a denial.
func started(t *testing.T, key string) (d *Cache, check algorithms.Check, charged, denied algorithms.Result) {
	t.Helper()
	d = new(Cache)
	d.Start(func(algorithms.Check) bool { return false })
	m := new(algorithms.Memory)
	check = algorithms.Check{Rule: "r", Key: key, Limit: algorithms.Limit{Rate: 4, Period: time.Minute, Burst: 4, Algorithm: algorithms.TokenBucket}}
	all := check
	all.Cost = 4
	charged = taken(t, m, all).Results[0]
	denied = taken(t, m, check).Results[0]
	return d, check, charged, denied
}

// A request that one check denies does not wait for the room of another, and does not ask
// the store about the denial: nothing that it would learn admits it.
func TestADeniedRequestDoesNotWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, low, _, denied := started(t, "low")
		d.Learn(d.Now(), new(Lookup), &denied)
		time.Sleep(16 * time.Second) // there is room for one, which is asked for
		if _, outcome, _ := d.Decide(t.Context(), []algorithms.Check{low}, make([]Lookup, 1), time.Minute); outcome != Ask {
			t.Fatal(outcome)
		}
		over := low
		over.Key = "over"
		denied.Check = over
		d.Learn(d.Now(), new(Lookup), &denied)
		time.Sleep(2 * recheckInterval)
		begin := time.Now()
		got, outcome, _ := d.Decide(t.Context(), []algorithms.Check{low, over}, make([]Lookup, 2), time.Minute)
		if outcome != Denied || time.Since(begin) != 0 || got.Results[1].Source != algorithms.SourceDenyCache {
			t.Errorf("outcome %d after %v: %+v", outcome, time.Since(begin), got)
		}
		if d.rechecked.Load() != 0 {
			t.Error("it took the recheck of another request")
		}
	})
}

// Requests that wait for room are woken by an answer that left it unused, although others
// are still under way.
func TestRoomThatWasNotUsedWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, check, _, denied := started(t, "k")
		d.Learn(d.Now(), new(Lookup), &denied)
		time.Sleep(31 * time.Second) // there is room for two
		var asked [2]Lookup
		for i := range asked {
			var outcome Outcome
			if _, outcome, _ = d.Decide(t.Context(), []algorithms.Check{check}, asked[i:i+1], time.Minute); outcome != Ask {
				t.Fatal(outcome)
			}
		}
		waited := make(chan Outcome)
		go func() {
			_, outcome, _ := d.Decide(t.Context(), []algorithms.Check{check}, make([]Lookup, 1), time.Minute)
			waited <- outcome
		}()
		synctest.Wait()
		unused := denied
		unused.At = denied.At.Add(31 * time.Second)
		d.Learn(d.Now(), &asked[0], &unused) // other limits of its request denied it
		synctest.Wait()
		select {
		case outcome := <-waited:
			if outcome != Ask {
				t.Error(outcome)
			}
		default:
			t.Error("it still waits")
			d.Release(&asked[1], false)
			<-waited
		}
	})
}

// What a check in shadow is told says nothing about a ban, which it does not obey.
func TestShadowForgetsNoBan(t *testing.T) {
	d, check, charged, denied := started(t, "k")
	check.Ban = algorithms.Ban{After: 1, Within: time.Minute, For: time.Hour}
	denied.Check, denied.BannedFor = check, time.Hour
	d.Learn(d.Now(), new(Lookup), &denied)
	charged.Check = check
	charged.Check.Shadow = true
	d.Learn(d.Now(), new(Lookup), &charged)
	if r, ok := d.Find(&check); !ok || r.BannedFor == 0 {
		t.Errorf("the ban is forgotten: %+v", r)
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

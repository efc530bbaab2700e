package banned

import (
	"fmt"
	"testing"
	"time"
)

// However many clients are banned, those that stay are the ones by hand and those that
// end last, and what is met again changes nothing.
func TestAFloodOfBans(t *testing.T) {
	var l List
	now := time.Unix(1e9, 0)
	key := func(i int) Key { return Key{"r", fmt.Sprint(i)} }
	ends := func(i int) time.Duration { return time.Hour + time.Duration(i*7919%1000)*2*precision }
	l.Note(Key{"r", "by hand"}, ByOperator+"192.0.2.1", now, time.Minute)
	for range 2 {
		for i := range 1000 {
			l.Note(key(i), "", now, ends(i))
		}
	}
	all := l.All(now)
	if len(all) != Max || all[0].Key.Key != "by hand" {
		t.Fatalf("%d bans, first %+v", len(all), all[0])
	}
	for _, b := range all[1:] {
		if b.Until.Before(now.Add(ends(0) + (1000-Max+1)*2*precision)) {
			t.Errorf("%+v stays", b)
		}
	}
	for i := range 1000 {
		if b := (&Ban{Key: key(i), Until: now.Add(ends(i))}); !l.repeats(b, now) {
			t.Errorf("%+v changes something", b)
		}
	}
	for _, step := range []struct {
		do    func()
		known bool // the ban of client 0, which ends first
	}{
		{func() { l.Note(key(0), ByRule, now, ends(0)) }, false},
		{func() { l.Forget(all[1].Key); l.Note(key(0), "", now, ends(0)) }, true},
		{func() { now = now.Add(ends(0)) }, false},
		{func() { l.Note(key(0), "", now, time.Second) }, true},
		{func() { l.Forget(key(0)) }, false},
		{func() { l.Note(key(0), ByOperator, now, time.Second) }, true},
	} {
		step.do()
		known := false
		for _, b := range l.All(now) {
			known = known || b.Key == key(0)
		}
		if known != step.known {
			t.Errorf("known %t, want %t", known, step.known)
		}
	}
}

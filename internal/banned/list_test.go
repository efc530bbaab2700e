package banned

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// However many clients are banned, the list is bounded, those that it has stay until they
// end, and a ban by hand has room.
func TestAFloodOfBans(t *testing.T) {
	var l List
	begun := time.Unix(1e9, 0)
	now := begun
	key := func(i int) Key { return Key{"r", fmt.Sprint(i)} }
	flood := func(from int) {
		for i := range 1000 {
			l.Note(key(from+i), "", now, time.Hour)
		}
	}
	want := func(step string, hands, from, to int) {
		t.Helper()
		all := l.All(now)
		if len(all) != hands+to-from {
			t.Errorf("%s: %d bans, want %d", step, len(all), hands+to-from)
		}
		known := make(map[Key]bool)
		for i, b := range all {
			if strings.HasPrefix(b.By, ByOperator) != (i < hands) {
				t.Errorf("%s: %+v at %d", step, b, i)
			}
			known[b.Key] = true
		}
		for i := from; i < to; i++ {
			if !known[key(i)] {
				t.Errorf("%s: no ban of %d", step, i)
			}
		}
	}

	l.Note(key(-1), ByOperator+"192.0.2.1", now, 2*time.Hour)
	flood(0)
	want("full", 1, 0, Max-1)
	now = now.Add(time.Minute)
	flood(0)
	want("met again", 1, 0, Max-1)
	if b := l.All(now)[1]; b.Since != begun || b.Until != now.Add(time.Hour) {
		t.Errorf("%+v, want one since %s for an hour from now", b, begun)
	}
	l.Forget(key(0))
	l.Note(key(Max-1), ByRule, now, time.Hour)
	want("one was lifted", 1, 1, Max)
	now = now.Add(time.Hour)
	want("ended", 1, 0, 0)
	flood(1000)
	want("after others have ended", 1, 1000, 1000+Max-1)
	for i := range 2 * Max {
		l.Note(key(2000+i), ByOperator+"192.0.2.1", now, time.Hour)
	}
	if all := l.All(now); len(all) != Max || all[Max-1].By != ByOperator+"192.0.2.1" {
		t.Errorf("%d bans, the last of them %+v; want %d by hand", len(all), all[len(all)-1], Max)
	}
}

// What has begun a ban is as it was last known, and its end is the latest.
func TestABanIsMetAgain(t *testing.T) {
	var l List
	begun, key := time.Unix(1e9, 0), Key{"r", "k"}
	at := begun.Add
	for _, step := range []struct {
		at, rest time.Duration
		by       string
		want     Ban
	}{
		{0, 10 * time.Minute, ByRule, Ban{key, ByRule, begun, at(10 * time.Minute)}},
		{time.Minute, 5 * time.Minute, "", Ban{key, ByRule, begun, at(10 * time.Minute)}},
		{2 * time.Minute, 9 * time.Minute, "", Ban{key, ByRule, begun, at(11 * time.Minute)}},
		{3 * time.Minute, time.Minute, ByOperator + "a", Ban{key, ByOperator + "a", at(3 * time.Minute), at(11 * time.Minute)}},
		{time.Hour, time.Minute, "", Ban{key, "", at(time.Hour), at(61 * time.Minute)}},
	} {
		l.Note(key, step.by, at(step.at), step.rest)
		if all := l.All(at(step.at)); len(all) != 1 || all[0] != step.want {
			t.Errorf("at %s: %+v, want %+v", step.at, all, step.want)
		}
	}
	if all := l.All(at(61 * time.Minute)); all != nil {
		t.Errorf("%+v after its end", all)
	}
}

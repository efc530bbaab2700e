package inflight

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

type silent struct{ told int }

func (*silent) ShardOf(string) int { return 0 }
func (s *silent) Tell(_ context.Context, news []News) (failed []News, err error) {
	s.told += len(news)
	return nil, nil
}

// What has begun just before a circuit closes is told behind it; what is known is not told
// again.
func TestTellOnlyWhatIsNew(t *testing.T) {
	s := new(silent)
	r := &Registry{
		Store:  s,
		Open:   func(int) bool { return true },
		Safely: func(f func() error) error { return f() },
	}
	defer r.Close(func() {})
	r.Answered(r.Ask("known", time.Minute), Granted, true)
	r.Answered(r.Ask("new", time.Minute), Denied, true)
	if r.Tell(0, false); s.told != 1 {
		t.Errorf("told of %d keys, want 1", s.told)
	}
	if r.Tell(0, true); s.told != 3 {
		t.Errorf("told of %d keys, want both once more", s.told)
	}
}

// A process that stood still for longer than a lease says so, also if its requests have ended
// when it tells the store again.
func TestLate(t *testing.T) {
	for _, long := range []time.Duration{time.Second, 4 * time.Second} {
		for _, c := range []struct {
			name    string
			telling bool // when it stands still: as it tells the store, or before it
			ends    bool // then
		}{{"before it tells", false, false}, {"as it tells", true, false}, {"as it tells, and ends", true, true}} {
			t.Run(c.name+", "+long.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var stands, id, late atomic.Int64
					r := new(Registry)
					stand := func(telling bool) {
						if telling == c.telling {
							time.Sleep(time.Duration(stands.Swap(0)))
						}
						if telling && c.ends {
							r.End(id.Load())
						}
					}
					r.Store = tellingStore(func() { stand(true) })
					r.Open = func(int) bool { stand(false); return false }
					r.Begin = func(f func()) bool { go f(); return true }
					r.Safely = func(f func() error) error { return f() }
					r.Late = func(by time.Duration) { late.Store(int64(by)) }
					defer r.Close(synctest.Wait)
					id.Store(r.Answered(r.Ask("k", 3*time.Second), Granted, true))
					stands.Store(int64(long))
					time.Sleep(10 * time.Second)
					if by := time.Duration(late.Load()); by > 0 != (long > 3*time.Second) || by > long {
						t.Errorf("stood still for %s, and said %s", long, by)
					}
				})
			})
		}
	}
}

// A tellingStore is told, and does this then.
type tellingStore func()

func (tellingStore) ShardOf(string) int { return 0 }
func (f tellingStore) Tell(context.Context, []News) (failed []News, err error) {
	f()
	return nil, nil
}

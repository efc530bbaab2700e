package redistest

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func TestClock(t *testing.T) {
	t.Parallel()
	s, clock := StartWithClock(t)
	rdb, ctx := s.Client(t), t.Context()
	wantTime := func(want time.Time) {
		t.Helper()
		if got := rdb.Time(ctx).Val(); !got.Equal(want) {
			t.Errorf("TIME = %v, want %v", got, want)
		}
		if got := clock.Now(); !got.Equal(want) {
			t.Errorf("Now() = %v, want %v", got, want)
		}
	}

	if since := time.Since(clock.Now()); since < 0 || since > time.Minute {
		t.Errorf("the clock starts %v ago, want now", since)
	}
	clock.Set(noon.Add(123456 * time.Microsecond))
	wantTime(noon.Add(123456 * time.Microsecond))
	if err := rdb.Do(ctx, "DEBUG", "SLEEP", "0.01").Err(); err != nil {
		t.Fatal(err)
	}
	wantTime(noon.Add(123456 * time.Microsecond)) // frozen
	clock.Advance(time.Microsecond)
	wantTime(noon.Add(123457 * time.Microsecond))
	clock.Advance(-time.Hour)
	wantTime(noon.Add(123457*time.Microsecond - time.Hour))
	clock.Set(time.Unix(1_000_000_000, 999_999_999)) // cut off to microseconds
	wantTime(time.Unix(1_000_000_000, 999_999_000))

	s.Restart(t)
	wantTime(time.Unix(1_000_000_000, 999_999_000))
}

// TestClockNotFollowed is about a server whose time is its own.
func TestClockNotFollowed(t *testing.T) {
	t.Parallel()
	s := Start(t)
	clock, err := newClock(filepath.Join(t.TempDir(), "clock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.follows(clock); err == nil || !strings.Contains(err.Error(), s.bin) {
		t.Errorf("follows = %v, want an error that names the server", err)
	}
}

func TestClockExpiry(t *testing.T) {
	t.Parallel()
	s, clock := StartWithClock(t)
	rdb, ctx := s.Client(t), t.Context()
	wantTTL := func(want time.Duration) {
		t.Helper()
		if got := rdb.PTTL(ctx, "k").Val(); got != want {
			t.Errorf("at %v: PTTL = %v, want %v", clock.Now().UTC(), got, want)
		}
	}
	const gone = -2 // PTTL's answer

	clock.Set(noon)
	rdb.Set(ctx, "k", "v", 100*time.Millisecond)
	wantTTL(100 * time.Millisecond)
	clock.Advance(99*time.Millisecond + 999*time.Microsecond)
	wantTTL(time.Millisecond)
	clock.Advance(time.Microsecond)
	wantTTL(0) // Redis keeps a key through its last millisecond
	clock.Advance(999 * time.Microsecond)
	wantTTL(0)
	clock.Advance(time.Microsecond)
	wantTTL(gone)

	rdb.Set(ctx, "k", "v", 0)
	rdb.PExpire(ctx, "k", time.Hour)
	clock.Advance(-time.Hour) // an NTP step: the key lives longer
	wantTTL(2 * time.Hour)
	clock.Advance(2*time.Hour + time.Millisecond)
	wantTTL(gone)
}

// TestClockIsOneClock is about what Redis compares with TIME: its own time(2).
func TestClockIsOneClock(t *testing.T) {
	t.Parallel()
	s, clock := StartWithClock(t)
	rdb, ctx := s.Client(t), t.Context()
	clock.Set(noon)
	if err := rdb.Save(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	if got := rdb.LastSave(ctx).Val(); got != noon.Unix() {
		t.Errorf("LASTSAVE = %v, want %v", time.Unix(got, 0), noon)
	}
	if got := rdb.ConfigGet(ctx, "jemalloc-bg-thread").Val()["jemalloc-bg-thread"]; got != "no" {
		t.Errorf("jemalloc-bg-thread = %s: it spins when the clock is in the past", got)
	}
}

package algorithms

import (
	"os"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/internal/memory"
	"github.com/seed75154129/ratelimit/internal/rated"
)

// A flood is ten seconds of new keys. After two of them, when nobody else finds
// room, there come clients, each asking once a second, and abusers, each asking
// a hundred times.
type flood struct {
	maxKeys   int
	perSecond int // new keys
	clients   int
}

// A flooding is what became of it.
type flooding struct {
	stats       memory.Stats
	asked       int   // by clients
	denied      int   // of that
	most, least int   // admitted of one abuser
	noise       int64 // units that seem used by a key that used none
	heap        int64 // bytes
	growth      int64 // of that, since the clients came
}

func (f flood) run(t *testing.T, l Limit) flooding {
	const seconds, ticks = 10, 100 // ticks in each
	before := heap()
	m := &Memory{MaxKeys: f.maxKeys}
	var got flooding
	take := func(kind string, n int) int {
		d, err := m.Take(t.Context(), Check{Rule: "r", Key: kind + strconv.Itoa(n), Limit: l})
		if err != nil {
			t.Fatal(err)
		}
		if d.Allowed {
			return 1
		}
		return 0
	}
	var abusers [40]int
	for tick := range seconds * ticks {
		for i := range f.perSecond / ticks {
			take("flood", tick*f.perSecond/ticks+i)
		}
		if tick == 2*ticks {
			got.growth = -heap()
		}
		if tick >= 2*ticks {
			for i := range abusers {
				abusers[i] += take("abuser", i)
			}
			for i := range f.clients / ticks {
				got.asked++
				got.denied += 1 - take("client", (tick%ticks)*f.clients/ticks+i)
			}
		}
		time.Sleep(time.Second / ticks)
	}
	got.heap = heap()
	got.growth += got.heap
	got.heap -= before
	got.stats = m.ready().Stats()
	got.noise = l.Quota() - peekOne(t, m, Check{Rule: "r", Key: "nobody", Limit: l}).Remaining
	got.most, got.least = abusers[0], abusers[0]
	for _, n := range abusers {
		got.most, got.least = max(got.most, n), min(got.least, n)
	}
	return got
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Three million keys, of which a tenth finds room, take no more memory than one
// million; nobody is freed by them and nobody is denied for them.
func TestAFloodHarmsNobody(t *testing.T) {
	full := flood{maxKeys: 1 << 18, perSecond: 300_000, clients: 5000}
	small := flood{maxKeys: 2048, perSecond: 30_000, clients: 500}
	for i := range rated.Rows {
		t.Run(rated.Rows[i].Name, func(t *testing.T) {
			f, l := small, Limit{Rate: 200, Period: time.Minute, Algorithm: Algorithm(rated.Rows[i].Number)}
			if rated.Rows[i].Bucket {
				l.Burst = l.Rate
			}
			if l.Algorithm == SlidingWindow && os.Getenv("OUTAGES") == "all" { // ten seconds and more
				f = full
			}
			synctest.Test(t, func(t *testing.T) {
				got := f.run(t, l)
				t.Logf("%+v", got)
				if got.stats.Keys > f.maxKeys || got.stats.Overflowed == 0 || got.stats.Sketches != 1 {
					t.Errorf("stats: %+v", got.stats)
				}
				if got.asked < 8*f.clients || got.denied*1000 > got.asked {
					t.Errorf("%d of %d requests of clients below their limit were denied", got.denied, got.asked)
				}
				limit := 200
				if rated.Rows[i].Bucket {
					limit += 200 * 8 / 60 // refilled meanwhile
				}
				if got.most > limit || got.least < limit*9/10 {
					t.Errorf("abusers were admitted %d to %d times, limit %d", got.least, got.most, limit)
				}
				if got.growth > 4<<20 {
					t.Errorf("the heap grew by %d bytes to %d", got.growth, got.heap)
				}
			})
		})
	}
}

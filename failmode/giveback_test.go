package failmode

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/internal/background"
)

// What denied requests were charged is given back in the background, so many at a
// time. The others stay charged, and the log says how many.
func TestGiveBacksThatFindNoRoomAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, s := new(logbook), &distant{settles: time.Second, lost: map[string]error{"away": errAway}}
		g := guarding(t, s)
		g.Logger = slog.New(slog.NewTextHandler(log, nil))
		there := check("there", 10_000, Local)
		const requests = background.Max + 100
		for range requests {
			if d := taken(t, g, there, check("away", 1, Closed)); d.Allowed || d.Results[0].Charged != 0 {
				t.Fatalf("%+v", d)
			}
		}
		_ = g.Close()
		lost := s.used(t, there)
		if lost == 0 || lost >= requests {
			t.Fatalf("%d of %d lost", lost, requests)
		}
		if n := g.lost.Load(); n != lost {
			t.Errorf("%d counted, %d lost", n, lost)
		}
		if text := log.String(); strings.Count(text, "not refunded") != 1 {
			t.Errorf("log: %s", text)
		}
	})
}

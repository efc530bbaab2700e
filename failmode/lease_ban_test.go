package failmode

import (
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// A ban through another process ends a block as soon as the store is asked for the
// next one, and a second after the block was asked for in any case.
func TestABanEndsABlockWithinASecond(t *testing.T) {
	for name, every := range map[string]time.Duration{"hot": time.Millisecond, "hot no more": 200 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			s := &distant{there: time.Millisecond, back: time.Millisecond}
			bubble(t, s, func(t *testing.T, g *Guard) {
				c := leased(1_000_000, time.Hour, algorithms.FixedWindow)
				for range 300 {
					taken(t, g, c)
					time.Sleep(time.Millisecond)
				}
				hot(t, g, c)
				if err := s.Memory.Ban(t.Context(), time.Hour, c); err != nil { // through another process
					t.Fatal(err)
				}
				banned, last := time.Now(), time.Duration(0)
				for time.Since(banned) < 5*time.Second {
					if d := taken(t, g, c); d.Allowed {
						last = time.Since(banned)
					}
					time.Sleep(every)
				}
				most := time.Second
				if every < 10*time.Millisecond {
					most = 300 * time.Millisecond
				}
				if last > most {
					t.Errorf("admitted %s after the ban", last)
				}
				if err := s.Memory.Ban(t.Context(), 0, c); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				if d := taken(t, g, c); !d.Allowed {
					t.Errorf("lifted: %+v", d)
				}
			})
		})
	}
}

// Whatever says that the key is banned ends its block.
func TestABanThatIsToldEndsABlock(t *testing.T) {
	for name, ask := range map[string]func(t *testing.T, g *Guard, c algorithms.Check){
		"Peek": func(t *testing.T, g *Guard, c algorithms.Check) {
			if d, err := g.Peek(t.Context(), c); err != nil || d.Allowed || d.Results[0].HasRoom || d.Results[0].BannedFor == 0 || d.RetryAfter() == 0 {
				t.Errorf("%+v, %v", d, err)
			}
		},
		"a request for more than the block has": func(t *testing.T, g *Guard, c algorithms.Check) {
			c.Cost = 1000
			if d := taken(t, g, c); d.Allowed || d.Results[0].BannedFor == 0 {
				t.Errorf("%+v", d)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := new(distant)
			bubble(t, s, func(t *testing.T, g *Guard) {
				c := leased(10_000, time.Hour, algorithms.FixedWindow)
				warmUp(t, g, c)
				if err := s.Memory.Ban(t.Context(), time.Hour, c); err != nil {
					t.Fatal(err)
				}
				ask(t, g, c)
				if n := block(g, c); n != 0 {
					t.Errorf("%d left", n)
				}
			})
		})
	}
}

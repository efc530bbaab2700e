package sampler_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/internal/sampler"
)

func TestSampler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, calls := sampler.Sampler{Every: 10 * time.Second}, 0
		for range 100 { // 100 s
			for range 3 {
				s.Do(func() { calls++ })
			}
			time.Sleep(time.Second)
		}
		if calls != 10 {
			t.Errorf("%d calls in 100 s, want 10", calls)
		}
	})
}

package monitoring_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/internal/redistest"
)

// traffic is what clients send to an example until it is stopped.
type traffic struct {
	stop chan struct{}
	done sync.WaitGroup
}

// start has step send something, again and again; it is told how often before.
func start(t *testing.T, every time.Duration, step func(n int)) *traffic {
	tr := &traffic{stop: make(chan struct{})}
	tr.done.Go(func() {
		ticks := time.NewTicker(every)
		defer ticks.Stop()
		for n := 0; ; n++ {
			select {
			case <-tr.stop:
				return
			case <-ticks.C:
				step(n)
			}
		}
	})
	t.Cleanup(tr.end)
	return tr
}

// end stops the traffic, if that has not been done.
func (tr *traffic) end() {
	select {
	case <-tr.stop:
	default:
		close(tr.stop)
	}
	tr.done.Wait()
}

// The alerts fire and resolve on a real server while real requests come and the
// real Redis goes, and every panel of the dashboard shows something.
func TestLive(t *testing.T) {
	if testing.Short() {
		t.Skip("takes most of a minute")
	}
	tool(t, "prometheus")
	srv := redistest.Start(t)
	e := startExample(t, "-redis=redis://"+srv.Addr)
	const window = "5s"
	s := startPrometheus(t, e.admin, window, 75*time.Second)
	empty := panels(t)

	// Everybody is somebody else, and comes once.
	start(t, 40*time.Millisecond, func(n int) {
		ip := fmt.Sprintf("10.1.%d.%d", n>>8&255, n&255)
		e.send("GET /api/items", ip, "user "+ip)
		if n%4 == 0 {
			e.send("POST /auth/login", ip, "")
		}
	})
	s.until(t, "normal traffic is counted", func() error {
		if len(s.query(t, `rate(ratelimit_decisions_total{rule="per-ip",outcome="allowed",source="redis"}[`+window+`]) > 1`)) == 0 {
			return errors.New("no rate of decisions")
		}
		return nil
	})
	denying := []string{"RatelimitRuleDenying per-ip", "RatelimitNearLimit login"}
	away := []string{"RatelimitBreakerOpen", "RatelimitFailOpen per-ip", "RatelimitFailClosed login"}
	hangs := []string{"RatelimitBreakerOpen", "RatelimitStoreSlow"}
	refuses := []string{"RatelimitBreakerOpen", "RatelimitStoreRefused refused"}
	s.wantResolved(t, "all is well", slices.Concat(denying, away, hangs, refuses)...)

	flood := start(t, 3*time.Millisecond, func(n int) {
		e.send("GET /api/items", "10.2.0.1", "")
		if n%5 == 0 { // five times each, which is the limit
			e.send("POST /auth/login", fmt.Sprintf("10.3.%d.%d", n/25>>8&255, n/25&255), "")
		}
	})
	s.wantFiring(t, "a flood comes", denying...)
	s.show(t, empty, window)
	flood.end()
	s.wantResolved(t, "the flood is over", denying...)

	srv.Stop(t)
	s.wantFiring(t, "Redis is killed", away...)
	s.show(t, empty, window)
	srv.Restart(t)
	s.wantResolved(t, "Redis is back", away...)

	srv.Pause(t)
	s.wantFiring(t, "Redis hangs", hangs...)
	srv.Resume(t)
	s.wantResolved(t, "Redis goes on", hangs...)

	permit := func(scripts string) {
		t.Helper()
		if err := srv.Client(t).Do(t.Context(), "ACL", "SETUSER", "default", scripts+"eval", scripts+"evalsha").Err(); err != nil {
			t.Fatal(err)
		}
	}
	permit("-")
	s.wantFiring(t, "scripts are forbidden", refuses...)
	permit("+")
	s.wantResolved(t, "scripts are permitted", refuses...)

	s.show(t, empty, window)
	delete(empty, "Time in a queue") // the example has no leaky_bucket
	for panel := range empty {
		t.Errorf("the dashboard's panel %q was always empty", panel)
	}
}

// panels are the titles of all panels with queries.
func panels(t *testing.T) map[string]bool {
	titles := map[string]bool{}
	for _, q := range queries(t) {
		titles[q.panel] = true
	}
	return titles
}

// show takes out of a set the panels that have something to show.
func (s *server) show(t *testing.T, empty map[string]bool, window string) {
	t.Helper()
	for _, q := range queries(t) {
		for _, series := range s.query(t, filled(q.expr, window)) {
			if series.Value[1] != "NaN" {
				delete(empty, q.panel)
			}
		}
	}
}

package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/metrics"
)

// gather returns the samples of a registry by name and label values, such as
// "decisions_total per-ip sliding_window allowed memory" (labels in the order of
// their names: algorithm, outcome, rule, source). Of a histogram it takes the
// count, the sum and the buckets, as "x_bucket 0.005".
func gather(t testing.TB, r prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	samples := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "ratelimit_")
			var labels strings.Builder
			for _, l := range m.GetLabel() {
				labels.WriteString(" " + l.GetValue())
			}
			switch {
			case m.GetHistogram() != nil:
				samples[name+"_count"+labels.String()] = float64(m.GetHistogram().GetSampleCount())
				samples[name+"_sum"+labels.String()] = m.GetHistogram().GetSampleSum()
				for _, b := range m.GetHistogram().GetBucket() {
					samples[fmt.Sprintf("%s_bucket%s %g", name, labels.String(), b.GetUpperBound())] = float64(b.GetCumulativeCount())
				}
			case m.GetCounter() != nil:
				samples[name+labels.String()] = m.GetCounter().GetValue()
			default:
				samples[name+labels.String()] = m.GetGauge().GetValue()
			}
		}
	}
	return samples
}

func register(t testing.TB, r prometheus.Registerer, s metrics.Source) {
	t.Helper()
	if err := metrics.Register(r, s); err != nil {
		t.Fatal(err)
	}
}

// measured is a middleware whose metrics a registry has.
func measured(t testing.TB, r prometheus.Registerer, c ratelimit.Config) *ratelimit.Middleware {
	t.Helper()
	m := mustNew(t, c)
	register(t, r, m)
	return m
}

// wantSamples checks those that it is told of.
func wantSamples(t testing.TB, r prometheus.Gatherer, want map[string]float64) {
	t.Helper()
	got := gather(t, r)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if n, ok := got[name]; !ok || n != want[name] {
			t.Errorf("%s is %v (there: %v), want %v", name, n, ok, want[name])
		}
	}
}

// wantDecisions checks that nothing else of decisions_total is above 0.
func wantDecisions(t testing.TB, r prometheus.Gatherer, want map[string]float64) {
	t.Helper()
	got := make(map[string]float64)
	for name, n := range gather(t, r) {
		if name, ok := strings.CutPrefix(name, "decisions_total "); ok && n > 0 {
			got[name] = n
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("decisions_total is\n%v, want\n%v", got, want)
	}
}

// A store counts in memory as if it were Redis.
type store struct {
	algorithms.Memory
	took time.Duration
	err  atomic.Pointer[error]
}

func (s *store) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	time.Sleep(s.took)
	if err := s.err.Load(); err != nil {
		return algorithms.Decision{}, *err
	}
	d, err := s.Memory.Take(ctx, checks...)
	for i := range d.Results {
		d.Results[i].Source = algorithms.SourceRedis
	}
	return d, err
}

func (s *store) Settle(ctx context.Context, charges ...algorithms.Charge) ([]algorithms.Result, error) {
	charges = slices.Clone(charges)
	for i := range charges {
		charges[i].Result.Source = algorithms.SourceMemory
	}
	results, err := s.Memory.Settle(ctx, charges...)
	for i := range results {
		results[i].Source = algorithms.SourceRedis
	}
	return results, err
}

func (s *store) fail(err error) { s.err.Store(&err) }

// A hook is a limiter around a Memory that changes what goes in and comes out, and counts its
// calls.
type hook struct {
	algorithms.Memory
	check          func(*algorithms.Check) // of Take
	result, peeked func(*algorithms.Result) error
	takes          time.Duration // for a Take

	peeks, checks int // calls of Peek, and their checks

	loses   string   // the rule whose checks it does not decide
	settled []string // rules
}

func (h *hook) Unwrap() algorithms.Limiter { return &h.Memory }

func (h *hook) Settle(ctx context.Context, charges ...algorithms.Charge) ([]algorithms.Result, error) {
	for _, c := range charges {
		h.settled = append(h.settled, c.Result.Check.Rule)
	}
	return h.Memory.Settle(ctx, charges...)
}

func (h *hook) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	time.Sleep(h.takes)
	checks = slices.Clone(checks)
	for i := range checks {
		if h.check != nil {
			h.check(&checks[i])
		}
	}
	d, err := h.Memory.Take(ctx, checks...)
	return changedBy(h.result, d, err)
}

func (h *hook) Peek(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	h.peeks, h.checks = h.peeks+1, h.checks+len(checks)
	d, err := h.Memory.Peek(ctx, checks...)
	return changedBy(h.peeked, d, err)
}

func changedBy(result func(*algorithms.Result) error, d algorithms.Decision, err error) (algorithms.Decision, error) {
	for i := range d.Results {
		if result != nil {
			err = errors.Join(err, result(&d.Results[i]))
		}
	}
	return d, err
}

// guard is a Guard around a store, for so many instances.
func guard(t testing.TB, l algorithms.Limiter, instances int) *failmode.Guard {
	t.Helper()
	g := &failmode.Guard{Limiter: l, Instances: instances, Logger: slog.New(slog.DiscardHandler)}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

func times(n int, h http.Handler, line string, header ...string) {
	for range n {
		serve(h, line, header...)
	}
}

func TestEveryOutcomeIsCountedByItsSource(t *testing.T) {
	broken := ratelimit.Rule{Name: "broken", Match: []string{"/broken"}, Limit: algorithms.PerHour(1),
		Key: keyfunc.Func(func(*http.Request) (string, error) { return "", errors.New("no database") })}
	user := ratelimit.Rule{Name: "user", Limit: algorithms.PerHour(2), Key: keyfunc.Optional(keyfunc.Header("User"))}
	bucket := ratelimit.Rule{Name: "bucket", Limit: algorithms.Limit{Rate: 100, Period: time.Hour, Burst: 100}, Key: keyfunc.IP}
	failing := func(name string, mode failmode.Mode) ratelimit.Rule {
		return ratelimit.Rule{Name: name, Match: []string{"/" + name}, Key: keyfunc.IP, Limit: algorithms.PerHour(3), Fail: mode}
	}

	t.Run("memory", func(t *testing.T) {
		registry := prometheus.NewRegistry()
		m := measured(t, registry, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{bucket, user, broken}})
		h := m.Handler(ok)
		times(3, h, "GET /", "User", "alice") // two and a denial by user, which bucket had room for
		times(4, h, "GET /")
		times(5, h, "GET /broken")
		if _, err := m.Peek(httptest.NewRequest(http.MethodGet, "/", nil)); err != nil {
			t.Fatal(err)
		}
		wantDecisions(t, registry, map[string]float64{
			"token_bucket allowed bucket memory": 12, // a request that another rule's key refuses is charged
			"sliding_window allowed user memory": 2,
			"sliding_window denied user memory":  1,
			"sliding_window skipped user none":   9,
			"sliding_window error broken none":   5,
		})
		wantSamples(t, registry, map[string]float64{
			"decision_duration_seconds_count":                     12,
			"decisions_total sliding_window denied broken memory": 0,
			"store_duration_seconds_count":                        0,
		})
	})

	t.Run("redis and its failure", func(t *testing.T) {
		registry, s := prometheus.NewRegistry(), new(store)
		m := measured(t, registry, ratelimit.Config{Limiter: guard(t, s, 1), Rules: []ratelimit.Rule{
			failing("local", failmode.Local), failing("open", failmode.Open), failing("closed", failmode.Closed),
		}})
		h := m.Handler(ok)
		for _, line := range []string{"GET /local", "GET /open", "GET /closed"} {
			times(4, h, line)
		}
		wantDecisions(t, registry, map[string]float64{
			"sliding_window allowed local redis": 3, "sliding_window denied local redis": 1,
			"sliding_window allowed open redis": 3, "sliding_window denied open redis": 1,
			"sliding_window allowed closed redis": 3, "sliding_window denied closed redis": 1,
		})
		s.fail(errors.New("away"))
		for _, line := range []string{"GET /local", "GET /open", "GET /closed"} {
			times(2, h, line) // the store has denied this address
			r := httptest.NewRequest(http.MethodGet, strings.Fields(line)[1], nil)
			r.RemoteAddr = "192.0.2.2:1" // and never seen this one
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
		wantSamples(t, registry, map[string]float64{
			"decisions_total sliding_window denied local deny_cache":   2,
			"decisions_total sliding_window allowed local fallback":    1,
			"decisions_total sliding_window denied open deny_cache":    2, // an outage is no amnesty
			"decisions_total sliding_window allowed open fail_open":    1,
			"decisions_total sliding_window allowed open fallback":     0, // expected, so it is there
			"decisions_total sliding_window denied closed deny_cache":  2,
			"decisions_total sliding_window denied closed fail_closed": 1,
		})
		for _, k := range m.TopDenied(9) {
			if k.Count != 3 { // fail_closed is nobody's fault
				t.Errorf("TopDenied: %+v, want 3", k)
			}
		}
		for _, never := range []string{"allowed closed fail_closed", "denied open fail_open", "allowed local fail_open"} {
			if _, ok := gather(t, registry)["decisions_total sliding_window "+never]; ok {
				t.Errorf("there is a series that can never count: %s", never)
			}
		}
	})

	t.Run("limiters that are not ours", func(t *testing.T) {
		registry := prometheus.NewRegistry()
		h := measured(t, registry, ratelimit.Config{
			Limiter: &hook{
				check: func(c *algorithms.Check) { c.Shadow = c.Rule == "shadow" },
				result: func(r *algorithms.Result) error {
					switch r.Check.Rule {
					case "own":
						r.Source = algorithms.SourceOther
					case "renamed":
						r.Check.Rule = "nobody's"
					case "unsaid":
						r.Source = algorithms.SourceNone
					case "undecided":
						r.Source, r.HasRoom, r.Err = algorithms.SourceNone, false, errors.New("away")
					case "invalid":
						return algorithms.ErrInvalidCheck
					}
					return nil
				},
			},
			Rules: []ratelimit.Rule{
				perHour("shadow", 1), perHour("own", 9, "/own"), perHour("unsaid", 9, "/unsaid"), perHour("renamed", 9, "/own"),
				perHour("undecided", 9, "/undecided"), perHour("invalid", 9, "/invalid"),
			},
		}).Handler(ok)
		for _, line := range []string{"GET /own", "GET /unsaid", "GET /undecided", "GET /invalid"} {
			serve(h, line)
		}
		wantDecisions(t, registry, map[string]float64{
			"sliding_window allowed shadow memory":        1,
			"sliding_window shadow_denied shadow memory":  2,
			"sliding_window allowed own other":            1,
			"sliding_window allowed unsaid other":         1,
			"sliding_window denied undecided fail_closed": 1,
			"sliding_window error shadow none":            1, // of the call about an invalid check
			"sliding_window error invalid none":           1,
		})
	})
}

func TestNearTheLimit(t *testing.T) {
	registry, s := prometheus.NewRegistry(), new(store)
	h := measured(t, registry, ratelimit.Config{Limiter: guard(t, s, 2), Rules: []ratelimit.Rule{
		perHour("twenty", 20, "/twenty", "/gate"), perHour("gate", 1, "/gate"),
		{Name: "open", Match: []string{"/open"}, Key: keyfunc.IP, Limit: algorithms.PerHour(1), Fail: failmode.Open},
	}}).Handler(ok)
	near := func(line, addr string, want float64) {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, line, nil)
		r.RemoteAddr = addr + ":1"
		h.ServeHTTP(httptest.NewRecorder(), r)
		if got := gather(t, registry)["near_limit_total twenty"]; got != want {
			t.Errorf("%s: %v, want %v", line, got, want)
		}
	}
	for range 15 {
		near("/twenty", "192.0.2.1", 0)
	}
	near("/twenty", "192.0.2.1", 1) // the sixteenth of 20
	near("/gate", "192.0.2.1", 2)
	near("/gate", "192.0.2.1", 2) // denied by another rule: it leaves the key as it was
	for i := range 3 {
		near("/twenty", "192.0.2.1", float64(3+i))
	}
	near("/twenty", "192.0.2.1", 5) // denied

	s.fail(errors.New("away"))
	for range 7 {
		near("/twenty", "192.0.2.9", 5)
	}
	for i := range 3 {
		near("/twenty", "192.0.2.9", float64(6+i)) // the eighth to the tenth of 10, which is this process' share
	}
	near("/twenty", "192.0.2.9", 8)
	times(5, h, "GET /open")
	wantSamples(t, registry, map[string]float64{"near_limit_total open": 0})
}

func TestTheStoreIsMeasuredAndItsFailuresClassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry, s := prometheus.NewRegistry(), &store{took: 3 * time.Millisecond}
		slow := ratelimit.Rule{Name: "slow", Limit: algorithms.PerHour(1000), Key: keyfunc.Func(func(r *http.Request) (string, error) {
			time.Sleep(4 * time.Millisecond)
			return keyfunc.IP.Resolve(r)
		})}
		h := measured(t, registry, ratelimit.Config{Limiter: guard(t, s, 3), Rules: []ratelimit.Rule{slow}}).Handler(ok)
		wantSamples(t, registry, map[string]float64{"breaker_shards": 0, "breaker_open_shards": 0, "instances": 3,
			"store_errors_total timeout": 0, "store_errors_total connection": 0, "store_errors_total answer": 0,
			"store_errors_total refused": 0, "store_errors_total busy": 0})
		times(10, h, "GET /")
		got := gather(t, registry)
		if sum := got["store_duration_seconds_sum"]; sum < 0.0299 || sum > 0.0301 {
			t.Errorf("ten calls of 3ms took %vs", sum)
		}
		wantSamples(t, registry, map[string]float64{
			"store_duration_seconds_bucket 0.0025": 0, "store_duration_seconds_bucket 0.005": 10, "store_duration_seconds_count": 10,
			"decision_duration_seconds_bucket 0.005": 0, "decision_duration_seconds_bucket 0.01": 10, "decision_duration_seconds_count": 10,
			"local_keys": 1, // what follows, to be warm
		})

		s.fail(&net.OpError{Op: "dial", Err: errors.New("connection refused")})
		times(9, h, "GET /") // the first leads to a probe, which opens the circuit
		wantSamples(t, registry, map[string]float64{
			"store_errors_total connection": 2, "store_errors_total answer": 0, "store_duration_seconds_count": 12,
			"decision_duration_seconds_count": 19,
			"breaker_open_shards":             1, "breaker_transitions_total open": 1, "breaker_transitions_total closed": 0,
		})
		s.err.Store(nil)
		time.Sleep(time.Second)
		wantSamples(t, registry, map[string]float64{
			"breaker_open_shards": 0, "breaker_transitions_total open": 1, "breaker_transitions_total closed": 1,
		})
		s.fail(algorithms.ErrInvalidCheck) // the caller's mistake, not the store's
		times(1, h, "GET /")
		wantSamples(t, registry, map[string]float64{"store_errors_total answer": 0, "store_duration_seconds_count": 12})
	})
}

func TestLocalCountingIsShown(t *testing.T) {
	registry, memory := prometheus.NewRegistry(), &algorithms.Memory{MaxKeys: 64}
	m := measured(t, registry, ratelimit.Config{Limiter: memory,
		Rules: []ratelimit.Rule{{Name: "user", Key: keyfunc.Header("User"), Limit: algorithms.PerHour(10)}}})
	h := m.Handler(ok)
	for i := range 2000 {
		serve(h, "GET /", "User", fmt.Sprint(i))
	}
	stats := memory.Store().Stats()
	if stats.Overflowed == 0 || stats.Sketches == 0 {
		t.Fatalf("the flood does not fill the memory: %+v", stats)
	}
	wantSamples(t, registry, map[string]float64{
		"local_keys": float64(stats.Keys), "local_sketches": float64(stats.Sketches),
		"local_overflow_total": float64(stats.Overflowed), "local_evictions_total": float64(stats.Evicted), "instances": 1,
	})
}

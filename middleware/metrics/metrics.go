// Package metrics exposes the metrics of a Middleware and of its limiter to Prometheus:
//
//	err := metrics.Register(prometheus.DefaultRegisterer, limit)
//
// Only programs that import it link a Prometheus client. For expvar or StatsD, range over the
// Metrics of the Middleware and of its limiter. For OpenTelemetry, see docs/metrics.md.
package metrics

import (
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/middleware"
)

// A Source is a *Middleware, *Guard, *Memory or *Shedder, or a pointer to a type of your
// own with metrics.
type Source interface {
	// Metrics yields the current metrics. It is called at every scrape.
	Metrics() iter.Seq[algorithms.Metric]
}

// Register makes r collect the metrics of the sources; docs/metrics.md lists them. A
// Middleware includes its Limiter. The metrics of several Middlewares on
// one registry add up, and a limiter that they share counts once. If one Middleware drops
// a rule that another keeps, the rule's counters shrink, which Prometheus takes for a
// restart: to avoid that, give each Middleware a label by prometheus.WrapRegistererWith.
// Sources are never unregistered, so create each Middleware once per process.
//
// A nil source is an error, and so is a registry that has other metrics of the same
// names. Register may be called at any time: earlier counts are included.
func Register(r prometheus.Registerer, sources ...Source) error {
	if r == nil {
		return errors.New("metrics: the registerer is nil; use prometheus.DefaultRegisterer or prometheus.NewRegistry()")
	}
	c := new(collector)
	for i, s := range sources {
		if v := reflect.ValueOf(s); v.Kind() != reflect.Pointer || v.IsNil() {
			return fmt.Errorf("metrics: sources[%d] must be a pointer that is not nil, got a %T; look at the error of its New", i, s)
		}
	}
	c.add(sources...)
	err := r.Register(c)
	if taken, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if shared, ok := taken.ExistingCollector.(*collector); ok {
			shared.add(c.sources...)
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("metrics: registerer: it has other metrics of the same names (wrap it by "+
			"prometheus.WrapRegistererWithPrefix) or does not take ours: %w", err)
	}
	return nil
}

// A collector adds the metrics of its sources, at each scrape. A registry has one.
type collector struct {
	mu      sync.Mutex
	sources []Source
}

// add adds sources, each once.
func (c *collector) add(sources ...Source) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range sources {
		for _, part := range partsOf(s) {
			if !slices.Contains(c.sources, part) {
				c.sources = append(c.sources, part)
			}
		}
	}
}

// unguarded is the Guard of a Middleware without one: its metrics are there, and stay 0.
var unguarded failmode.Guard

// partsOf returns a source and, of a Middleware, the layers of its limiter.
func partsOf(s Source) []Source {
	m, ok := s.(*middleware.Middleware)
	if !ok {
		return []Source{s}
	}
	parts := []Source{m, &unguarded}
	for l := range failmode.Layers(m.Limiter()) {
		switch l := l.(type) {
		case *failmode.Guard:
			parts = append(parts, l)
		case *algorithms.Memory:
			parts = append(parts, l)
		}
	}
	return parts
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range descs {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sums := make(map[string]*algorithms.Metric) // by name and labels
	for _, source := range c.sources {
		for m := range source.Metrics() {
			name := m.Name + "\x00" + strings.Join(m.Labels, "\x00")
			if sum := sums[name]; sum != nil {
				addTo(sum, &m)
				continue
			}
			m.Counts = slices.Clone(m.Counts)
			sums[name] = &m
		}
	}
	for _, sum := range sums {
		ch <- metric(sum)
	}
}

// addTo adds a metric to those of other sources.
func addTo(sum, m *algorithms.Metric) {
	if m.Name == "ratelimit_instances" {
		sum.Value = max(sum.Value, m.Value) // all limiters of a process have the same instances
		return
	}
	sum.Value += m.Value
	for i := range min(len(sum.Counts), len(m.Counts)) {
		sum.Counts[i] += m.Counts[i]
	}
}

func metric(s *algorithms.Metric) prometheus.Metric {
	desc := descs[s.Name]
	names, values := split(s.Labels)
	if desc == nil { // a metric of a program's own source
		desc = prometheus.NewDesc(s.Name, "", names, nil)
	}
	var m prometheus.Metric
	var err error
	switch {
	case s.Bounds != nil:
		var count uint64
		buckets := make(map[float64]uint64, len(s.Bounds))
		for i, n := range s.Counts {
			if count += n; i < len(s.Bounds) {
				buckets[s.Bounds[i]] = count
			}
		}
		m, err = prometheus.NewConstHistogram(desc, count, s.Value, buckets, values...)
	case strings.HasSuffix(s.Name, "_total"):
		m, err = prometheus.NewConstMetric(desc, prometheus.CounterValue, s.Value, values...)
	default:
		m, err = prometheus.NewConstMetric(desc, prometheus.GaugeValue, s.Value, values...)
	}
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return m
}

// split returns the names and the values of labels.
func split(labels []string) (names, values []string) {
	for i := 0; i+1 < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	return names, values
}

// Package metrics exposes the metrics of a Middleware and of its limiter to
// Prometheus. Only programs that import it link a Prometheus client. For expvar
// or StatsD, range over the Metrics of the Middleware and of its limiter. For
// OpenTelemetry, see docs/metrics.md.
package metrics

import (
	"errors"
	"fmt"
	"iter"
	"reflect"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/layers"
	"github.com/seed75154129/ratelimit/middleware"
)

// A Source is a Middleware, a Guard, a Memory, a Shedder, or a type of your own with
// metrics.
type Source interface {
	// Metrics yields the current metrics. It is called at every scrape.
	Metrics() iter.Seq[algorithms.Metric]
}

// Register makes r collect the metrics of the sources, which docs/metrics.md lists. A
// Middleware includes its Limiter and its Shedder. The metrics of several Middlewares on
// one registry add up, and a limiter that they share counts once. If one of them drops a
// rule that another keeps, the rule's counters shrink, which Prometheus takes for a
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
	for _, s := range sources {
		c.add(s)
	}
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

// unguarded is the Guard of a Middleware without one: its metrics are there, and stay 0.
var unguarded failmode.Guard

// partsOf returns a source and, of a Middleware, its Shedder and the layers of its limiter.
func partsOf(s Source) []Source {
	m, ok := s.(*middleware.Middleware)
	if !ok {
		return []Source{s}
	}
	parts := []Source{m, &unguarded}
	if s := m.Shedder(); s != nil {
		parts = append(parts, s)
	}
	for l := range layers.Of(m.Limiter()) {
		switch l := l.(type) {
		case *failmode.Guard:
			parts = append(parts, l)
		case *algorithms.Memory:
			parts = append(parts, l)
		}
	}
	return parts
}

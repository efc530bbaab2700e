// Package metrics exposes to Prometheus what a Middleware and its limiter count. A
// program that does not import it links no Prometheus client: for OpenTelemetry, expvar
// or StatsD, range over the Metrics of the Middleware and of its limiter instead.
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

// A Source has counted something: a Middleware, a Guard, a Memory or a Shedder.
type Source interface {
	// Metrics yields what was counted. It is called at every scrape.
	Metrics() iter.Seq[algorithms.Metric]
}

// Register makes r collect what the sources count; docs/metrics.md lists it. A
// Middleware brings its Limiter and its Shedder. Middlewares on one registry add up, and a limiter that
// they share counts once. Metrics are never unregistered: create one Middleware per
// process lifetime.
//
// The error is about a source that is nil, or a registry that has other metrics of the
// same names. Register may be called at any time: what was counted before is there.
func Register(r prometheus.Registerer, sources ...Source) error {
	if r == nil {
		return errors.New("metrics: the registerer is nil; use prometheus.DefaultRegisterer or prometheus.NewRegistry()")
	}
	c := &collector{series: make(map[string]*series)}
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

// unguarded stands for the Guard of a Middleware without one, whose circuits and store
// stay at 0.
var unguarded failmode.Guard

// partsOf are a source and, of a Middleware, its Shedder and the parts of its limiter.
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

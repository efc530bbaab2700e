package tracing

import (
	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/seed75154129/ratelimit/middleware/metrics"
)

// Metrics exports the metrics of sources; a Middleware includes its limiter.
// The caller must shut the provider down.
func Metrics(exporter metric.Exporter, sources ...metrics.Source) (*metric.MeterProvider, error) {
	registry := prometheus.NewRegistry()
	if err := metrics.Register(registry, sources...); err != nil {
		return nil, err
	}
	producer := bridge.NewMetricProducer(bridge.WithGatherer(registry))
	return metric.NewMeterProvider(metric.WithReader(metric.NewPeriodicReader(exporter, metric.WithProducer(producer)))), nil
}

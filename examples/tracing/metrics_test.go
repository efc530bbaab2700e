package tracing_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/examples/tracing"
)

// An exporter keeps what it gets.
type exporter struct {
	metric.Exporter
	got map[string]metricdata.Aggregation
}

func (e *exporter) Export(_ context.Context, all *metricdata.ResourceMetrics) error {
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			e.got[m.Name] = m.Data
		}
	}
	return nil
}

func (*exporter) ForceFlush(context.Context) error { return nil }
func (*exporter) Shutdown(context.Context) error   { return nil }

func TestMetrics(t *testing.T) {
	limit, err := ratelimit.New(ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{rule("per-ip", 2)}})
	if err != nil {
		t.Fatal(err)
	}
	h := limit.Handler(http.NotFoundHandler())
	for range 5 {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	}
	e := &exporter{got: make(map[string]metricdata.Aggregation)}
	provider, err := tracing.Metrics(e, limit)
	if err != nil {
		t.Fatal(err)
	}
	if err := provider.Shutdown(t.Context()); err != nil { // exports what there is
		t.Fatal(err)
	}
	denied := 0.0
	sum, ok := e.got["ratelimit_decisions_total"].(metricdata.Sum[float64])
	for _, p := range sum.DataPoints {
		if outcome, _ := p.Attributes.Value(attribute.Key("outcome")); outcome.AsString() == "denied" {
			denied += p.Value
		}
	}
	if !ok || !sum.IsMonotonic || denied != 3 {
		t.Errorf("%v denied of %+v", denied, e.got["ratelimit_decisions_total"])
	}
	times, ok := e.got["ratelimit_decision_duration_seconds"].(metricdata.Histogram[float64])
	if !ok || len(times.DataPoints) != 1 || times.DataPoints[0].Count != 5 {
		t.Errorf("%+v", e.got["ratelimit_decision_duration_seconds"])
	}
	if _, ok := e.got["ratelimit_local_keys"].(metricdata.Gauge[float64]); !ok {
		t.Error("the Memory's metrics are missing")
	}
}

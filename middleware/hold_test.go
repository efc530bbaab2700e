package middleware_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// A Hold that holds nothing is logged, in words that say which of the two mistakes it is.
func TestAHoldThatHoldsNothing(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	before := slog.Default()
	slog.SetDefault(logger)
	t.Cleanup(func() { slog.SetDefault(before) })
	ratelimit.ForgetHold()
	ratelimit.Hold(context.Background())()
	if !strings.Contains(log.String(), "this context is of no request") {
		t.Errorf("without a request: %s", log.String())
	}
	var late context.Context
	h := mustNew(t, ratelimit.Config{Logger: logger, Rules: []ratelimit.Rule{{Name: "r", Key: keyfunc.IP, Limit: algorithms.MaxInFlight(1)}}}).
		Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			ratelimit.Hold(r.Context())()
			late = r.Context() //nolint:fatcontext // of one request, for after its end
		}))
	serve(h, "GET /")
	if strings.Contains(log.String(), "had returned") {
		t.Errorf("in time: %s", log.String())
	}
	ratelimit.Hold(late)()
	if !strings.Contains(log.String(), "Hold: a handler had returned before") {
		t.Errorf("late: %s", log.String())
	}
}

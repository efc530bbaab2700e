package recipes

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	health_v1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// A route's status decides what stays charged, also through gin's and echo's own
// writers, and a denied request reaches no handler.
func TestFrameworks(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	rules := func() []ratelimit.Rule {
		return []ratelimit.Rule{
			{Name: "all", Key: keyfunc.IP, Limit: algorithms.PerHour(100)},
			{Name: "bad", Key: keyfunc.IP, Limit: algorithms.PerHour(3), ChargeOn: []int{401, 404}},
		}
	}
	served := 0
	g := gin.New()
	g.Use(ginLimit(limited(t, rules()...)))
	g.GET("/json", func(c *gin.Context) { served++; c.JSON(200, "hello") })
	g.GET("/string", func(c *gin.Context) { served++; c.String(200, "hello") })
	g.GET("/status", func(c *gin.Context) { served++; c.Status(204) })
	g.GET("/abort", func(c *gin.Context) { served++; c.AbortWithStatus(401) })

	e := echo.New()
	echoLimit(e, limited(t, rules()...))
	e.GET("/json", func(c echo.Context) error { served++; return c.JSON(200, "hello") })
	e.GET("/string", func(c echo.Context) error { served++; return c.String(200, "hello") })
	e.GET("/status", func(c echo.Context) error { served++; return c.NoContent(204) })
	e.GET("/abort", func(echo.Context) error { served++; return echo.NewHTTPError(401) })

	for name, h := range map[string]http.Handler{"gin": g, "echo": e} {
		served = 0
		wants(t, name, statuses(h, 10, from("192.0.2.1:1", "GET", "/json")), 200, 10)
		wants(t, name, statuses(h, 10, from("192.0.2.1:1", "GET", "/string")), 200, 10)
		wants(t, name, statuses(h, 10, from("192.0.2.1:1", "GET", "/status")), 204, 10)
		wants(t, name, statuses(h, 1, from("192.0.2.1:1", "GET", "/abort")), 401, 1)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, from("192.0.2.1:1", "GET", "/string")())
		if w.Body.String() != "hello" || w.Header().Get("X-RateLimit-Remaining") == "" {
			t.Errorf("%s: %q, %v", name, w.Body, w.Header())
		}
		wants(t, name, statuses(h, 10, from("192.0.2.1:1", "GET", "/abort")), 401, 2, 429, 8)
		if served != 34 {
			t.Errorf("%s: %d requests reached a handler", name, served)
		}
		wants(t, name+", no route", statuses(h, 5, from("192.0.2.2:1", "GET", "/nowhere")), 404, 3, 429, 2)
	}
}

// A gRPC server over a real connection: calls and messages have limits.
func TestGRPC(t *testing.T) {
	calls := limited(t,
		ratelimit.Rule{Name: "check", Match: []string{"POST /grpc.health.v1.Health/Check"}, Key: keyfunc.Required(keyfunc.APIKey("Authorization"), 401), Limit: algorithms.PerHour(3)},
		ratelimit.Rule{Name: "watch", Match: []string{"POST /grpc.health.v1.Health/Watch"}, Key: keyfunc.Everyone, Limit: algorithms.PerHour(2)},
	)
	perMessage := limited(t, ratelimit.Rule{Name: "messages", Key: keyfunc.Everyone, Limit: algorithms.PerHour(1)})
	server := grpc.NewServer(grpc.UnaryInterceptor(unary(calls)), grpc.StreamInterceptor(stream(calls, perMessage)))
	health_v1.RegisterHealthServer(server, health.NewServer())
	listener := bufconn.Listen(1 << 16)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	client, err := grpc.NewClient("passthrough:x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return listener.Dial() }))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	c := health_v1.NewHealthClient(client)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()

	if _, err := c.Check(ctx, new(health_v1.HealthCheckRequest)); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without a key: %v", err)
	}
	alice := metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer alice")
	bob := metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer bob")
	for i, want := range []codes.Code{codes.OK, codes.OK, codes.OK, codes.ResourceExhausted} {
		if _, err := c.Check(alice, new(health_v1.HealthCheckRequest)); status.Code(err) != want {
			t.Errorf("call %d: %v, want %s", i, err, want)
		}
	}
	if _, err := c.Check(bob, new(health_v1.HealthCheckRequest)); err != nil {
		t.Errorf("another key: %v", err)
	}
	for i, want := range []codes.Code{codes.OK, codes.ResourceExhausted, codes.ResourceExhausted} { // then messages, then streams
		watch, err := c.Watch(ctx, new(health_v1.HealthCheckRequest))
		if err == nil {
			_, err = watch.Recv()
		}
		if status.Code(err) != want {
			t.Errorf("stream %d: %v, want %s", i, err, want)
		}
	}
	// The third stream was denied as a call: the messages have another limit.
	d, err := perMessage.Peek(httptest.NewRequest("POST", "/", nil))
	if err != nil || d.Allowed || errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", d, err)
	}
}

package recipes

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	health_v1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/shed"
)

// A route's status decides what stays charged, and a denied request reaches no handler.
func TestFrameworks(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	limit := func(h http.Handler) http.Handler {
		return limited(t,
			ratelimit.Rule{Name: "all", Key: keyfunc.IP, Limit: algorithms.PerHour(100)},
			ratelimit.Rule{Name: "bad", Key: keyfunc.IP, Limit: algorithms.PerHour(3), ChargeOn: []int{401, 404}},
		).Handler(h)
	}
	served := 0
	g := gin.New()
	g.Use(func(c *gin.Context) { // as error handlers do
		if c.Next(); len(c.Errors) > 0 && !c.Writer.Written() {
			c.JSON(401, "bad")
		}
	})
	g.GET("/json", func(c *gin.Context) { served++; c.JSON(200, "hello") })
	g.GET("/string", func(c *gin.Context) { served++; c.String(200, "hello") })
	g.GET("/status", func(c *gin.Context) { served++; c.Status(204) })
	g.GET("/stream", func(c *gin.Context) {
		c.Stream(func(w io.Writer) bool { _, err := io.WriteString(w, "hello"); return err != nil })
	})
	g.GET("/abort", func(c *gin.Context) { served++; _ = c.Error(errors.New("bad")) })

	e := echo.New()
	e.GET("/json", func(c echo.Context) error { served++; return c.JSON(200, "hello") })
	e.GET("/string", func(c echo.Context) error { served++; return c.String(200, "hello") })
	e.GET("/status", func(c echo.Context) error { served++; return c.NoContent(204) })
	e.GET("/abort", func(echo.Context) error { served++; return echo.NewHTTPError(401) })

	for name, h := range map[string]http.Handler{"gin": limit(g), "echo": limit(e)} {
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
	server := httptest.NewServer(limit(g)) // whose writers notice a client that leaves
	defer server.Close()
	response, err := server.Client().Get(server.URL + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); response.StatusCode != 200 || string(body) != "hello" || err != nil {
		t.Errorf("a stream of gin: %d, %q, %v", response.StatusCode, body, err)
	}
	wants(t, "redirects", statuses(limit(g), 101, from("192.0.2.1:1", "GET", "/json/")), 301, 100, 429, 1)
}

// Behind a framework's authentication, a rule knows the user that it found.
func TestFrameworksBehindTheirAuthentication(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	user := keyfunc.Context(func(ctx context.Context) (string, bool) {
		name, ok := ctx.Value(contextKey("user")).(string)
		return name, ok
	})
	rule := ratelimit.Rule{Name: "user", Key: user, Limit: algorithms.PerHour(3)}
	authenticated := func(r *http.Request) *http.Request {
		return r.WithContext(context.WithValue(r.Context(), contextKey("user"), r.URL.Query().Get("as")))
	}
	served := 0
	g := gin.New()
	g.Use(func(c *gin.Context) { c.Request = authenticated(c.Request) }, ginLimit(limited(t, rule)))
	g.GET("/", func(c *gin.Context) {
		served++
		if _, ok := ratelimit.FromContext(c.Request.Context()); !ok {
			t.Error("gin: the handler does not know the decision")
		}
		c.String(200, "hello")
	})
	e := echo.New()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error { c.SetRequest(authenticated(c.Request())); return next(c) }
	}, echo.WrapMiddleware(limited(t, rule).Handler))
	e.GET("/", func(c echo.Context) error { served++; return c.String(200, "hello") })
	for name, h := range map[string]http.Handler{"gin": g, "echo": e} {
		served = 0
		wants(t, name, statuses(h, 5, from("192.0.2.1:1", "GET", "/?as=alice")), 200, 3, 429, 2)
		wants(t, name, statuses(h, 1, from("192.0.2.1:1", "GET", "/?as=bob")), 200, 1)
		if served != 4 {
			t.Errorf("%s: %d requests reached the handler", name, served)
		}
	}
}

// Inside gin, a WebSocket library writes the 101 by gin's WriteHeaderNow, then takes the
// connection over. Wrapped responses have that method, too.
func TestSocketsInsideGin(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	plain := ratelimit.Rule{Name: "r", Key: keyfunc.IP, Limit: algorithms.PerHour(100)}
	charged := plain
	charged.ChargeOn = []int{401}
	shedder := new(shed.Shedder)
	for name, around := range map[string]func(http.Handler) http.Handler{
		"neither":   limited(t, plain).Handler,
		"charge_on": limited(t, charged).Handler,
		"Shedder":   shedder.Handler,
		"both":      func(h http.Handler) http.Handler { return shedder.Handler(limited(t, charged).Handler(h)) },
	} {
		g := gin.New()
		g.GET("/ws", gin.WrapH(around(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "Upgrade") // as coder/websocket does
			w.Header().Set("Upgrade", "websocket")
			w.WriteHeader(http.StatusSwitchingProtocols)
			if now, ok := w.(interface{ WriteHeaderNow() }); ok {
				now.WriteHeaderNow()
			}
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			_, _ = io.WriteString(conn, "hello")
			_ = conn.Close()
		}))))
		server := httptest.NewServer(g)
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = io.WriteString(conn, "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		answer := bufio.NewReader(conn)
		response, err := http.ReadResponse(answer, nil)
		if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
			t.Errorf("%s: %v, %v", name, response, err)
		} else if body, _ := io.ReadAll(answer); string(body) != "hello" {
			t.Errorf("%s: %q", name, body)
		}
		_ = conn.Close()
		server.Close()
	}
}

// A slowClient takes a minute to read a part of a body. Its connection can be hijacked.
type slowClient struct{ *httptest.ResponseRecorder }

func (c slowClient) Write(p []byte) (int, error) {
	time.Sleep(time.Minute)
	return c.ResponseRecorder.Write(p)
}
func (c slowClient) WriteString(s string) (int, error)          { return c.Write([]byte(s)) }
func (slowClient) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }
func (slowClient) SetWriteDeadline(time.Time) error             { return nil }

// behind returns handler behind a limiter or a Shedder, as each framework runs it.
func behind(around func(http.Handler) http.Handler, handler http.HandlerFunc) map[string]http.Handler {
	gin.SetMode(gin.ReleaseMode)
	g := gin.New()
	g.GET("/*path", func(c *gin.Context) { handler(c.Writer, c.Request) })
	e := echo.New()
	e.GET("/*", func(c echo.Context) error { handler(c.Response(), c.Request()); return nil })
	return map[string]http.Handler{"net/http": around(handler), "gin": around(g), "echo": around(e)}
}

// Streams, hijacked connections and slow clients leave their places in a Shedder to
// others.
func TestFrameworksWithAShedder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		around := func(h http.Handler) http.Handler { return (&shed.Shedder{Min: 2, Max: 2}).Handler(h) }
		for name, h := range behind(around, func(w http.ResponseWriter, r *http.Request) {
			var err error
			switch r.URL.Path {
			case "/flush":
				err = errors.Join(http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Hour)), http.NewResponseController(w).Flush())
			case "/hijack":
				_, _, err = w.(http.Hijacker).Hijack()
			case "/write":
				_, err = w.Write([]byte("hello"))
			case "/string":
				_, err = w.(interface{ WriteString(s string) (int, error) }).WriteString("hello")
			}
			if err != nil {
				t.Error(r.URL, err)
			}
			time.Sleep(time.Minute)
		}) {
			for path, want := range map[string]int{"/": 503, "/flush": 200, "/hijack": 200, "/write": 200, "/string": 200} {
				if name == "echo" && path == "/string" { // its response has no such method
					continue
				}
				for range 2 {
					go h.ServeHTTP(slowClient{httptest.NewRecorder()}, from("192.0.2.1:1", "GET", path)())
				}
				synctest.Wait()
				wants(t, name+", after two "+path, statuses(h, 1, from("192.0.2.1:1", "GET", "/")), want, 1)
				time.Sleep(time.Hour)
			}
		}
	})
}

// A response that is flushed before it is written has its status by then.
func TestFrameworksFlush(t *testing.T) {
	around := func(h http.Handler) http.Handler {
		return limited(t, ratelimit.Rule{Name: "bad", Key: keyfunc.IP, Limit: algorithms.PerHour(3), ChargeOn: []int{401, 403}}).Handler(h)
	}
	for name, h := range behind(around, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bad" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		w.(http.Flusher).Flush()
		_, _ = w.Write([]byte("hello"))
		if g, ok := w.(gin.ResponseWriter); ok && (g.Size() != 5 || r.URL.Path == "/bad" != (g.Status() == 401)) {
			t.Errorf("gin has status %d and size %d", g.Status(), g.Size())
		}
	}) {
		wants(t, name, statuses(h, 10, from("192.0.2.1:1", "GET", "/")), 200, 10)
		wants(t, name, statuses(h, 5, from("192.0.2.1:1", "GET", "/bad")), 401, 3, 429, 2)
		if w := answer(h, from("192.0.2.2:1", "GET", "/")()); !w.Flushed || w.Body.String() != "hello" {
			t.Errorf("%s: %t, %q", name, w.Flushed, w.Body)
		}
	}
}

// A gRPC server over a real connection: calls and messages have limits.
func TestGRPC(t *testing.T) {
	calls := limited(t,
		ratelimit.Rule{Name: "check", Match: []string{"POST /grpc.health.v1.Health/Check"}, Key: keyfunc.Required(keyfunc.APIKey("Authorization"), 401), Limit: algorithms.PerHour(3)},
		ratelimit.Rule{Name: "list", Match: []string{"POST /grpc.health.v1.Health/List"}, Key: keyfunc.Everyone, Limit: algorithms.PerHour(1), Cost: 1, Hidden: true},
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
	if _, err := c.List(ctx, new(health_v1.HealthListRequest)); err != nil {
		t.Error(err)
	}
	if _, err := c.List(ctx, new(health_v1.HealthListRequest)); status.Code(err) != codes.ResourceExhausted || len(violated(err)) != 0 || retryDelay(err) == 0 {
		t.Errorf("a hidden rule: %v, %v", err, status.Convert(err).Details())
	}
	alice := metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer alice")
	bob := metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer bob")
	for i, want := range []codes.Code{codes.OK, codes.OK, codes.OK, codes.ResourceExhausted} {
		_, err := c.Check(alice, new(health_v1.HealthCheckRequest))
		if status.Code(err) != want {
			t.Errorf("call %d: %v, want %s", i, err, want)
		}
		if want != codes.OK && (fmt.Sprint(violated(err)) != "[check 3/1h]" || retryDelay(err) <= 0 || retryDelay(err) > 2*time.Hour) {
			t.Errorf("call %d: %v", i, status.Convert(err).Details())
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

// violated is what a denial says about rules.
func violated(err error) (rules []string) {
	for _, detail := range status.Convert(err).Details() {
		if quota, ok := detail.(*errdetails.QuotaFailure); ok {
			for _, v := range quota.Violations {
				rules = append(rules, v.Subject+" "+v.Description)
			}
		}
	}
	return rules
}

// retryDelay is what a denial says about the next call; 0 if nothing.
func retryDelay(err error) time.Duration {
	for _, detail := range status.Convert(err).Details() {
		if retry, ok := detail.(*errdetails.RetryInfo); ok {
			return retry.RetryDelay.AsDuration()
		}
	}
	return 0
}

// Calls of a queue come one after the other, and one whose client does not wait ends.
func TestGRPCCallsWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := limited(t, ratelimit.Rule{Name: "queue", Key: keyfunc.Everyone, Limit: algorithms.Limit{Rate: 2, Period: time.Second, Burst: 20, Algorithm: algorithms.LeakyBucket}})
		begun := time.Now()
		for i := range 20 {
			if err := takeRPC(t.Context(), limit, "/shop.Search/Find"); err != nil {
				t.Errorf("call %d: %v", i, err)
			}
		}
		if took := time.Since(begun); took != 9500*time.Millisecond {
			t.Errorf("20 calls of a queue of 2/s took %s", took)
		}
		var calls sync.WaitGroup
		canceled, cancel := context.WithCancel(t.Context())
		calls.Go(func() {
			if err := takeRPC(canceled, limit, "/shop.Search/Find"); status.Code(err) != codes.Canceled {
				t.Error(err)
			}
		})
		synctest.Wait()
		cancel()
		calls.Wait()
		brief, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := takeRPC(brief, limit, "/shop.Search/Find"); status.Code(err) != codes.ResourceExhausted || time.Since(begun) != 9500*time.Millisecond {
			t.Errorf("%v, after %s", err, time.Since(begun))
		}
	})
}

// A call of a used-up month is told to wait an hour, as a request is.
func TestGRPCRetryAfterAMonth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it is the first of a month
		limit := limited(t, ratelimit.Rule{Name: "plan", Key: keyfunc.Everyone, Limit: algorithms.PerMonth(1, "UTC")})
		if err := takeRPC(t.Context(), limit, "/shop.Search/Find"); err != nil {
			t.Fatal(err)
		}
		if err := takeRPC(t.Context(), limit, "/shop.Search/Find"); status.Code(err) != codes.ResourceExhausted || retryDelay(err) != time.Hour {
			t.Errorf("%v, %s", err, retryDelay(err))
		}
	})
}

// Errors of keys have the codes that their statuses stand for.
func TestGRPCCodes(t *testing.T) {
	fails := func(err error) keyfunc.Key {
		return keyfunc.Func(func(*http.Request) (string, error) { return "", err })
	}
	for name, c := range map[string]struct {
		rule ratelimit.Rule
		want codes.Code
	}{
		"400":                       {ratelimit.Rule{Key: keyfunc.Required(fails(keyfunc.ErrNoKey), 400)}, codes.InvalidArgument},
		"401":                       {ratelimit.Rule{Key: keyfunc.Required(fails(keyfunc.ErrNoKey), 401)}, codes.Unauthenticated},
		"403":                       {ratelimit.Rule{Key: keyfunc.Required(fails(keyfunc.ErrNoKey), 403)}, codes.PermissionDenied},
		"a key that fails":          {ratelimit.Rule{Key: fails(errors.New("the database is away"))}, codes.Internal},
		"no key, and none required": {ratelimit.Rule{Key: fails(keyfunc.ErrNoKey)}, codes.OK},
		"more than the limit":       {ratelimit.Rule{Key: keyfunc.Everyone, CostFor: func(*http.Request) int64 { return 11 }}, codes.ResourceExhausted},
	} {
		c.rule.Name, c.rule.Limit = "r", algorithms.PerHour(10)
		err := takeRPC(t.Context(), limited(t, c.rule), "/shop.Search/Find")
		if status.Code(err) != c.want || strings.Contains(fmt.Sprint(err), "database") || retryDelay(err) != 0 {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	closed := made(t)(ratelimit.New(ratelimit.Config{Limiter: away{new(algorithms.Memory)}, Rules: []ratelimit.Rule{{Name: "r", Key: keyfunc.Everyone, Limit: algorithms.PerHour(10), Fail: failmode.Closed}}}))
	if err := takeRPC(t.Context(), closed, "/shop.Search/Find"); status.Code(err) != codes.Unavailable || retryDelay(err) == 0 {
		t.Errorf("a store that is away: %v, %v", err, status.Convert(err).Details())
	}
}

// An away limiter is a store that cannot be asked.
type away struct{ algorithms.Limiter }

func (away) Take(context.Context, ...algorithms.Check) (algorithms.Decision, error) {
	return algorithms.Decision{}, errors.New("away")
}

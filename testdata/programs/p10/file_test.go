package p10

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

type tenantKey struct{}

// The rules are those of the file until the fleet has some; a hangup signal reads the
// fleet's again.
func TestRulesOfFileAndFleet(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: miniredis.RunT(t).Addr()}))
	defer client.Close()
	guard := &failmode.Guard{Limiter: &algorithms.Redis{Client: client, Namespace: "shop", Budget: 10 * time.Second}}
	defer guard.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("/reports", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /auth/login", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	tenant := func(ctx context.Context) (string, bool) {
		name, ok := ctx.Value(tenantKey{}).(string)
		return name, ok
	}
	plan := func(r *http.Request) string { return r.Header.Get("Plan") }
	limit, err := start(ctx, client, guard, keyfunc.Proxies{}, mux, tenant, plan)
	if err != nil {
		t.Fatal(err)
	}
	h := limit.Handler(mux)
	sent := 0
	send := func(method, path, tenant, plan string) http.Header {
		sent++
		r := httptest.NewRequest(method, path, nil).WithContext(context.WithValue(ctx, tenantKey{}, tenant))
		r.RemoteAddr = fmt.Sprintf("[2001:db8:%x::1]:4711", sent)
		r.Header.Set("Plan", plan)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Header()
	}
	for _, tt := range []struct{ method, path, tenant, plan, limit string }{
		{"POST", "/reports", "a", "", "100"},
		{"GET", "/reports", "b", "pro", "200"}, // that of the address is the tighter one
		{"GET", "/reports", "c", "internal", "200"},
		{"POST", "/auth/login", "d", "", "100"}, // that of logins is hidden
	} {
		if h := send(tt.method, tt.path, tt.tenant, tt.plan); h.Get("X-RateLimit-Limit") != tt.limit {
			t.Errorf("%+v: %v", tt, h)
		}
	}

	loader := &rulefile.Loader{
		Keys:  map[string]keyfunc.Key{"ip": keyfunc.IP, "tenant": keyfunc.Everyone, "route": keyfunc.Everyone},
		Tiers: []string{"pro", "enterprise", "internal"},
	}
	text, err := os.ReadFile("rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	published := func(text string) error {
		path := filepath.Join(t.TempDir(), "rules.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return publish(ctx, client, loader, path)
	}
	if err := published(strings.Replace(string(text), "200/1m", "200 a minute", 1)); err == nil || !strings.Contains(err.Error(), "rules.yaml:5:12: ") {
		t.Errorf("a mistake was published: %v", err)
	}
	if err := published(strings.Replace(string(text), " 100/1m", " 50/1m", 1)); err != nil {
		t.Fatal(err)
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for send("GET", "/reports", "a", "").Get("X-RateLimit-Limit") != "50" {
		if ctx.Err() != nil {
			t.Fatal("the rules of the fleet are not in force")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/keyfunc"
)

const (
	cloudflare = "127.0.0.5" // the address of a connection from Cloudflare
	elsewhere  = "127.0.0.9" // that of one which is not
)

// The two ways of docs/trust-model.md: what nginx is told, and what the API trusts.
var (
	realIP = way{`
		set_real_ip_from ` + cloudflare + `/32;
		real_ip_header CF-Connecting-IP;
		proxy_set_header X-Forwarded-For $remote_addr;`, "127.0.0.1"}
	appended = way{`
		proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;`, "127.0.0.1\n" + cloudflare + "/32\n"}
)

type way struct{ nginx, trusted string }

func TestNobodyChoosesAnAddress(t *testing.T) {
	for name, way := range map[string]way{"real_ip": realIP, "appended": appended} {
		t.Run(name, func(t *testing.T) {
			s := start(t, way)
			for _, c := range []struct {
				from, counted string
				headers       []string
			}{
				{cloudflare, "198.51.100.1", []string{"X-Forwarded-For: 198.51.100.1", "CF-Connecting-IP: 198.51.100.1"}},
				{cloudflare, "198.51.100.2", []string{"X-Forwarded-For: 10.1.1.1, 198.51.100.2", "CF-Connecting-IP: 198.51.100.2"}},
				{cloudflare, "198.51.100.3", []string{"X-Forwarded-For: 127.0.0.1, 127.0.0.5, 198.51.100.3", "CF-Connecting-IP: 198.51.100.3"}},
				{cloudflare, "198.51.100.4", []string{"X-Forwarded-For: 10.1.1.1", "X-Forwarded-For: \"garbage,, 198.51.100.4", "CF-Connecting-IP: 198.51.100.4"}},
				{cloudflare, "198.51.100.5", []string{"X-Forwarded-For: 198.51.100.5", "CF-Connecting-IP: 198.51.100.5", "Forwarded: for=10.1.1.1", "X-Real-IP: 10.1.1.1", "True-Client-IP: 10.1.1.1"}},
				{cloudflare, "2001:db8::/64", []string{"X-Forwarded-For: 10.1.1.1,2001:db8::6", "CF-Connecting-IP: 2001:db8::6"}},
				{elsewhere, elsewhere, []string{"X-Forwarded-For: 10.1.1.1", "CF-Connecting-IP: 10.1.1.1"}},
				{elsewhere, elsewhere, []string{"X-Forwarded-For: 10.1.1.1, 127.0.0.5", "CF-Connecting-IP: 127.0.0.5", "CF-Connecting-IP: 10.1.1.1"}},
			} {
				s.redis.FlushAll()
				s.want(t, 401, c.from, "GET /v1/items", c.headers...)
				if got := s.counted("per-ip"); !slices.Equal(got, []string{c.counted}) {
					t.Errorf("%s with %q is counted as %q, want %s", c.from, c.headers, got, c.counted)
				}
			}
		})
	}
}

// A program in Cloudflare sends the X-Forwarded-For of its choice, from an address in
// Cloudflare's networks.
func TestOnlyRealIPDoesNotBelievePrograms(t *testing.T) {
	headers := []string{"X-Forwarded-For: 10.1.1.1, " + cloudflare, "CF-Connecting-IP: " + cloudflare}
	for want, way := range map[string]way{cloudflare: realIP, "10.1.1.1": appended} {
		s := start(t, way)
		s.want(t, 401, cloudflare, "GET /v1/items", headers...)
		if got := s.counted("per-ip"); !slices.Equal(got, []string{want}) {
			t.Errorf("counted as %q, want %s", got, want)
		}
	}
}

const (
	acme   = "Authorization: Bearer key-of-acme"   // free: 10 a minute
	globex = "Authorization: Bearer key-of-globex" // pro: 100 a minute
	client = "CF-Connecting-IP: 198.51.100.1"
)

func TestPlans(t *testing.T) {
	s := start(t, realIP)
	for i := range 10 {
		header, _ := s.want(t, 200, cloudflare, "GET /v1/items", acme, client)
		if limit, left := header.Get("X-RateLimit-Limit"), header.Get("X-RateLimit-Remaining"); limit != "10" || left != fmt.Sprint(9-i) {
			t.Errorf("the headers show %s of %s, not the plan", left, limit)
		}
	}
	header, body := s.want(t, 429, cloudflare, "GET /v1/items", acme, client)
	if body != `{"error":{"code":"too_many_requests"}}`+"\n" || header.Get("Retry-After") == "" || header.Get("Cache-Control") != "no-store" {
		t.Errorf("%s %v", body, header)
	}
	if allowed, exposed := header.Get("Access-Control-Allow-Origin"), header.Get("Access-Control-Expose-Headers"); allowed == "" || !strings.Contains(exposed, "Retry-After") {
		t.Errorf("pages cannot read the denial: %v", header)
	}
	s.want(t, 429, cloudflare, "HEAD /v1/items", acme, client)
	s.want(t, 200, cloudflare, "GET /v1/items", globex, client) // behind the same address
	s.want(t, 200, cloudflare, "GET /healthz", client)
	if _, body := s.want(t, 200, cloudflare, "GET /quota", acme, client); !strings.Contains(body, `{"name":"plan","window":"1m","limit":10,"remaining":0,`) ||
		!strings.Contains(body, `"window":"month@UTC","limit":1000,"remaining":990,`) || strings.Contains(body, "per-ip") {
		t.Error(body)
	}

	s.db.move("key-of-acme", "pro")
	if header, _ = s.want(t, 200, cloudflare, "GET /v1/items", acme, client); header.Get("X-RateLimit-Remaining") != "89" {
		t.Errorf("upgraded, %s are left", header.Get("X-RateLimit-Remaining"))
	}

	s.db.set(plan{"free", 10, 1000}, plan{"pro", 200, 100_000}, plan{"team/eu \"1\"", 300, 100_000})
	s.limitBecomes(t, "200")
	s.db.move("key-of-acme", "team/eu \"1\"")
	s.limitBecomes(t, "300")

	for _, broken := range []struct {
		plans []plan
		want  string
	}{
		{[]plan{{"free", 10, 1000}, {"pro", 0, 100_000}}, "table plans:11:15: rules[2].tiers.pro[0]: "},
		{[]plan{{"free", 10, 1000}, {"pro", -1, 100_000}}, "table plans:11:15: rules[2].tiers.pro[0]: "},
		{[]plan{{"pro", 1, 1}, {"pro", 2, 2}}, "table plans:11:7: rules[2].tiers.pro: "},
		{nil, "table plans:9:11: rules[2].tiers: "},
	} {
		s.log.Reset()
		s.db.set(broken.plans...)
		eventually(t, func() error {
			if text := s.log.String(); !strings.Contains(text, "rules not replaced") || !strings.Contains(text, broken.want) {
				return fmt.Errorf("no row is rejected with %s: %s", broken.want, text)
			}
			return nil
		})
		s.limitBecomes(t, "300") // as before
	}

	s.db.set(plan{"free", 10, 1000}) // acme's plan has no row
	s.limitBecomes(t, "1")
}

func TestCheats(t *testing.T) {
	s := start(t, realIP)
	header, body := s.want(t, 401, cloudflare, "GET /v1/items", client)
	if body != `{"error":{"code":"unknown_api_key"}}`+"\n" || header.Get("WWW-Authenticate") != `Bearer realm="api"` || header.Get("Access-Control-Allow-Origin") == "" {
		t.Errorf("%s %v", body, header)
	}
	s.want(t, 401, cloudflare, "GET /quota", client)
	for i := range 3 {
		s.want(t, 401, cloudflare, "GET /v1/items", client, fmt.Sprintf("Authorization: Bearer made-up-%d", i))
	}
	for _, request := range []string{"OPTIONS /v1/items", "HEAD /v1/items", "POST /v1/nothing", "GET //v1/../v1//items", "GET /v1/%69tems"} {
		s.want(t, 401, cloudflare, request, client, "X-Customer: acme", "Authorization: acme")
	}
	if plan, ip := s.counted("plan"), s.counted("per-ip"); plan != nil || !slices.Equal(ip, []string{"198.51.100.1"}) {
		t.Errorf("made-up API keys are counted as %q by plan, as %q by address", plan, ip)
	}

	// A flood of preflights costs nobody anything.
	for range 50 {
		header, _ := s.want(t, 204, cloudflare, "OPTIONS /v1/items", client, "Origin: https://app.example.com", "Access-Control-Request-Method: GET")
		if header.Get("Access-Control-Allow-Headers") != "Authorization" {
			t.Fatal(header)
		}
	}
	// /quota has a limit of its own, and uses nothing of the plan.
	for range 30 {
		s.want(t, 200, cloudflare, "GET /quota", acme, client)
		s.want(t, 200, cloudflare, "HEAD /quota", acme, client)
	}
	s.want(t, 429, cloudflare, "GET /quota", acme, client)
	if header, _ := s.want(t, 200, cloudflare, "GET /v1/items", acme, client); header.Get("X-RateLimit-Remaining") != "9" {
		t.Errorf("%s are left of the plan", header.Get("X-RateLimit-Remaining"))
	}

	// 10 guesses, 60 quotas and a request of acme are counted by address, and no preflight.
	for range 600 - 71 {
		s.want(t, 401, cloudflare, "GET /v1/items", client, "Authorization: Bearer guess")
	}
	header, body = s.want(t, 429, cloudflare, "GET /v1/items", client, "Authorization: Bearer guess")
	if header.Get("Retry-After") == "" || strings.Contains(fmt.Sprint(body, header), "per-ip") {
		t.Errorf("the address rule is not hidden: %s %v", body, header)
	}
	s.want(t, 200, cloudflare, "GET /v1/items", globex, "CF-Connecting-IP: 198.51.100.7") // from elsewhere
}

func (t *tables) move(apiKey, plan string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.customers[apiKey] = customer{t.customers[apiKey].id, plan}
}

func (t *tables) set(plans ...plan) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.plans = plans
}

// A server is the API behind nginx.
type server struct {
	addr  string // of nginx
	db    *tables
	redis *miniredis.Miniredis
	log   *lockedBuffer
}

func start(t *testing.T, w way) *server {
	t.Helper()
	s := &server{db: exampleTables(), redis: miniredis.RunT(t), log: new(lockedBuffer)}
	s.redis.SetTime(time.Now()) // and no further: no window ends in the test
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(s.log, nil)))
	t.Cleanup(func() {
		slog.SetDefault(before)
		if t.Failed() {
			t.Log(s.log.String())
		}
	})
	var proxies keyfunc.Proxies
	if err := proxies.UnmarshalText([]byte(w.trusted)); err != nil {
		t.Fatal(err)
	}
	guard := ratelimit.Redis(&redis.Options{Addr: s.redis.Addr()}, "api")
	t.Cleanup(func() { guard.Close() })
	api, err := newAPI(t.Context(), guard, proxies, s.db)
	if err != nil {
		t.Fatal(err)
	}
	upstream := httptest.NewServer(api)
	t.Cleanup(upstream.Close)
	s.addr = startNginx(t, w.nginx, upstream.URL)
	return s
}

// want sends a request from a loopback address, with headers such as "Name: value".
func (s *server) want(t *testing.T, status int, from, request string, headers ...string) (http.Header, string) {
	t.Helper()
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 10 * time.Second}).Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	method, path, _ := strings.Cut(request, " ")
	r, err := http.NewRequest(method, "http://"+s.addr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Close = true
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Add(name, value)
	}
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return conn, nil },
	}}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status {
		t.Fatalf("%s from %s with %q: %d, want %d: %s %v", request, from, headers, resp.StatusCode, status, body, err)
	}
	return resp.Header, string(body)
}

// limitBecomes waits until acme's plan has a limit.
func (s *server) limitBecomes(t *testing.T, limit string) {
	t.Helper()
	eventually(t, func() error {
		_, body := s.want(t, 200, cloudflare, "GET /quota", acme, client)
		if !strings.Contains(body, `"limit":`+limit+`,`) {
			return fmt.Errorf("/quota does not show %s: %s", limit, body)
		}
		return nil
	})
}

// counted returns the keys that Redis has under a rule.
func (s *server) counted(rule string) (keys []string) {
	for _, key := range s.redis.Keys() {
		_, key, _ = strings.Cut(key, "{")
		if client, rest, _ := strings.Cut(key, "}"); strings.HasPrefix(rest, ":"+rule+":") {
			keys = append(keys, client)
		}
	}
	return keys
}

func eventually(t *testing.T, try func() error) {
	t.Helper()
	err := try()
	for deadline := time.Now().Add(30 * time.Second); err != nil && time.Now().Before(deadline); err = try() {
		time.Sleep(200 * time.Millisecond) // polls
	}
	if err != nil {
		t.Fatal(err)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lockedBuffer) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
}

const nginxConf = `
daemon off;
master_process off;
pid nginx.pid;
error_log stderr warn;
events {}
http {
	access_log off;
	client_body_temp_path body;
	proxy_temp_path proxy;
	fastcgi_temp_path fastcgi;
	uwsgi_temp_path uwsgi;
	scgi_temp_path scgi;
	server {
		listen %s;
		%s
		location / {
			proxy_pass %s;
			proxy_bind 127.0.0.1;
		}
	}
}
`

// startNginx returns the address of a nginx that forwards requests to url.
func startNginx(t *testing.T, lines, url string) (addr string) {
	t.Helper()
	path, err := exec.LookPath("nginx")
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/nginx")
	}
	if err != nil {
		if os.Getenv("REQUIRE_NGINX") == "1" {
			t.Fatal("REQUIRE_NGINX=1: ", err)
		}
		t.Skip("needs nginx: apt-get install nginx-light; REQUIRE_NGINX=1 makes this a failure: ", err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = free.Addr().String()
	free.Close()
	dir := t.TempDir()
	conf := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, nginxConf, addr, lines, url), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	nginx := exec.CommandContext(ctx, path, "-e", "stderr", "-p", dir, "-c", conf)
	var stderr bytes.Buffer
	nginx.Stderr = &stderr
	if err := nginx.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = nginx.Wait()
		if t.Failed() {
			t.Logf("stderr of nginx:\n%s", stderr.String())
		}
	})
	eventually(t, func() error {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	return addr
}

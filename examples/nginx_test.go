package examples_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// nginxConf is a reverse proxy that adds the address it sees to X-Forwarded-For and
// lets no client say who the user is. Its places are for an address to listen at, the
// service's URL, and more directives.
const nginxConf = `
daemon off;
master_process off;
pid nginx.pid;
error_log stderr warn;
events {}
http {
	access_log off;
	proxy_cache_path cache keys_zone=pages:1m;
	client_body_temp_path body;
	proxy_temp_path proxy;
	fastcgi_temp_path fastcgi;
	uwsgi_temp_path uwsgi;
	scgi_temp_path scgi;
	server {
		listen %s;
		location / {
			proxy_pass %s;
			proxy_bind 127.0.0.1;
			proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
			proxy_set_header X-User-ID "";
			%s
		}
	}
}
`

// startNginx starts nginx before the service at an URL and returns nginx's own. The test's
// cleanup ends it.
func startNginx(t *testing.T, service, directives string) (url string) {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts nginx")
	}
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
	addr := free.Addr().String()
	free.Close()

	dir := t.TempDir()
	conf := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, nginxConf, addr, service, directives), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	nginx := exec.CommandContext(ctx, path, "-e", "stderr", "-p", dir, "-c", conf)
	var stderr strings.Builder
	nginx.Stderr = &stderr
	if err := nginx.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := nginx.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error("nginx: ", err)
		}
		if err := nginx.Wait(); err != nil {
			t.Error("nginx: ", err)
		}
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
	return "http://" + addr
}

// clientAt returns a client at a loopback address.
func clientAt(ip string) *http.Client {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	return &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true},
	}
}

// expectFrom sends a request from a loopback address, with headers in the form
// "Name: value", and wants an answer such as "200 4/5".
func expectFrom(ip, url, request, want string, headers ...string) error {
	method, path, _ := strings.Cut(request, " ")
	r, err := http.NewRequest(method, url+path, nil)
	if err != nil {
		return err
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Add(name, value)
	}
	resp, err := clientAt(ip).Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got := answer{
		status: resp.StatusCode,
		limit:  resp.Header.Get("X-RateLimit-Limit"), remaining: resp.Header.Get("X-RateLimit-Remaining"),
	}.String()
	if got != want {
		return fmt.Errorf("%s with %q: got %s, want %s", ip, headers, got, want)
	}
	return nil
}

// Behind a real nginx every client has its own count, whatever it says about itself.
func TestBehindNginxNobodyChoosesItsKey(t *testing.T) {
	spoofed := [][]string{
		{},
		{"X-Forwarded-For: 10.1.1.1"},
		{"X-Forwarded-For: 127.0.0.1, 127.0.0.1"}, // looks like the proxy itself
		{"X-Forwarded-For: 10.1.1.2", "X-Forwarded-For: garbage,,\"", "X-User-ID: mallory"},
		{"Forwarded: for=10.1.1.3", "X-Real-IP: 10.1.1.3", "X-User-ID: alice", "X-User-Id: bob", "X_User_ID: eve"},
		{"x-forwarded-for: " + strings.Repeat("10.1.1.4, ", 200) + "10.1.1.4"},
	}
	for _, trust := range []string{"127.0.0.1", "hops=1"} {
		t.Run(trust, func(t *testing.T) {
			inOneMinute(t, func(client) error {
				s := start(t, "stdlib", "-trusted-proxies="+trust)
				url := startNginx(t, s.url, "")
				for i, want := range append(allLogins, "429 0/5") {
					if err := expectFrom("127.0.0.2", url, login, want, spoofed[i]...); err != nil {
						return fmt.Errorf("login %d: %w", i+1, err)
					}
				}
				return errors.Join(
					// No user has a count of their own: that would be the tighter one.
					expectFrom("127.0.0.2", url, items, "200 194/200", "X-User-ID: mallory", "X-Forwarded-For: 127.0.0.3"),
					// Nor can anybody be taken for somebody else.
					expectFrom("127.0.0.3", url, login, "200 4/5", "X-Forwarded-For: 127.0.0.2"),
				)
			})
		})
	}
}

// A shared cache shows one client's quota to others, unless it hides the fields, or the
// rule is hidden. It never stores a denial.
func TestBehindACacheNobodySeesOthersQuotas(t *testing.T) {
	page, err := os.ReadFile("../docs/headers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, advice, _ := strings.Cut(string(page), "```nginx\n")
	advice, _, found := strings.Cut(advice, "```")
	if !found {
		t.Fatal("docs/headers.md shows no lines for nginx")
	}
	cached := "proxy_cache pages; proxy_cache_valid any 1m; add_header X-Cache $upstream_cache_status;\n"
	for name, c := range map[string]struct {
		directives string
		hidden     bool
		shown      bool // to another client
	}{
		"as it comes":        {cached, false, true},
		"as the page says":   {cached + advice, false, false},
		"with a hidden rule": {cached, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			limit, err := ratelimit.New(ratelimit.Config{
				Limiter: new(algorithms.Memory), Headers: headers.All(headers.XRateLimit, headers.IETFDraft11),
				Rules: []ratelimit.Rule{{
					Name: "per-ip", Key: keyfunc.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}.IP(), Hidden: c.hidden,
					Limit: ratelimit.MustParse("1/1h sliding_log"),
				}},
			})
			if err != nil {
				t.Fatal(err)
			}
			service := httptest.NewServer(limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Cache-Control", "public, max-age=60")
			})))
			defer service.Close()
			url := startNginx(t, service.URL, c.directives)
			for _, want := range []struct {
				ip, path string
				status   int
				cache    string
				shown    bool
			}{
				{"127.0.0.2", "/a", http.StatusOK, "MISS", c.shown},
				{"127.0.0.3", "/a", http.StatusOK, "HIT", c.shown},
				{"127.0.0.2", "/b", http.StatusTooManyRequests, "MISS", c.shown},
				{"127.0.0.3", "/b", http.StatusOK, "MISS", c.shown},
			} {
				resp, err := clientAt(want.ip).Get(url + want.path)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				shown := false
				for field := range resp.Header {
					shown = shown || strings.Contains(strings.ToLower(field), "ratelimit")
				}
				if resp.StatusCode != want.status || resp.Header.Get("X-Cache") != want.cache && want.status == http.StatusOK || shown != want.shown {
					t.Errorf("%s %s: %d, want %d; %v", want.ip, want.path, resp.StatusCode, want.status, resp.Header)
				}
				if denied := want.status == http.StatusTooManyRequests; (resp.Header.Get("Retry-After") != "") != denied {
					t.Errorf("%s %s: Retry-After %q", want.ip, want.path, resp.Header.Get("Retry-After"))
				}
			}
		})
	}
}

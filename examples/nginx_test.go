package examples_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// nginxConf is a reverse proxy that adds the address it sees to X-Forwarded-For and
// lets no client say who the user is.
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
		location / {
			proxy_pass %s;
			proxy_bind 127.0.0.1;
			proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
			proxy_set_header X-User-ID "";
		}
	}
}
`

// startNginx starts nginx before a service and returns its URL. The test's cleanup
// ends it.
func startNginx(t *testing.T, s *service) (url string) {
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
	addr := free.Addr().String()
	free.Close()

	dir := t.TempDir()
	conf := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, nginxConf, addr, s.url), 0o600); err != nil {
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

// expectFrom sends a request from a loopback address, with headers in the form
// "Name: value", and wants an answer such as "200 4/5".
func expectFrom(ip, url, request, want string, headers ...string) error {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	client := http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true},
	}
	method, path, _ := strings.Cut(request, " ")
	r, err := http.NewRequest(method, url+path, nil)
	if err != nil {
		return err
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Add(name, value)
	}
	resp, err := client.Do(r)
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
				url := startNginx(t, s)
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

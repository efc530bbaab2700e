package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// The program as it is, but for its addresses: it limits, goes on without Redis, and
// ends when it is interrupted.
func TestProgram(t *testing.T) {
	redis := miniredis.RunT(t)
	addr := freeAddr(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	server := exec.CommandContext(ctx, build(t, map[string]string{"localhost:6379": redis.Addr(), "localhost:8080": addr}))
	var log bytes.Buffer
	server.Stderr = &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	send := func(method, path string) (status int, header http.Header, body string) {
		t.Helper()
		for {
			r, err := http.NewRequestWithContext(ctx, method, "http://"+addr+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultClient.Do(r)
			if ctx.Err() != nil {
				t.Fatalf("%v\n%s", err, log.String())
			}
			if err != nil { // it does not listen yet
				time.Sleep(10 * time.Millisecond)
				continue
			}
			defer resp.Body.Close()
			text, _ := io.ReadAll(resp.Body)
			return resp.StatusCode, resp.Header, string(text)
		}
	}
	for i := range 5 {
		if status, _, body := send("POST", "/login"); status != http.StatusOK || body != "welcome\n" {
			t.Fatalf("login %d: %d %q", i+1, status, body)
		}
	}
	if status, header, body := send("POST", "/login"); status != http.StatusTooManyRequests || header.Get("Retry-After") == "" {
		t.Errorf("the sixth login: %d %v %s", status, header, body)
	}
	if len(redis.Keys()) < 2 {
		t.Errorf("Redis has the keys %q", redis.Keys())
	}
	redis.Close()
	// What Redis last denied stays denied. Nobody else is kept out of what does not fail closed.
	if status, _, body := send("POST", "/login"); status == http.StatusOK {
		t.Errorf("a login without Redis: %d %s", status, body)
	}
	if status, header, body := send("GET", "/"); status != http.StatusNotFound || header.Get("X-RateLimit-Limit") != "200" {
		t.Errorf("without Redis: %d %v %s", status, header, body)
	}
	if err := server.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := server.Wait(); err != nil {
		t.Errorf("%v\n%s", err, log.String())
	}
}

// build builds the program with other addresses, and returns its path.
func build(t *testing.T, addrs map[string]string) string {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	text := string(source)
	for from, to := range addrs {
		if strings.Count(text, from) != 1 {
			t.Fatalf("%s is in the program %d times", from, strings.Count(text, from))
		}
		text = strings.Replace(text, from, to, 1)
	}
	dir := t.TempDir()
	main, err := filepath.Abs("main.go")
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{main: filepath.Join(dir, "main.go")}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"main.go": []byte(text), "overlay.json": overlay} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "p01")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// freeAddr is an address on which nobody listens.
func freeAddr(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

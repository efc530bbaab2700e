package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// The program as it is, but for its addresses and a login that lasts as long as its
// body: it limits, goes on without Redis, and ends when it is told to.
func TestProgram(t *testing.T) {
	redis := miniredis.RunT(t)
	addr := freeAddr(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	program := build(t, map[string]string{
		"localhost:6379": redis.Addr(), "localhost:8080": addr,
		`fmt.Fprintln(w, "welcome")`: `fmt.Fscanln(r.Body); fmt.Fprintln(w, "welcome")`,
	})
	for name, sig := range map[string]os.Signal{"SIGINT": os.Interrupt, "SIGTERM": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			redis.FlushAll()
			endsAfterItsRequests(ctx, t, exec.CommandContext(ctx, program), addr, sig, redis)
		})
	}
	redis.FlushAll()
	server := exec.CommandContext(ctx, program)
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

// endsAfterItsRequests has a login under way when the server is told to end.
func endsAfterItsRequests(ctx context.Context, t *testing.T, server *exec.Cmd, addr string, sig os.Signal, redis *miniredis.Miniredis) {
	var log bytes.Buffer
	server.Stderr = &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	until := func(what string, done func() bool) {
		t.Helper()
		for !done() {
			if ctx.Err() != nil {
				t.Fatalf("%s: %v\n%s", what, ctx.Err(), log.String())
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	var conn net.Conn
	until("it listens", func() bool {
		var err error
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", addr)
		return err == nil
	})
	defer conn.Close()
	fmt.Fprint(conn, "POST /login HTTP/1.1\r\nHost: shop\r\nContent-Length: 1\r\n\r\n")
	until("the login is counted", func() bool { return len(redis.Keys()) > 1 })
	if err := server.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	until("it takes no more connections", func() bool {
		other, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err == nil {
			other.Close()
		}
		return err != nil
	})
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	select {
	case err := <-ended:
		t.Fatalf("it ended before the login: %v\n%s", err, log.String())
	case <-time.After(time.Second): // a program that does not wait has ended by now
	}
	fmt.Fprint(conn, "\n") // the login ends
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Errorf("the login under way: %v", err)
	} else if text, err := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK || string(text) != "welcome\n" || err != nil {
		t.Errorf("the login under way: %d %q %v", resp.StatusCode, text, err)
	}
	if err := <-ended; err != nil {
		t.Errorf("%v\n%s", err, log.String())
	}
}

// build builds the program with changes, and returns its path.
func build(t *testing.T, changes map[string]string) string {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	text := string(source)
	for from, to := range changes {
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

package programs

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
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// The README's first program as printed, but for its address: the sixth login gets the
// answer that the README shows.
func TestProgramInMemory(t *testing.T) {
	p := start(t, "p01", nil)
	for range 5 {
		p.want(t, "POST", "/login", http.StatusOK)
	}
	header, body := p.want(t, "POST", "/login", http.StatusTooManyRequests)
	var answer bytes.Buffer
	header.Del("Date")
	header.Del("Content-Length")
	_ = header.Write(&answer)
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, printed, _ := strings.Cut(string(readme), "```http\nHTTP/1.1 429 Too Many Requests\n")
	printed, _, _ = strings.Cut(printed, "\n```")
	printedHeader, printedBody, _ := strings.Cut(printed, "\n\n")
	numbers := regexp.MustCompile(`\d{2,}`)
	same := func(a, b string) bool {
		return numbers.ReplaceAllString(strings.TrimSpace(strings.ReplaceAll(a, "\r", "")), "N") == numbers.ReplaceAllString(strings.TrimSpace(b), "N")
	}
	if !same(answer.String(), printedHeader) || !same(body, printedBody) {
		t.Errorf("README.md prints\n%s\nthe program answers\n%s\n%s", printed, answer.String(), body)
	}
	p.want(t, "GET", "/", http.StatusOK)
}

// The README's second program as printed, but for its addresses: it counts in Redis, and
// goes on as the README says when Redis is gone.
func TestProgramOverRedis(t *testing.T) {
	redis := miniredis.RunT(t)
	p := start(t, "p02", map[string]string{"localhost:6379": redis.Addr()})
	for range 5 {
		p.want(t, "POST", "/login", http.StatusOK)
	}
	p.want(t, "POST", "/login", http.StatusTooManyRequests)
	if keys := redis.Keys(); !slices.ContainsFunc(keys, func(key string) bool { return strings.HasPrefix(key, "shop:{127.0.0.1}:login:") }) {
		t.Errorf("Redis has the keys %q", keys)
	}
	redis.Close()
	p.want(t, "POST", "/login", http.StatusTooManyRequests) // a denied client stays denied
	header, _ := p.want(t, "GET", "/", http.StatusOK)
	if header.Get("X-RateLimit-Limit") != "200" {
		t.Errorf("without Redis: %v", header)
	}
}

// A program is one that runs.
type program struct {
	addr string
	log  bytes.Buffer
}

// start builds a program with another address to listen on, and with changes, and runs it
// until the test ends.
func start(t *testing.T, name string, changes map[string]string) *program {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &program{addr: l.Addr().String()}
	_ = l.Close()
	source := filepath.Join(name, "main.go")
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range changes {
		text = replaced(t, text, from, to)
	}
	text = replaced(t, text, "localhost:8080", p.addr)
	dir := t.TempDir()
	absolute, err := filepath.Abs(source)
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{absolute: filepath.Join(dir, "main.go")}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"main.go": text, "overlay.json": overlay} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary := filepath.Join(dir, "program")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", binary, "./"+name).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	server := exec.CommandContext(ctx, binary)
	server.Stderr = &p.log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = server.Wait()
		if t.Failed() {
			t.Log(p.log.String())
		}
	})
	return p
}

func replaced(t *testing.T, text []byte, from, to string) []byte {
	if bytes.Count(text, []byte(from)) != 1 {
		t.Fatalf("%s is in the program %d times", from, bytes.Count(text, []byte(from)))
	}
	return bytes.Replace(text, []byte(from), []byte(to), 1)
}

// want sends a request, at first until the program listens.
func (p *program) want(t *testing.T, method, path string, status int) (http.Header, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		r, err := http.NewRequestWithContext(ctx, method, "http://"+p.addr+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if ctx.Err() != nil {
			t.Fatalf("%v\n%s", err, p.log.String())
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // polls: it does not listen yet
			continue
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != status {
			t.Fatalf("%s %s: %d, want %d: %s %v", method, path, resp.StatusCode, status, text, err)
		}
		return resp.Header, string(text)
	}
}

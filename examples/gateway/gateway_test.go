package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

const rulesText = `version: 1
rules:
  - {name: client, key: ip, limit: 20/1h}
  - {name: shop, match: [/shop/], key: everyone, limit: 3/1h, hidden: true}
  - {name: chat, match: [/chat/], key: everyone, limit: 100/1h, hidden: true}
  - {name: live, match: [GET /chat/live], key: ip, limit: 2/1h}
`

// An upstream counts its requests and keeps the headers of the last one.
type upstream struct {
	*httptest.Server
	requests atomic.Int64
	last     atomic.Pointer[http.Request]
}

func newUpstream(t *testing.T, handle http.HandlerFunc) *upstream {
	u := new(upstream)
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.requests.Add(1)
		u.last.Store(r)
		handle(w, r)
	}))
	t.Cleanup(u.Close)
	return u
}

// A setup is a gateway in front of two upstreams.
type setup struct {
	*gateway
	shop, chat *upstream
	public     *httptest.Server
	rules      string // the path of the file
}

func newSetup(t *testing.T, shop, chat http.HandlerFunc, proxies keyfunc.Proxies) *setup {
	t.Helper()
	s := &setup{shop: newUpstream(t, shop), chat: newUpstream(t, chat), rules: filepath.Join(t.TempDir(), "rules.yaml")}
	s.write(t, rulesText)
	s.gateway = &gateway{limiter: new(algorithms.Memory), proxies: proxies, upstreams: map[string]*url.URL{}, loader: rulefile.Loader{Source: rulefile.File(s.rules)}}
	for name, u := range map[string]*upstream{"shop": s.shop, "chat": s.chat} {
		if err := s.addUpstream(name + "=" + u.URL); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.public = httptest.NewUnstartedServer(s.gateway.public())
	s.public.Config = newServer(s.public.Config.Handler)
	s.public.Start()
	t.Cleanup(s.public.Close)
	return s
}

func (s *setup) write(t *testing.T, rules string) {
	t.Helper()
	if err := os.WriteFile(s.rules, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
}

func ok(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) }

// An answer is a response whose body has been read.
type answer struct {
	StatusCode int
	Header     http.Header
}

// get sends a request and returns the response and its body.
func get(t *testing.T, url string, fields ...string) (answer, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header}, string(body)
}

// Each upstream has a limit of its own, and what it denies is charged to nobody.
func TestEachUpstreamHasItsOwnLimit(t *testing.T) {
	s := newSetup(t, ok, ok, keyfunc.Proxies{})
	for i, want := range []int{200, 200, 200, 429, 429} {
		resp, body := get(t, s.public.URL+"/shop/a")
		if resp.StatusCode != want || want == 200 && body != "/shop/a" {
			t.Errorf("request %d: %d %q, want %d", i, resp.StatusCode, body, want)
		}
		if want == 429 && (strings.Contains(body, "shop") || resp.Header.Get("Retry-After") == "") {
			t.Errorf("a hidden rule is named, or there is no Retry-After: %v %s", resp.Header, body)
		}
	}
	resp, _ := get(t, s.public.URL+"/chat/a")
	if got := resp.Header.Get("X-RateLimit-Remaining"); resp.StatusCode != http.StatusOK || got != "16" {
		t.Errorf("%d, %s left of 20 after 3 and 1", resp.StatusCode, got)
	}
	if s.shop.requests.Load() != 3 || s.chat.requests.Load() != 1 {
		t.Errorf("%d and %d requests came through", s.shop.requests.Load(), s.chat.requests.Load())
	}
	if resp, _ := get(t, s.public.URL+"/nowhere/"); resp.StatusCode != http.StatusNotFound {
		t.Error(resp.StatusCode)
	}
}

// Upstreams are told one address, which clients cannot make up.
func TestAddressesAreNotForged(t *testing.T) {
	for name, c := range map[string]struct {
		proxies keyfunc.Proxies
		want    string
	}{
		"no proxy":  {keyfunc.Proxies{}, "127.0.0.1"},
		"one proxy": {keyfunc.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}, "192.0.2.7"},
	} {
		s := newSetup(t, ok, ok, c.proxies)
		fields := []string{"X-Forwarded-For", "6.6.6.6", "X-Forwarded-For", "6.6.6.7, 192.0.2.7"}
		for _, name := range []string{
			"Forwarded", "X-Forwarded-Host", "X-Forwarded-Prefix", "X-Forwarded-User", "X-Forwarded-Uri", "X-Real-IP", "X-Client-IP", "True-Client-IP", "CF-Connecting-IP",
			"X-Original-Forwarded-For", "X-User-Id", "X-Remote-User", "X-Original-URL", "X-Rewrite-URL", "Proxy",
			"X-HTTP-Method-Override",                          // a GET that the upstream takes for a POST, to which another rule applies
			"X_User_Id", "X_Forwarded_For", "X-Forwarded_For", // X-User-Id and X-Forwarded-For to upstreams that speak CGI or WSGI
		} {
			fields = append(fields, name, "forged")
		}
		get(t, s.public.URL+"/chat/a", append(fields, "Authorization", "theirs", "Connection", "X-Forwarded-For, X-Forwarded-Proto")...)
		h := s.chat.last.Load().Header
		for field, values := range h {
			if slices.Contains(values, "forged") {
				t.Errorf("%s: %s", field, values)
			}
		}
		if h.Get("X-Forwarded-For") != c.want || len(h.Values("X-Forwarded-For")) != 1 || h.Get("X-Forwarded-Proto") != "http" || h.Get("Authorization") != "theirs" {
			t.Errorf("%s: %v", name, h)
		}
	}
}

// Paths that upstreams read in different ways would reach /chat/live, or another
// upstream's paths, without the rule for them.
func TestOddPaths(t *testing.T) {
	s := newSetup(t, ok, ok, keyfunc.Proxies{})
	for _, target := range []string{
		"/chat/live;v=1", "/chat;v=1/live", "/chat/live%3bv=1", "/chat/.;/live", "/chat/x\\..\\live", "/chat/x%5c..%5Clive", "/chat%2Flive", "/chat/x%2f..%2flive",
		"/chat/%2e%2e/shop/", "/chat/.%2E/shop/", "/chat/%2e/live", "/chat/%252e%252e/shop/", "/chat/live%00", "/chat/live%0a", "/chat/live%7f", "/chat/live%3fx", "/chat/live%23x", "/chat/live#x",
		"/chat/%c0%ae%c0%ae/shop/", "/chat/x%c0%aflive",
	} {
		if resp := raw(t, s, "GET "+target+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %d", target, resp.StatusCode)
		}
	}
	// ServeMux does not clean the path of a CONNECT.
	if resp := raw(t, s, "CONNECT /chat/../shop/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("CONNECT: %d", resp.StatusCode)
	}
	if n := s.chat.requests.Load() + s.shop.requests.Load(); n != 0 {
		t.Errorf("%d requests came through", n)
	}
	for target, want := range map[string]string{
		"/chat/a%20b/caf%C3%A9": "/chat/a b/café", "/chat/a.b/..c/@:,+&=$!*'()~": "/chat/a.b/..c/@:,+&=$!*'()~", "/chat/%6cive": "/chat/live", "/chat/?a=b;c%2f..%5c": "/chat/",
		"http://evil.example/chat/": "/chat/",
	} {
		resp := raw(t, s, "GET "+target+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if r := s.chat.last.Load(); resp.StatusCode != http.StatusOK || r == nil || r.URL.Path != want {
			t.Errorf("%s: %d", target, resp.StatusCode)
		}
	}
	if resp, _ := get(t, s.public.URL+"/chat/"); resp.Header.Get("X-RateLimit-Remaining") != "14" {
		t.Errorf("refused requests were charged: %v", resp.Header)
	}
}

// raw sends what is written, and returns the response.
func raw(t *testing.T, s *setup, request string) answer {
	t.Helper()
	conn, err := net.Dial("tcp", s.public.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	fmt.Fprint(conn, request)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return answer{resp.StatusCode, resp.Header}
}

// The tighter one of two limits is what the client is told, also after an
// informational response, behind which net/http's proxy forgets the headers.
func TestHeadersOfAnUpstreamAreMerged(t *testing.T) {
	s := newSetup(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-RateLimit-Limit", "10")
		w.Header().Set("X-RateLimit-Remaining", "1")
		w.Header().Set("X-RateLimit-Reset", fmt.Sprint(time.Now().Unix()+60))
	}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusEarlyHints) }, keyfunc.Proxies{})
	for _, c := range []struct{ path, want string }{{"/shop/", "1"}, {"/chat/", "18"}} {
		resp, _ := get(t, s.public.URL+c.path)
		if got := resp.Header["X-Ratelimit-Remaining"]; len(got) != 1 || got[0] != c.want {
			t.Errorf("%s: %v", c.path, resp.Header)
		}
	}
}

// An event stream passes through event by event, and may take longer than other
// responses.
func TestEventStreams(t *testing.T) {
	more := make(chan struct{})
	s := newSetup(t, ok, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
			select {
			case <-more: // not before the client has read the one before
			case <-r.Context().Done():
				return
			}
		}
	}, keyfunc.Proxies{})
	resp, err := http.Get(s.public.URL + "/chat/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for i := range 3 {
		if !lines.Scan() || lines.Text() != fmt.Sprint("data: ", i) || !lines.Scan() {
			t.Fatalf("event %d: %q, %v", i, lines.Text(), lines.Err())
		}
		more <- struct{}{}
	}
}

// A deadlined recorder notes the deadlines that are set on it.
type deadlined struct {
	*httptest.ResponseRecorder
	write []time.Time
}

//nolint:unparam // http.ResponseController looks for a method with an error
func (d *deadlined) SetWriteDeadline(t time.Time) error { d.write = append(d.write, t); return nil }

func (d *deadlined) SetReadDeadline(time.Time) error { return errors.ErrUnsupported }

// Only the upstream makes a response a stream, or any client could take an hour for
// any response.
func TestTimeForStreams(t *testing.T) {
	s := newSetup(t, ok, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "text/event-stream") }, keyfunc.Proxies{})
	for path, want := range map[string]int{"/chat/": 1, "/shop/": 0} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Accept", "text/event-stream")
		w := &deadlined{ResponseRecorder: httptest.NewRecorder()}
		s.public.Config.Handler.ServeHTTP(w, r)
		if len(w.write) != want || want == 1 && time.Until(w.write[0]) < streamTime/2 {
			t.Errorf("%s: deadlines %v, want %d", path, w.write, want)
		}
	}
	c := newServer(nil)
	if c.ReadHeaderTimeout == 0 || c.ReadTimeout == 0 || c.WriteTimeout == 0 || c.IdleTimeout == 0 {
		t.Errorf("%+v", c)
	}
}

// echo is a WebSocket's upstream as far as a proxy can tell: it takes over the
// connection and returns each line.
func echo(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "websocket" {
		http.Error(w, "no upgrade", http.StatusBadRequest)
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	rw.Flush()
	for {
		line, err := rw.ReadString('\n')
		if err != nil {
			return
		}
		fmt.Fprint(rw, "echo ", line)
		rw.Flush()
	}
}

// dial opens a WebSocket through the gateway.
func dial(t *testing.T, s *setup) (net.Conn, *bufio.Reader, answer) {
	t.Helper()
	conn, err := net.Dial("tcp", s.public.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	fmt.Fprint(conn, "GET /chat/live HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close() // of the 429; there is none otherwise
	return conn, r, answer{resp.StatusCode, resp.Header}
}

// A WebSocket is charged once, when it opens, and then passes both ways.
func TestWebSockets(t *testing.T) {
	s := newSetup(t, ok, echo, keyfunc.Proxies{})
	conns := make([]net.Conn, 2)
	readers := make([]*bufio.Reader, 2)
	for i := range conns {
		var resp answer
		if conns[i], readers[i], resp = dial(t, s); resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("X-RateLimit-Remaining") != fmt.Sprint(1-i) {
			t.Fatalf("%d %v", resp.StatusCode, resp.Header)
		}
	}
	if _, _, resp := dial(t, s); resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
		t.Errorf("the third: %d %v", resp.StatusCode, resp.Header)
	}
	if got := s.chat.requests.Load(); got != 2 {
		t.Errorf("%d connections came through", got)
	}
	for i := range 100 {
		fmt.Fprintf(conns[i%2], "message %d\n", i)
		if line, err := readers[i%2].ReadString('\n'); err != nil || line != fmt.Sprintf("echo message %d\n", i) {
			t.Fatalf("%q, %v", line, err)
		}
	}
	if resp, _ := get(t, s.public.URL+"/shop/"); resp.Header.Get("X-RateLimit-Remaining") != "17" {
		t.Errorf("messages were charged: %v", resp.Header)
	}
}

// An upstream that would serve HTTP/2 on the client's connection is not asked to: all
// requests on it would be one to the rules, and have any path.
func TestHTTP2IsNoWayPastTheRules(t *testing.T) {
	s := newSetup(t, ok, ok, keyfunc.Proxies{})
	for _, upgrade := range []string{
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n", "Connection: Upgrade\r\nUpgrade: H2C\r\n", "Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n",
		"Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n", "Connection: Upgrade\r\nUpgrade: h2c/2\r\n",
	} {
		resp := raw(t, s, "GET /chat/ HTTP/1.1\r\nHost: x\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"+upgrade+"\r\n")
		h := s.chat.last.Load().Header
		if all := strings.ToLower(strings.Join(h.Values("Upgrade"), ",")); resp.StatusCode != http.StatusOK || strings.Contains(all, "h2c") || h.Get("HTTP2-Settings") != "" {
			t.Errorf("%q: %d, %v", upgrade, resp.StatusCode, h)
		}
	}
}

// Rules that leave an upstream without one are refused, at the start and later.
func TestEveryUpstreamNeedsARule(t *testing.T) {
	s := newSetup(t, ok, ok, keyfunc.Proxies{})
	s.write(t, strings.ReplaceAll(rulesText, "/chat/]", "/chats/]"))
	err := s.loader.Reload(t.Context(), s.limit)
	if err == nil || !strings.Contains(err.Error(), "no rule for the upstream chat; write one with match: [/chat/]") {
		t.Errorf("%v", err)
	}
	if resp, _ := get(t, s.public.URL+"/chat/"); resp.Header.Get("X-RateLimit-Limit") != "20" {
		t.Errorf("the old rules are gone: %v", resp.Header)
	}
	s.write(t, strings.ReplaceAll(rulesText, "20/1h", "30/1h"))
	if err := s.loader.Reload(t.Context(), s.limit); err != nil {
		t.Fatal(err)
	}
	if resp, _ := get(t, s.public.URL+"/chat/"); resp.Header.Get("X-RateLimit-Limit") != "30" {
		t.Errorf("%v", resp.Header)
	}
	for _, field := range []string{"disabled: true", "shadow: true", "shadow: true, enforce: 99%"} { // of one key, 99 % is all or nothing
		s.write(t, strings.ReplaceAll(rulesText, "limit: 3/1h,", "limit: 3/1h, "+field+","))
		if err := s.start(t.Context()); err == nil || !strings.Contains(err.Error(), "no rule for the upstream shop") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestAnUpstreamThatIsDown(t *testing.T) {
	s := newSetup(t, ok, ok, keyfunc.Proxies{})
	s.shop.Close()
	if resp, _ := get(t, s.public.URL+"/shop/"); resp.StatusCode != http.StatusBadGateway || resp.Header.Get("X-RateLimit-Remaining") != "19" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
}

// The program, as it is started: clients have one port and operators another.
func TestRun(t *testing.T) {
	shop, chat := newUpstream(t, ok), newUpstream(t, ok)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, to := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"-addr", "127.0.0.1:0", "-admin", "127.0.0.1:0", "-rules", "rules.yaml", "-upstream", "shop=" + shop.URL, "-upstream", "chat=" + chat.URL}, to)
		to.CloseWithError(fmt.Errorf("ended: %w", err))
		ended <- err
	}()
	lines := bufio.NewReader(out)
	address := func(what string) string {
		line, err := lines.ReadString('\n')
		url, found := strings.CutPrefix(strings.TrimSpace(line), what+" on ")
		if err != nil || !found {
			t.Fatalf("%q, %v", line, err)
		}
		return url
	}
	public, admin := address("listening"), address("admin")
	for range 3 {
		if resp, body := get(t, public+"/shop/x"); resp.StatusCode != http.StatusOK || body != "/shop/x" {
			t.Fatal(resp.StatusCode, body)
		}
	}
	for _, path := range []string{"/metrics", "/ratelimit/"} {
		if resp, _ := get(t, public+path); resp.StatusCode != http.StatusNotFound {
			t.Errorf("clients see %s: %d", path, resp.StatusCode)
		}
		if resp, _ := get(t, admin+path); resp.StatusCode != http.StatusOK {
			t.Errorf("operators do not see %s: %d", path, resp.StatusCode)
		}
	}
	if _, body := get(t, admin+"/metrics"); !strings.Contains(body, `ratelimit_decisions_total{algorithm="token_bucket",outcome="allowed",rule="shop",source="memory"} 3`) {
		t.Errorf("%s", body)
	}
	if resp, _ := get(t, admin+"/shop/x"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("operators' port serves upstreams: %d", resp.StatusCode)
	}
	http.DefaultClient.CloseIdleConnections()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// What an upstream would not be sent must not be in its URL.
func TestUpstreamsHaveNoMoreThanAPath(t *testing.T) {
	g := gateway{upstreams: make(map[string]*url.URL)}
	for _, to := range []string{"http://user:secret@a/", "http://a/?q=1", "http://a/#f"} {
		if err := g.addUpstream("shop=" + to); err == nil || !strings.Contains(err.Error(), "no user, query or fragment") {
			t.Errorf("%s: %v", to, err)
		}
	}
	if err := g.addUpstream("shop=https://a:1/base/"); err != nil {
		t.Error(err)
	}
}

func TestMistakes(t *testing.T) {
	good := []string{"-addr", "127.0.0.1:0", "-admin", "127.0.0.1:0", "-rules", "rules.yaml", "-upstream", "shop=http://a", "-upstream", "chat=http://b"}
	for want, args := range map[string][]string{
		"no upstream; write":                 good[:6],
		"write NAME=URL":                     {"-upstream", "shop"},
		"invalid value \"a/b=http://x\"":     {"-upstream", "a/b=http://x"},
		"invalid value \".=http://x\"":       {"-upstream", ".=http://x"},
		"invalid value \"a;b=http://x\"":     {"-upstream", "a;b=http://x"},
		"shop is there twice":                {"-upstream", "shop=http://a", "-upstream", "shop=http://b"},
		"no such file":                       append([]string{"-rules", "nowhere.yaml"}, good[6:]...),
		"no rule for the upstream other":     append([]string{"-upstream", "other=http://c"}, good...),
		"-redis: ":                           append([]string{"-redis", "localhost"}, good...),
		"10.0.0.0/8 for the network":         {"-trusted-proxies", "10.1.1.1/8"},
		"flag provided but not defined: -no": {"-no"},
	} {
		var out bytes.Buffer
		if err := run(t.Context(), args, &out); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", args, err, want)
		}
	}
}

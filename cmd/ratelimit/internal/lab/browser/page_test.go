package browser

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/seed75154129/ratelimit/cmd/ratelimit/internal/replayed"
)

const root = "../../../../.."

// patience is how long anything may take on a busy machine.
const patience = 60 * time.Second

var (
	chromium context.Context // a running browser
	lab      string          // the address of a running lab, with a result
	operated string          // the address of an operators' page
	program  string          // its path
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	path := chromiumPath()
	if path == "" {
		fmt.Println("no chromium on the PATH: the pages are not tested")
		if os.Getenv("REQUIRE_CHROMIUM") != "" {
			return 1
		}
		return 0
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.Flag("disable-dev-shm-usage", true))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // it refuses root otherwise
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	ctx, quit := chromedp.NewContext(allocator)
	defer quit()
	chromium = ctx //nolint:fatcontext // made once, for all tests
	if err := chromedp.Do(chromium); err != nil {
		fmt.Println("chromium does not start:", err)
		return 1
	}
	dir, err := os.MkdirTemp("", "lab")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "lab")
	if out, err := exec.Command("go", "build", "-C", root, "-o", program, "./cmd/ratelimit").CombinedOutput(); err != nil {
		fmt.Printf("%v\n%s", err, out)
		return 1
	}
	result := filepath.Join(dir, "result.json")
	if err := writeResult(result); err != nil {
		fmt.Println(err)
		return 1
	}
	address, end, err := start(program, "-result", result)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer end()
	lab = strings.TrimSuffix(address, "/replay")
	if operated, end, err = serveOperators(); err != nil {
		fmt.Println(err)
		return 1
	}
	defer end()
	return m.Run()
}

func chromiumPath() string {
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	return ""
}

// start starts a lab on a free port and returns its page.
func start(program string, args ...string) (address string, end func(), err error) {
	cmd := exec.Command(program, append([]string{"lab", "-addr", "127.0.0.1:0"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	end = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	line, err := bufio.NewReader(out).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if !ok {
		end()
		return "", nil, fmt.Errorf("the lab says %q, %w", line, err)
	}
	return address, end, nil
}

// hostile is what a client can write into an access log.
const hostile = `<img src=x onerror="document.title='owned'">`

func writeResult(path string) error {
	start := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	r := replayed.Result{
		Log: "access.log", Requests: 0, Bad: 3,
		Rules: []replayed.Rule{
			{Name: "per-ip", Key: "ip", Limit: "200/1m", Clients: 4180, Limited: 31, Smallest: "320/1m", Under: 0.005},
			{Name: "login", Match: []string{"POST /auth/login"}, Key: "ip", Limit: "5/1m fixed_window", Clients: 512, Limited: 9},
			{Name: "per-user", Key: "user", Limit: "60/1m", NotReplayed: "the log does not have the key user"},
			{Name: "upload", Match: []string{"PUT /files/{name}"}, Key: "ip", Limit: "10/1m"},
		},
		Clients: []replayed.Client{
			{Rule: "per-ip", Key: "203.0.113.9", Requests: 5210, Denied: 3120},
			{Rule: "login", Key: "2001:db8:85a3:8d3::/64", Requests: 900, Denied: 610},
			{Rule: "login", Key: hostile, Requests: 90, Denied: 61},
		},
	}
	for i := range 36 {
		r.Clients = append(r.Clients, replayed.Client{Rule: "per-ip", Key: fmt.Sprintf("198.51.100.%d", i), Requests: 80, Denied: int64(60 - i)})
	}
	for i := range 8 { // of which each denied something in the worst minutes
		r.Rules = append(r.Rules, replayed.Rule{Name: fmt.Sprintf("tenant-%d", i), Key: "ip", Limit: "900/1m", Requests: 700, Denied: 9, Clients: 7, Limited: 1})
	}
	for i := range 600 {
		if i/30%7 == 3 {
			continue // half an hour without a request
		}
		m := replayed.Minute{Start: start.Add(time.Duration(i) * time.Minute), Requests: int64(300 + 200*(i%60)/60 + i*i%37)}
		if i > 200 && i < 260 {
			m.ByRule = map[string]int64{"per-ip": 52, "login": int64(i % 17)}
			if i%17 > 14 {
				for _, rule := range r.Rules[4:] {
					m.ByRule[rule.Name] = 2
				}
			}
			m.Requests, m.Denied = m.Requests+60, 52+int64(i%17)
		}
		r.Requests, r.Denied = r.Requests+m.Requests, r.Denied+m.Denied
		r.Rules[0].Denied += m.ByRule["per-ip"]
		r.Rules[1].Denied += m.ByRule["login"]
		r.Minutes = append(r.Minutes, m)
	}
	r.Rules[0].Requests, r.Rules[1].Requests = r.Requests, 4100
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := replayed.Write(file, r); err != nil {
		return err
	}
	return file.Close()
}

// A tab is a page in the browser. Whatever the page complains about fails the
// test when it ends.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu         sync.Mutex
	complaints []string
}

// A screen is how the page is looked at.
type screen struct {
	width, height int64
	dark, still   bool
}

var desktop = screen{width: 1280, height: 900}

// at is the address of a page.
func at(path string) string {
	if strings.HasPrefix(path, operatorsPath) {
		return operated + path
	}
	return lab + path
}

// open opens a page and waits until it has drawn.
func open(t *testing.T, s screen, url string) *tab {
	t.Helper()
	p := newTab(t, s)
	p.run(chromedp.Navigate(url))
	switch {
	case strings.HasPrefix(url, operated):
		p.until(`document.querySelector('main')`)
	case strings.Contains(url, "/replay"):
		p.until(`document.body.dataset.ready === 'true'`)
	default:
		p.until(`document.querySelectorAll('#rows svg path').length > 0 || !document.getElementById('mistake').hidden`)
	}
	return p
}

func newTab(t *testing.T, s screen) *tab {
	t.Helper()
	p := &tab{t: t}
	ctx, cancel := chromedp.NewContext(chromium, chromedp.WithListener(p.listen))
	p.ctx = ctx
	scheme, motion := "light", "no-preference"
	if s.dark {
		scheme = "dark"
	}
	if s.still {
		motion = "reduce"
	}
	t.Cleanup(func() {
		cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.complaints) > 0 {
			t.Errorf("the page complains:\n%s", strings.Join(p.complaints, "\n"))
		}
	})
	if err := chromedp.Do(ctx); err != nil { // opens the tab, which lives as long as this context
		t.Fatal(err)
	}
	p.run(chromedp.EmulateViewport(s.width, s.height))
	call(p, log.Enable, cdp.Empty{})
	call(p, network.Enable, network.EnableParams{})
	call(p, runtime.Enable, cdp.Empty{})
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: motion},
	}})
	return p
}

func (p *tab) listen(event any) {
	complain := func(format string, args ...any) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.complaints = append(p.complaints, fmt.Sprintf(format, args...))
	}
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		complain("%v", &chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails})
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning || e.Type == runtime.ConsoleAPICalledTypeAssert {
			complain("console.%s: %s", e.Type, e.Args[0].Value)
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			complain("log: %s %s", e.Entry.Text, e.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, "http://127.0.0.1:") && !strings.HasPrefix(e.Request.URL, "data:") && e.Request.URL != "about:blank" {
			complain("a request to %s", e.Request.URL)
		}
	}
}

// forgive takes back complaints that a test has caused on purpose.
func (p *tab) forgive(about string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.complaints)
	p.complaints = slices.DeleteFunc(p.complaints, func(c string) bool { return strings.Contains(c, about) })
	if len(p.complaints) == n {
		p.t.Errorf("no complaint about %q", about)
	}
}

func (p *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

// call sends a command of the protocol.
func call[P, R any](p *tab, command cdp.Command[P, R], params P) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if _, err := chromedp.Call(ctx, command, params); err != nil {
		p.t.Fatal(err)
	}
}

// get evaluates JavaScript into a Go value.
func get[T any](p *tab, js string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](js, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%s: %v", js, err)
	}
	return value
}

// until waits for a condition in JavaScript, also of the page that a click leads to.
func (p *tab) until(js string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	for {
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+js+")"))
		if ok {
			return
		}
		select {
		case <-ctx.Done():
			p.t.Fatalf("never: %s: %v; the page shows\n%s", js, err, get[string](p, "document.body.innerText"))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// allowClipboard lets the test read what the page has copied.
func (p *tab) allowClipboard() {
	p.t.Helper()
	for _, name := range []string{"clipboard-read", "clipboard-write"} {
		call(p, browser.SetPermission, browser.SetPermissionParams{Permission: &browser.PermissionDescriptor{Name: name}, Setting: browser.PermissionSettingGranted})
	}
	call(p, page.BringToFront, cdp.Empty{})
}

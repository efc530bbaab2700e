package admin_test

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/admin"
)

// payload wants out of texts, quoted attributes and styles, and be a placeholder.
const payload = `</style></title>{}"'><script>alert(1)</script><img src=x onerror=alert(2)>&lt;b&gt;` + "\u202e`${7}"

// An evil Key has a name that is markup.
type evil struct{ keyfunc.Described }

func (evil) String() string { return payload }

func (evil) Keys(values ...string) ([]string, error) {
	if values[0] == "bad" {
		return nil, errors.New(payload)
	}
	return values, nil
}

// tag is what the page may have between < and >: names of its own, and attributes in
// double quotes.
var tag = regexp.MustCompile(`^</?(!DOCTYPE html|html|head|meta|title|style|body|header|main|h1|h2|h3|a|p|b|div|section|details|summary|span|code|pre|table|thead|tbody|tr|th|td|form|input|select|option|button|meter)` +
	`( [a-z-]+(="[^"<>]*")?)*>$`)

// wantNoMarkup checks that a page has no markup but its own.
func wantNoMarkup(t *testing.T, name, page string) {
	t.Helper()
	for i, part := range strings.Split(page, "<")[1:] {
		end := strings.IndexByte(part, '>')
		if end < 0 || !tag.MatchString("<"+part[:end+1]) {
			t.Fatalf("%s: tag %d is <%.120s", name, i, part)
		}
	}
	if strings.Contains(page, "\u202e") && !strings.Contains(page, `name="value" value="`) {
		t.Errorf("%s: a character that turns the text around it", name)
	}
}

func TestAdminEscapesEverything(t *testing.T) {
	key := evil{keyfunc.Describe(keyfunc.Header("User"))}
	limiter := new(bans)
	m := mustNew(t, ratelimit.Config{Limiter: limiter, LogKeys: true, TierFor: func(*http.Request) string { return "" }, Rules: []ratelimit.Rule{
		{Name: "r", Key: key, Limit: algorithms.PerHour(1), Tiers: map[string][]algorithms.Limit{strings.ReplaceAll(payload, "\u202e", ""): {algorithms.PerMinute(9)}}, Match: []string{`/a"'<b>&amp;`, "/"}, Ban: ratelimit.Ban{After: 3, For: time.Hour}},
		perHour("plain", 9),
	}})
	m.RulesFailed(errors.New(payload))
	times(30, m.Handler(ok), "GET /", "User", payload)
	o := operator{admin.Handler(m), t, ""}
	browser := o.browser()
	limiter.err = errors.New(payload)
	value := url.QueryEscape(payload)
	pages := map[string]*httptest.ResponseRecorder{
		"overview":       browser.get(""),
		"look up":        browser.get("rule=r&value=" + value),
		"posted":         browser.post("action=peek&rule=r&value=" + value),
		"failed":         browser.post("action=ban&for=1m&rule=r&value=" + value),
		"rule":           browser.get("rule=" + value),
		"action":         browser.post("rule=r&value=1&action=" + value),
		"duration":       browser.post("rule=r&value=1&action=ban&for=" + value),
		"id":             browser.get("rule=r&id=" + value),
		"key's error":    browser.get("rule=r&value=bad"),
		"value's error":  browser.get("rule=plain&value=" + value),
		"query's error":  browser.get(`rule=r&value=%<script>`),
		"form's error":   browser.post(`rule=r&value=%<script>`),
		"another method": browser.do("DELETE", ""),
		"another site":   browser.do("POST", "action=reset&rule=r&value="+value, "Sec-Fetch-Site", "cross-site"),
	}
	rebound := httptest.NewRequest(http.MethodGet, "/", nil)
	rebound.Host = payload
	rebound.Header.Set("Accept", browser.accept)
	pages["another host"] = httptest.NewRecorder()
	o.ServeHTTP(pages["another host"], rebound)
	for name, w := range pages {
		wantNoMarkup(t, name, w.Body.String())
		if got := w.Header().Get("Content-Type"); got != "text/html; charset=utf-8" {
			t.Errorf("%s: %s", name, got)
		}
	}
	overview := pages["overview"].Body.String()
	if shown := html.EscapeString(strings.Replace(payload, "\u202e", `\u202e`, 1)); strings.Count(overview, shown) < 5 {
		t.Errorf("the payload is not shown as text:\n%s", overview)
	}
	// What was looked up is what the buttons are about.
	exact := `<input type="hidden" name="value" value="` + html.EscapeString(payload) + `">`
	if got := strings.Count(pages["look up"].Body.String(), exact); got != 6 { // the fifth and sixth set what is used by the rule's limit and by the tier's
		t.Errorf("%d of 6 forms have the value", got)
	}
	if len(limiter.asked) != 1 || limiter.asked[0] != "1m0s r~ban "+payload {
		t.Errorf("%q", limiter.asked)
	}
	for _, w := range []*httptest.ResponseRecorder{o.get(""), o.get("rule=r&value=" + value), o.get("rule=" + value)} {
		if text := w.Body.String(); strings.ContainsAny(text, "<>") || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s %s", w.Header(), text)
		}
	}
}

// No page of another site can change anything, show this one in a frame, or read it.
func TestAdminIsSafeFromOtherSites(t *testing.T) {
	limiter := new(bans)
	m := mustNew(t, ratelimit.Config{Limiter: limiter, Rules: []ratelimit.Rule{perHour("a", 5)}})
	app := m.Handler(ok)
	times(3, app, "GET /")
	o := operator{admin.Handler(m), t, ""}
	const form = "action=reset&rule=a&value=192.0.2.1"
	for _, header := range [][]string{
		{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Sec-Fetch-Site", "cross-site", "Origin", "https://example.com"},
		{"Origin", "https://evil.example"}, {"Origin", "null"}, {"Origin", "http://localhost.evil.example"}, {"Origin", "http://localhost:81"},
	} {
		for _, form := range []string{form, "action=ban&for=1m&rule=a&value=192.0.2.1", "action=peek&rule=a&value=192.0.2.1"} {
			for _, o := range []operator{o, o.browser()} {
				w := o.do("POST", form, header...)
				if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "by a page of another site") || strings.Contains(w.Body.String(), "192.0.2.1") {
					t.Errorf("%q: %d %s", header, w.Code, w.Body)
				}
			}
		}
	}
	// Only a link works, and changes nothing. An image or a frame is no link.
	for _, site := range []string{"cross-site", "same-site", "same-origin", "none"} {
		for dest, mode := range map[string]string{"image": "no-cors", "empty": "cors", "iframe": "navigate", "object": "navigate", "": "no-cors", "document": "navigate"} {
			for _, query := range []string{"", "value=192.0.2.1", form} {
				want := http.StatusOK
				if query == form {
					want = http.StatusMethodNotAllowed
				}
				if strings.HasSuffix(site, "-site") && dest != "document" {
					want = http.StatusForbidden
				}
				for _, method := range []string{"GET", "HEAD"} {
					if w := o.do(method, query, "Sec-Fetch-Site", site, "Sec-Fetch-Mode", mode, "Sec-Fetch-Dest", dest); w.Code != want || want == http.StatusForbidden && strings.Contains(w.Body.String(), "remaining") {
						t.Errorf("%s %q, %s, %s: %d %s, want %d", method, query, site, dest, w.Code, w.Body, want)
					}
				}
			}
		}
	}
	if left := o.left(o.get("rule=a&value=192.0.2.1")); left != 2 || limiter.asked != nil {
		t.Errorf("%d left, bans %q", left, limiter.asked)
	}
	for _, header := range [][]string{nil, {"Sec-Fetch-Site", "same-origin"}, {"Sec-Fetch-Site", "none"}, {"Origin", "http://localhost"}} {
		if w := o.do("POST", form, header...); w.Code != http.StatusOK {
			t.Errorf("%q: %d %s", header, w.Code, w.Body)
		}
	}
	for _, w := range []*httptest.ResponseRecorder{o.get(""), o.browser().get(""), o.browser().do("POST", form, "Origin", "null"), o.browser().get("rule=nope")} {
		for name, want := range map[string]string{
			"Cache-Control": "no-store", "X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "same-origin", "Referrer-Policy": "same-origin",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %q", name, got)
			}
		}
		policy := w.Header().Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "style-src 'sha256-", "form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'"} {
			if !strings.Contains(policy, want) || strings.Contains(policy, "unsafe") {
				t.Errorf("%s: no %s", policy, want)
			}
		}
	}
}

// A name that resolves to this server is not this server's name, wherever the
// server listens: a container's port may be published on the loopback address, while
// the server's own address is another one.
func TestAdminIsNotRebound(t *testing.T) {
	m := inMemory(t, bannable(perHour("a", 5)))
	h, container := admin.Handler(m, "Ops.Example.", "shop-7.internal:8081"), &net.TCPAddr{IP: net.IPv4(172, 17, 0, 2), Port: 8081}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, container)))
	}))
	defer server.Close()
	send := func(host string, header ...string) (status int, text string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader("action=ban&for=720h&rule=a&value=192.0.2.1"))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		r.Header.Set("Origin", "http://"+host)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		resp, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	for host, want := range map[string]int{
		"evil.example:" + port: 421, "evil.example": 421, "localhost.evil.example": 421, "notlocalhost": 421, "127.0.0.1.nip.example:" + port: 421, "ops.example.evil.example": 421,
		"127.0.0.1:" + port: 200, "127.0.0.1": 200, "localhost": 200, "LocalHost:" + port: 200, "localhost.": 200, "admin.localhost:" + port: 200, "[::1]:" + port: 200, "10.0.0.7": 200,
		"ops.example": 200, "OPS.example:" + port: 200, "shop-7.internal.": 200, "shop-7.internal:1": 200,
	} {
		name, _, _ := strings.Cut(host, ":")
		if status, text := send(host); status != want || want == 421 && !strings.Contains(text, `write admin.Handler(limit, \"`+name+`\")`) {
			t.Errorf("%s: %d %s, want %d", host, status, text, want)
		}
	}
	// Such a page chooses all fields but those that browsers keep for themselves.
	for _, name := range []string{"X-Forwarded-Host", "X-Original-Host", "X-Host", "Forwarded", "X-HTTP-Host-Override"} {
		if status, text := send("evil.example", name, "localhost", "Forwarded", "host=localhost"); status != 421 {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	if status, text := send(strings.Repeat("x", 100_000)); status != 421 || len(text) > 1<<10 {
		t.Errorf("%d, %d bytes about a long name", status, len(text))
	}
}

// A flood of denials by keys as large as requests may have does not make a large page.
func TestAdminIsBounded(t *testing.T) {
	m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), LogKeys: true, Rules: []ratelimit.Rule{
		{Name: "r", Key: keyfunc.Header("User"), Limit: algorithms.PerHour(1), Ban: ratelimit.Ban{After: 1, For: time.Hour}}}})
	app := m.Handler(ok)
	o := operator{admin.Handler(m), t, ""}
	o.post("action=ban&for=24h&rule=r&value=by-hand")
	for i := range 600 {
		times(2, app, "GET /", "User", fmt.Sprint(i, strings.Repeat("<", 1<<10)))
		times(2, app, "GET /", "User", fmt.Sprint(i, strings.Repeat("<", 120)))
	}
	for _, o := range []operator{o, o.browser()} {
		if n := o.get("").Body.Len(); n > 128<<10 {
			t.Errorf("%d bytes", n)
		}
	}
	if bans := o.bans(); len(bans) != 50 || bans[0].Key != "by-hand" { // which no flood displaces
		t.Errorf("%d bans are shown, %+v", len(bans), bans)
	}
}

// Two middlewares may have rules of one name. Each handler is about its own, also
// where they share a count.
func TestAdminsOfTwoMiddlewares(t *testing.T) {
	limiter := new(algorithms.Memory)
	rule := func(limit algorithms.Limit) []ratelimit.Rule {
		return []ratelimit.Rule{{Name: "login", Key: keyfunc.IP, Limit: limit}}
	}
	var apps []http.Handler
	var operators []operator
	for _, limit := range []algorithms.Limit{algorithms.PerHour(5), algorithms.PerHour(9), {Rate: 7, Period: 24 * time.Hour}} {
		m := mustNew(t, ratelimit.Config{Limiter: limiter, Rules: rule(limit)})
		apps, operators = append(apps, m.Handler(ok)), append(operators, operator{admin.Handler(m), t, ""})
	}
	want := func(step string, want ...int64) {
		t.Helper()
		for i, o := range operators {
			if left := o.left(o.get("rule=login&value=192.0.2.1")); left != want[i] {
				t.Errorf("%s: %d has %d left, want %d", step, i, left, want[i])
			}
		}
	}
	times(2, apps[0], "GET /")
	times(1, apps[2], "GET /")
	want("counted", 3, 7, 6)
	times(9, apps[0], "GET /")
	if text := operators[1].get("").Body.String(); !strings.Contains(text, `"top_denied": []`) {
		t.Errorf("denied by another middleware: %s", text)
	}
	operators[2].post("action=reset&rule=login&value=192.0.2.1")
	want("the other count was reset", 0, 4, 7)
	operators[1].post("action=reset&rule=login&value=192.0.2.1")
	want("the shared count was reset", 5, 9, 7)
}

// Whatever is sent, the answer is one of a few, its page has no markup but its own,
// and only an order that is well formed reaches the limiter.
func FuzzAdmin(f *testing.F) {
	for _, form := range []string{
		"", "rule=r&value=a", "rule=r&value=" + url.QueryEscape(payload), "action=reset&rule=r&value=a", "action=ban&for=1m&rule=r&value=a", "action=unban&rule=both&value=a&value=192.0.2.1",
		"rule=r&id=0123456789abcdef", "rule=%", "rule=r&value=%00", "action=ban&for=1/1m&rule=r&value=a", "rule=r;value=a", "rule=all&action=peek",
	} {
		f.Add(form, false)
		f.Add(form, true)
	}
	f.Fuzz(func(t *testing.T, form string, post bool) {
		limiter := new(bans)
		m := mustNew(t, ratelimit.Config{Limiter: limiter, LogKeys: true, Rules: []ratelimit.Rule{
			bannable(ratelimit.Rule{Name: "r", Key: keyfunc.Header("User"), Limit: algorithms.PerHour(1)}), {Name: "all", Key: keyfunc.Everyone, Limit: algorithms.PerHour(1)},
			bannable(ratelimit.Rule{Name: "both", Key: keyfunc.Join(keyfunc.Header("User"), keyfunc.IP), Limit: algorithms.PerHour(1)}),
		}})
		r := httptest.NewRequest(http.MethodGet, "http://localhost/", nil)
		r.URL.RawQuery = form
		if post {
			r = httptest.NewRequest(http.MethodPost, "http://localhost/?action=ban&for=1h&rule=all", strings.NewReader(form))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		r.Header.Set("Accept", "text/html")
		w := httptest.NewRecorder()
		admin.Handler(m).ServeHTTP(w, r)
		switch w.Code {
		case 200, 303, 400, 404, 405, 413, 414:
		default:
			t.Errorf("status %d: %s", w.Code, w.Body)
		}
		wantNoMarkup(t, form, w.Body.String())
		sent, _ := url.ParseQuery(form)
		if len(limiter.asked) > 0 && (!post || w.Code != http.StatusSeeOther || !slices.Contains([]string{"ban", "unban", "reset", "used"}, sent.Get("action")) || sent.Get("rule") == "") {
			t.Errorf("%q is an order: %q", form, limiter.asked)
		}
	})
}

package middleware_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

var bothFields = headers.All(headers.XRateLimit, headers.IETFDraft11)

func inMemory(t testing.TB, rules ...ratelimit.Rule) *ratelimit.Middleware {
	t.Helper()
	return mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: rules, Headers: bothFields})
}

func TestLimitersInAChainShowTheTighter(t *testing.T) {
	wide, strict := perHour("wide", 100), perHour("strict", 2, "GET /strict")
	for name, order := range map[string][2]ratelimit.Rule{
		"strict inside":  {wide, strict},
		"strict outside": {strict, wide},
	} {
		t.Run(name, func(t *testing.T) {
			h := inMemory(t, order[0]).Handler(inMemory(t, order[1]).Handler(ok))
			for _, want := range []string{"1", "0"} {
				w := serve(h, "GET /strict")
				if got := w.Header()["X-Ratelimit-Remaining"]; w.Code != http.StatusNoContent || !slices.Equal(got, []string{want}) {
					t.Errorf("%d, remaining %q, want %s", w.Code, got, want)
				}
				for _, field := range []string{"Ratelimit", "Ratelimit-Policy"} {
					lines := w.Header()[field]
					if len(lines) != 1 || strings.Count(lines[0], `"wide"`) != 1 || strings.Count(lines[0], `"strict"`) != 1 {
						t.Errorf("%s: %q", field, lines)
					}
				}
			}
			w := serve(h, "GET /strict")
			if w.Code != http.StatusTooManyRequests || w.Header().Get("RateLimit-Policy") != `"strict";q=2;w=3600` || len(w.Header()["Retry-After"]) != 1 {
				t.Errorf("denied: %d %v", w.Code, w.Header())
			}
			w = serve(h, "GET /other")
			if got := w.Header().Get("RateLimit-Policy"); got != `"wide";q=100;w=3600` {
				t.Errorf("where only one applies: %s", got)
			}
		})
	}
}

func TestTheSameLimiterTwiceListsNothingTwice(t *testing.T) {
	m := mustNew(t, ratelimit.Config{
		Limiter: new(algorithms.Memory),
		Rules:   []ratelimit.Rule{perHour("r", 10)},
		Headers: bothFields,
		Logger:  slog.New(slog.DiscardHandler), // it hears of the mistake
	})
	w := serve(m.Handler(m.Handler(ok)), "GET /")
	if got := w.Header()["Ratelimit-Policy"]; !slices.Equal(got, []string{`"r";q=10;w=3600`}) {
		t.Errorf("%q", got)
	}
	if got := w.Header().Get("RateLimit"); !strings.HasPrefix(got, `"r";r=8;`) || strings.Contains(got, ",") {
		t.Errorf("%q", got)
	}
}

func TestAHandlerBehindHasTheLastWord(t *testing.T) {
	h := inMemory(t, perHour("r", 10)).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-RateLimit-Remaining", "1")
	}))
	if got := serve(h, "GET /").Header()["X-Ratelimit-Remaining"]; !slices.Equal(got, []string{"1"}) {
		t.Errorf("%q", got)
	}
}

func TestUndecidedRulesAreNotShown(t *testing.T) {
	rule := perHour("open", 1)
	rule.Fail = failmode.Open
	m := mustNew(t, ratelimit.Config{Limiter: new(failing), Rules: []ratelimit.Rule{rule}, Headers: bothFields, Logger: slog.New(slog.DiscardHandler)})
	if w := serve(m.Handler(ok), "GET /"); w.Code != http.StatusNoContent || len(w.Header()) != 0 {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

func TestJitterIsInTheRetryAfterOfDenials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mustNew(t, ratelimit.Config{
			Limiter: new(algorithms.Memory),
			Rules:   []ratelimit.Rule{{Name: "r", Key: keyfunc.IP, Limit: algorithms.Limit{Rate: 1, Period: time.Minute, Algorithm: algorithms.FixedWindow}}},
			Headers: headers.Jitter(time.Minute, headers.IETFDraft11),
		})
		h := m.Handler(ok)
		serve(h, "GET /")
		seen := map[string]bool{}
		for range 100 {
			w := serve(h, "GET /")
			retry := w.Header().Get("Retry-After")
			seconds, err := strconv.Atoi(retry)
			if err != nil || seconds < 60 || seconds > 120 || w.Header().Get("RateLimit") != `"r";r=0;t=`+retry || !strings.Contains(w.Body.String(), "in "+retry+" s") {
				t.Fatalf("%v\n%s", w.Header(), w.Body)
			}
			seen[retry] = true
		}
		if len(seen) < 5 {
			t.Errorf("100 denials, and only %v", seen)
		}
	})
}

func TestWhatIsRefusedTellsNothing(t *testing.T) {
	secret := errors.New("pq: connection to 10.0.0.7 refused")
	for name, c := range map[string]struct {
		key    keyfunc.Key
		status int
	}{
		"a failing key":  {keyfunc.Func(func(*http.Request) (string, error) { return "", secret }), http.StatusInternalServerError},
		"a required key": {keyfunc.Required(keyfunc.Header("User"), http.StatusUnauthorized), http.StatusUnauthorized},
	} {
		m := mustNew(t, ratelimit.Config{
			Limiter: new(algorithms.Memory),
			Rules:   []ratelimit.Rule{{Name: "hidden", Key: c.key, Limit: algorithms.PerHour(1)}},
			Logger:  slog.New(slog.DiscardHandler),
		})
		w := serve(m.Handler(ok), "GET /")
		if w.Code != c.status || w.Body.String() != http.StatusText(c.status)+"\n" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %v %q", name, w.Code, w.Header(), w.Body)
		}
		if text := fmt.Sprint(w.Header(), w.Body); strings.Contains(text, "10.0.0.7") || strings.Contains(text, "hidden") {
			t.Errorf("%s: the client reads %s", name, text)
		}
	}
}

func TestATurnThatNeverCameIsNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := queueOf(t, 10, 0)
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if _, err := m.Take(r); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		w := httptest.NewRecorder()
		m.Handler(ok).ServeHTTP(w, r.WithContext(ctx))
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%d %v", w.Code, w.Header())
		}
	})
}

// TestClientsThatWaitAreAdmitted is about whole responses: the rules are random,
// and a client that is denied waits as long as Retry-After says.
func TestClientsThatWaitAreAdmitted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var rules []ratelimit.Rule
		for i := range rapid.IntRange(1, 3).Draw(rt, "rules") {
			l := algorithms.Limit{
				Rate:   rapid.Int64Range(1, 5).Draw(rt, "rate"),
				Period: time.Duration(rapid.Int64Range(10_000, 9_000_000).Draw(rt, "period µs")) * time.Microsecond,
				Algorithm: rapid.SampledFrom([]algorithms.Algorithm{
					algorithms.FixedWindow, algorithms.SlidingWindow, algorithms.SlidingLog, algorithms.TokenBucket, algorithms.GCRA,
				}).Draw(rt, "algorithm"),
			}
			rules = append(rules, ratelimit.Rule{Name: fmt.Sprint("r", i), Key: keyfunc.IP, Limit: l})
		}
		pauses := rapid.SliceOfN(rapid.Int64Range(0, 300_000), 1, 20).Draw(rt, "pauses µs")
		var wrong string
		synctest.Test(t, func(t *testing.T) { wrong = waitAsTold(inMemory(t, rules...).Handler(ok), pauses) })
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

func waitAsTold(h http.Handler, pauses []int64) (wrong string) {
	for _, pause := range pauses {
		time.Sleep(time.Duration(pause) * time.Microsecond)
		w := serve(h, "GET /")
		if w.Code == http.StatusNoContent {
			continue
		}
		seconds, err := strconv.Atoi(w.Header().Get("Retry-After"))
		if err != nil || seconds < 1 {
			return fmt.Sprintf("%d %v", w.Code, w.Header())
		}
		time.Sleep(time.Duration(seconds) * time.Second)
		if w := serve(h, "GET /"); w.Code != http.StatusNoContent {
			return fmt.Sprintf("after %d s: %d %v", seconds, w.Code, w.Header())
		}
	}
	return ""
}

// served is a real server behind the middleware, and a client of it.
func served(t *testing.T, http2 bool, next http.HandlerFunc) (string, *http.Client) {
	t.Helper()
	srv := httptest.NewUnstartedServer(inMemory(t, perHour("r", 100)).Handler(next))
	if srv.EnableHTTP2 = http2; http2 {
		srv.StartTLS()
	} else {
		srv.Start()
	}
	t.Cleanup(srv.Close)
	return srv.URL, srv.Client()
}

func TestStreamsReachTheClientPieceByPiece(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			read := make(chan bool)
			url, client := served(t, http2, func(w http.ResponseWriter, r *http.Request) {
				if _, pusher := w.(http.Pusher); pusher != http2 || http2 != (r.ProtoMajor == 2) {
					t.Errorf("%s: a Pusher: %v", r.Proto, pusher)
				}
				fmt.Fprintln(w, "first")
				w.(http.Flusher).Flush()
				<-read // the response goes on only when the client has the first line
				fmt.Fprintln(w, "second")
			})
			resp, err := client.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			lines := bufio.NewReader(resp.Body)
			first, err := lines.ReadString('\n')
			close(read)
			rest, restErr := io.ReadAll(lines)
			if err != nil || restErr != nil || first != "first\n" || string(rest) != "second\n" || resp.Header.Get("X-RateLimit-Remaining") != "99" {
				t.Errorf("%q, %v, %q, %v, %v", first, err, rest, restErr, resp.Header)
			}
		})
	}
}

func TestConnectionsCanBeHijacked(t *testing.T) {
	url, client := served(t, false, func(w http.ResponseWriter, _ *http.Request) {
		conn, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(buffered, "HTTP/1.1 299 Mine\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
		buffered.Flush()
	})
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.Status != "299 Mine" || string(body) != "hi" {
		t.Errorf("%s %q %v", resp.Status, body, err)
	}
}

func TestResponseControllersReachTheConnection(t *testing.T) {
	url, client := served(t, false, func(w http.ResponseWriter, _ *http.Request) {
		c := http.NewResponseController(w)
		if err := errors.Join(c.EnableFullDuplex(), c.SetReadDeadline(time.Now().Add(time.Minute)), c.Flush()); err != nil {
			t.Error(err)
		}
		if err := c.SetWriteDeadline(time.Now().Add(-time.Second)); err != nil {
			t.Error(err)
		}
		if _, err := io.Copy(w, strings.NewReader(strings.Repeat("x", 1<<20))); err == nil {
			t.Error("wrote after the deadline")
		}
	})
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err == nil && len(body) == 1<<20 {
		t.Error("the whole body came through a connection whose deadline was over")
	}
}

func TestTheResponseWriterIsTheServersOwn(t *testing.T) {
	w := httptest.NewRecorder()
	inMemory(t, perHour("r", 1)).Handler(http.HandlerFunc(func(got http.ResponseWriter, _ *http.Request) {
		if got != w {
			t.Errorf("got a %T", got)
		}
	})).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
}

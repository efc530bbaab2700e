package middleware_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

const (
	jsonType = "application/json"
	formType = "application/x-www-form-urlencoded"
)

func post(target, contentType, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, target, strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	return r
}

// All rules look at one body, which the handler reads as if nobody had: among the
// first requests, which are watched, and later.
func TestBodiesAreReadByAllRulesAndTheHandler(t *testing.T) {
	const body = `{"email":"alice","tenant":"acme","text":"more than 64 bytes in all"}`
	long := body + strings.Repeat(" ", 1<<10)
	m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{
		{Name: "short", Key: keyfunc.BodyJSON("email", 64), Limit: algorithms.PerHour(1e6)},
		{Name: "account", Key: keyfunc.BodyJSON("email", 128), Limit: algorithms.PerHour(1e6)},
		{Name: "both", Key: keyfunc.Join(keyfunc.BodyJSON("tenant", 1<<20), keyfunc.BodyJSON("email", 1<<20)), Limit: algorithms.PerHour(1e6)},
	}})
	sent := body
	h := m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		d, _ := ratelimit.FromContext(r.Context())
		account := "alice"
		if sent == long {
			account = "" // does not fit
		}
		for i, want := range []string{"", account, "4:acme,5:alice"} {
			if got := d.Results[i].Check.Key; got != want {
				t.Errorf("%s: key %q, want %q", d.Results[i].Check.Rule, got, want)
			}
		}
		if got, err := io.ReadAll(r.Body); string(got) != sent || err != nil {
			t.Errorf("the handler read %q, %v", got, err)
		}
	}))
	for i := range 1100 {
		if sent = body; i%2 == 1 {
			sent = long
		}
		r := post("/", jsonType, sent)
		if i%3 == 0 {
			r.Body, r.ContentLength = io.NopCloser(iotest.HalfReader(strings.NewReader(sent))), -1
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
}

// A body that no rule asks for is the handler's alone.
func TestBodiesAreLeftAloneWhereNoRuleReadsThem(t *testing.T) {
	m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{
		perHour("per-ip", 10), {Name: "account", Match: []string{"/login"}, Key: keyfunc.BodyJSON("email", 64), Limit: algorithms.PerHour(5)},
	}})
	r := post("/upload", jsonType, `{"email":"alice"}`)
	before := r.Body
	m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Body != before {
			t.Errorf("the body is a %T", r.Body)
		}
	})).ServeHTTP(httptest.NewRecorder(), r)
}

// Run with -race: goroutines may take one request, such as that of a connection
// whose messages they handle.
func TestTakeOfOneRequestInManyGoroutines(t *testing.T) {
	for name, key := range map[string]keyfunc.Key{
		"address": keyfunc.IP,
		"body":    keyfunc.BodyJSON("email", 64),
		"a copy of the request, then the body": keyfunc.Join(keyfunc.Func(func(r *http.Request) (string, error) {
			return r.WithContext(r.Context()).Method, nil
		}), keyfunc.OneOf(keyfunc.BodyJSON("email", 64), "alice")),
	} {
		t.Run(name, func(t *testing.T) {
			const requests = 1200 // more than are watched
			m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{
				{Name: "message", Key: key, Limit: algorithms.PerHour(500)}, perHour("per-ip", 500), // which denies without the body
			}})
			take := func(r *http.Request) {
				var all sync.WaitGroup
				var mu sync.Mutex
				allowed := 0
				for range 4 {
					all.Go(func() {
						for range requests / 4 {
							d, err := m.Take(r)
							mu.Lock()
							if err != nil {
								t.Error(err)
							}
							if d.Allowed {
								allowed++
							}
							mu.Unlock()
						}
					})
				}
				all.Wait()
				if allowed < 499 || allowed > 500 {
					t.Errorf("%d allowed", allowed)
				}
				if body, err := io.ReadAll(r.Body); string(body) != `{"email":"alice"}` || err != nil {
					t.Errorf("then the body is %q, %v", body, err)
				}
			}
			h := m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { take(r) }))
			h.ServeHTTP(httptest.NewRecorder(), post("/", jsonType, `{"email":"alice"}`))
			setRules(t, m, ratelimit.Rule{Name: "again", Key: key, Limit: algorithms.PerHour(500)})
			take(post("/", jsonType, `{"email":"alice"}`)) // no Handler has seen it
		})
	}
}

// A function that reads the form must not, but what comes of it is the same for all
// requests: the handler finds the form that was parsed.
func TestKeysGetTheRequestOfTheHandler(t *testing.T) {
	m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{
		{Name: "user", Key: keyfunc.Func(func(r *http.Request) (string, error) { return r.FormValue("user"), nil }), Limit: algorithms.PerHour(1e6)},
	}})
	h := m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if got := r.FormValue("user"); got != "alice" {
			t.Fatalf("the handler reads %q", got)
		}
	}))
	for range 1500 {
		h.ServeHTTP(httptest.NewRecorder(), post("/", formType, "user=alice"))
	}
}

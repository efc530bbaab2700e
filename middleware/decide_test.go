package middleware_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// A bodyKey is a key that reads the body, and counts how often it does.
type bodyKey struct {
	keyfunc.Described
	reads *atomic.Int64
}

func newBodyKey(reads *atomic.Int64) bodyKey {
	return bodyKey{keyfunc.Describe(keyfunc.BodyForm("account", 1<<10)), reads}
}

func (k bodyKey) Resolve(r *http.Request) (string, error) {
	k.reads.Add(1)
	return k.Described.Resolve(r)
}

// byAccount is a rule whose key reads the body, before one by address.
func byAccount(reads *atomic.Int64, perAccount, perIP algorithms.Limit) []ratelimit.Rule {
	return []ratelimit.Rule{
		{Name: "account", Key: newBodyKey(reads), Limit: perAccount},
		{Name: "per-ip", Key: keyfunc.IP, Limit: perIP},
	}
}

func login(h http.Handler, account string) *httptest.ResponseRecorder {
	w := do(h, post("/login", formType, "account="+account))
	return w
}

func TestKeysThatReadTheBodyAreLast(t *testing.T) {
	var order []string
	note := func(name string) keyfunc.Key {
		return keyfunc.Func(func(*http.Request) (string, error) { order = append(order, name); return name, nil })
	}
	m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: []ratelimit.Rule{
		{Name: "body", Key: keyfunc.Join(note("body"), keyfunc.OneOf(keyfunc.BodyForm("account", 1<<10), "alice")), Limit: algorithms.PerHour(9)},
		{Name: "first", Key: note("first"), Limit: algorithms.PerHour(9)},
		{Name: "elsewhere", Match: []string{"/elsewhere"}, Key: note("elsewhere"), Limit: algorithms.PerHour(9)},
		{Name: "second", Key: note("second"), Limit: algorithms.PerHour(9)},
	}})
	d, err := m.Take(post("/login", formType, "account=alice"))
	if err != nil || len(d.Results) != 3 || strings.Join(order, " ") != "first second body" {
		t.Errorf("%q, %+v, %v", order, d, err)
	}
}

// Who is over a limit that needs no body is denied without reading one, by one
// question to the limiter.
func TestTheBodyOfWhoIsOverIsNotRead(t *testing.T) {
	counting := &spy{Limiter: new(store)}
	for name, c := range map[string]struct {
		limiter algorithms.Limiter
		reads   int64 // of 20 requests, 10 of which are admitted
	}{
		"Memory":                      {new(algorithms.Memory), 10},
		"a Guard":                     {guard(t, counting, 1), 11}, // one to be told
		"a decorated Guard":           {audit{guard(t, new(store), 1)}, 11},
		"a limiter that says nothing": {struct{ algorithms.Limiter }{new(store)}, 20},
	} {
		t.Run(name, func(t *testing.T) {
			var reads atomic.Int64
			h := mustNew(t, ratelimit.Config{Limiter: c.limiter, Rules: byAccount(&reads, algorithms.PerHour(100), algorithms.PerHour(10))}).Handler(ok)
			for i := range 20 {
				w := login(h, fmt.Sprint("account-", i))
				if want := map[bool]int{true: http.StatusNoContent, false: http.StatusTooManyRequests}[i < 10]; w.Code != want {
					t.Errorf("request %d: %d", i, w.Code)
				}
			}
			if n := reads.Load(); n != c.reads {
				t.Errorf("%d bodies were read, want %d", n, c.reads)
			}
		})
	}
	if n := counting.takes.Load(); n != 11 {
		t.Errorf("the store was asked %d times for 20 requests, want those that it admitted and one", n)
	}
}

// What is known of a client may be out of date. If the limiter admits after all,
// the request is decided by all rules, and charged all or nothing.
func TestWhoIsNotOverAnyMoreIsDecidedByAllRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int64
		s := new(store)
		perIP := algorithms.Limit{Rate: 2, Period: time.Hour, Algorithm: algorithms.FixedWindow}
		m := mustNew(t, ratelimit.Config{Limiter: guard(t, s, 1), Rules: byAccount(&reads, algorithms.PerHour(3), perIP)})
		h := m.Handler(ok)
		statuses := func(accounts ...string) (codes []int) {
			for _, account := range accounts {
				codes = append(codes, login(h, account).Code)
			}
			return codes
		}
		left := func(rule, key string, limit algorithms.Limit) int64 {
			d, err := s.Memory.Peek(t.Context(), algorithms.Check{Rule: rule, Key: key, Limit: limit})
			if err != nil {
				t.Fatal(err)
			}
			return d.Results[0].Remaining
		}
		if got := statuses("alice", "alice", "alice"); !slices.Equal(got, []int{204, 204, 429}) {
			t.Fatalf("%v", got)
		}
		// Another process, or an operator, gives the address room. The Guard asks within a second.
		if err := s.Memory.Reset(t.Context(), algorithms.Check{Rule: "per-ip", Key: "192.0.2.1", Limit: perIP}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := statuses("alice"); !slices.Equal(got, []int{204}) {
			t.Errorf("%v", got)
		}
		if a, i := left("account", "alice", algorithms.PerHour(3)), left("per-ip", "192.0.2.1", perIP); a != 0 || i != 1 {
			t.Errorf("left %d of account, %d of per-ip, want 0 and 1", a, i)
		}

		// The same, and now the body's rule denies: the address is charged nothing.
		if got := statuses("bob", "bob"); !slices.Equal(got, []int{204, 429}) {
			t.Fatalf("%v", got)
		}
		if err := s.Memory.Reset(t.Context(), algorithms.Check{Rule: "per-ip", Key: "192.0.2.1", Limit: perIP}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w := login(h, "alice")
		if w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), `["account"]`) {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if i := left("per-ip", "192.0.2.1", perIP); i != 2 {
			t.Errorf("left %d of per-ip, want 2", i)
		}
	})
}

// A refusal comes after what the address is charged, and its body is not read
// once the address is over.
func TestRefusedBodiesAreLimited(t *testing.T) {
	var reads atomic.Int64
	rules := byAccount(&reads, algorithms.PerHour(100), algorithms.PerHour(5))
	rules[0].Key = keyfunc.Required(rules[0].Key, http.StatusBadRequest)
	h := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: rules}).Handler(ok)
	var codes []int
	for range 7 {
		codes = append(codes, serve(h, "POST /login").Code) // no account
	}
	if !slices.Equal(codes, []int{400, 400, 400, 400, 400, 429, 429}) || reads.Load() != 5 {
		t.Errorf("%v, %d bodies read", codes, reads.Load())
	}
}

// askedKey counts how often it is asked.
type askedKey struct {
	asked int
	err   error
}

func (k *askedKey) Resolve(*http.Request) (string, error) {
	k.asked++
	return "client", k.err
}

// A key that several rules have is asked once for each request, whatever it answers.
func TestASharedKeyIsAskedOnce(t *testing.T) {
	for _, err := range []error{nil, keyfunc.ErrNoKey, keyfunc.ErrSkip, errors.New("broken")} {
		twice, thrice, other := &askedKey{err: err}, &askedKey{err: err}, &askedKey{}
		funcs := 0
		byFunc := keyfunc.Func(func(*http.Request) (string, error) {
			funcs++
			return "client", nil
		})
		var rules []ratelimit.Rule
		for i, key := range []keyfunc.Key{twice, thrice, other, byFunc, thrice, twice, byFunc, thrice} {
			rule := perHour(fmt.Sprint("rule-", i), 10)
			rule.Key = key
			rules = append(rules, rule)
		}
		rules[0].Match = []string{"/elsewhere"} // it does not matter which rule asks first
		m := inMemory(t, rules...)
		for range 2 {
			_, takeErr := m.Take(httptest.NewRequest(http.MethodGet, "/", nil))
			if refused := err != nil && !errors.Is(err, keyfunc.ErrNoKey) && !errors.Is(err, keyfunc.ErrSkip); (takeErr != nil) != refused {
				t.Errorf("%v: Take returns %v", err, takeErr)
			}
		}
		if twice.asked != 2 || thrice.asked != 2 || other.asked != 2 || funcs != 4 {
			t.Errorf("%v: after two requests, asked %d, %d and %d times, and the function %d times", err, twice.asked, thrice.asked, other.asked, funcs)
		}
	}
}

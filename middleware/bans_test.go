package middleware_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// banning is a rule that bans at the third denial.
func banning(rate int64) ratelimit.Rule {
	r := perHour("login", rate)
	r.Ban = algorithms.Ban{After: 3, Within: time.Hour, For: 24 * time.Hour}
	return r
}

// answered are handlers that answer with a status, after a while.
func answered(status int, after time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(after)
		w.WriteHeader(status)
	})
}

// together sends so many requests at once, and returns how many were denied.
func together(n int, h http.Handler) (denied int) {
	var all sync.WaitGroup
	var mu sync.Mutex
	for range n {
		all.Go(func() {
			if serve(h, "POST /").Code == http.StatusTooManyRequests {
				mu.Lock()
				denied++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return denied
}

// isBanned asks the limiter, and changes nothing.
func isBanned(t testing.TB, m *ratelimit.Middleware) bool {
	t.Helper()
	d, err := m.Peek(request("POST /"))
	if err != nil {
		t.Fatal(err)
	}
	return d.Results[0].BannedFor > 0
}

func TestABanIsSaidLoggedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		registry := prometheus.NewRegistry()
		limiter := new(algorithms.Memory)
		m := measured(t, registry, ratelimit.Config{
			Limiter: limiter, Rules: []ratelimit.Rule{banning(2), perHour("plain", 100)},
			Logger: slog.New(slog.NewTextHandler(&log, nil)), DenialLogRate: 100,
		})
		h := m.Handler(ok)
		wantBans(t, registry, map[string]float64{"bans_total login": 0, "banned_total login": 0})
		times(4, h, "POST /")
		if strings.Contains(log.String(), "banned") {
			t.Errorf("not yet: %s", &log)
		}
		w := serve(h, "POST /")
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "86400" || !strings.Contains(w.Body.String(), headers.AbnormalUsageDetected) ||
			w.Header().Get("X-RateLimit-Remaining") != "0" {
			t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
		}
		if !strings.Contains(log.String(), "retry_after=24h0m0s") || !strings.Contains(log.String(), "banned=true") {
			t.Error(&log)
		}
		times(6, h, "POST /")
		wantBans(t, registry, map[string]float64{"bans_total login": 1, "banned_total login": 7})
		wantDecisions(t, registry, map[string]float64{
			"sliding_window allowed login memory": 2, "sliding_window denied login memory": 9, "sliding_window allowed plain memory": 11,
		})
		checks, err := m.Checks("plain", "192.0.2.1")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(24 * time.Hour)
		if err := limiter.Ban(t.Context(), time.Hour, checks...); err != nil {
			t.Fatal(err)
		}
		times(2, h, "POST /")
		wantBans(t, registry, map[string]float64{"bans_total login": 1, "banned_total login": 7, "bans_total plain": 0, "banned_total plain": 2})
	})
}

// Who keeps a request waiting that is charged is not free of the ban meanwhile.
func TestASlowRequestExcusesNoDenialsForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := banning(2)
		r.ChargeOn = []int{http.StatusUnauthorized}
		m := inMemory(t, r)
		failed := m.Handler(answered(http.StatusUnauthorized, 0))
		go serve(m.Handler(answered(http.StatusUnauthorized, 30*time.Minute)), "POST /")
		synctest.Wait()
		times(10, failed, "POST /")
		if isBanned(t, m) {
			t.Error("banned while a charge may be given back")
		}
		time.Sleep(time.Minute)
		times(10, failed, "POST /")
		if !isBanned(t, m) {
			t.Error("not banned")
		}
		time.Sleep(30 * time.Minute)
	})
}

func wantBans(t testing.TB, r prometheus.Gatherer, want map[string]float64) {
	t.Helper()
	got := gather(t, r)
	maps.DeleteFunc(got, func(name string, _ float64) bool { return !strings.HasPrefix(name, "ban") })
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A hidden rule's ban is told as no more than a denial.
func TestABanByAHiddenRule(t *testing.T) {
	r := banning(1)
	r.Hidden = true
	h := inMemory(t, r).Handler(ok)
	times(5, h, "POST /")
	w := serve(h, "POST /")
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "86400" || !strings.Contains(w.Body.String(), headers.QuotaExceeded) || strings.Contains(w.Body.String(), "login") {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

// A client in shadow is neither banned nor counted towards a ban; and what others have begun stays.
func TestBansOfRulesThatAreNotEnforced(t *testing.T) {
	enforced, shadow, plain := banning(1), banning(1), banning(1)
	shadow.Shadow, plain.Ban = true, algorithms.Ban{}
	m := inMemory(t, enforced)
	h := m.Handler(ok)
	set := func(r ratelimit.Rule) {
		t.Helper()
		if err := m.SetRules([]ratelimit.Rule{r}); err != nil {
			t.Fatal(err)
		}
	}
	times(3, h, "POST /") // two denials
	set(shadow)
	times(5, h, "POST /")
	set(plain)
	times(5, h, "POST /")
	set(enforced)
	if isBanned(t, m) {
		t.Error("denials counted that nobody enforced, or of a rule without a ban")
	}
	times(1, h, "POST /")
	if !isBanned(t, m) {
		t.Error("the third denial has not banned")
	}
	if set(shadow); serve(h, "POST /").Code != http.StatusNoContent {
		t.Error("banned by a rule in shadow")
	}
	set(plain) // without its Ban for a time
	for range 2 {
		enforced.Limit.Rate += 1000
		if set(enforced); !isBanned(t, m) || serve(h, "POST /").Code != http.StatusTooManyRequests {
			t.Error("SetRules has lifted the ban")
		}
	}
	enforced.Limit = algorithms.Limit{Rate: 100, Period: time.Minute, Algorithm: algorithms.TokenBucket}
	if set(enforced); !isBanned(t, m) {
		t.Error("another algorithm has lifted the ban")
	}
}

// Denials that come of charges under way are no reason to ban, however the
// requests fall: exactly none is banned, in real time, many times over.
func TestSuccessesAtOnceAreNotBanned(t *testing.T) {
	for round := range 200 {
		r := failures(5)
		r.Ban = algorithms.Ban{After: 1, For: time.Hour}
		m := inMemory(t, r)
		h := m.Handler(answered(http.StatusNoContent, time.Duration(round%3)*time.Microsecond))
		for range 3 {
			together(15, h)
		}
		if isBanned(t, m) {
			t.Fatalf("round %d: banned", round)
		}
		if denied := together(5, h); denied > 0 {
			t.Fatalf("round %d: %d of five denied", round, denied)
		}
	}
}

// Sending many at once is no way round a ban, whether some of them succeed or not.
func TestFailuresAtOnceAreBanned(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusNoContent} {
		synctest.Test(t, func(t *testing.T) {
			r := failures(5)
			r.Ban = algorithms.Ban{After: 10, Within: time.Minute, For: time.Hour}
			m := inMemory(t, r)
			h := m.Handler(answered(http.StatusUnauthorized, 100*time.Millisecond))
			if denied := together(100, h); denied != 95 || isBanned(t, m) {
				t.Errorf("%d of 100 denied while five were under way; banned: %v", denied, isBanned(t, m))
			}
			h = m.Handler(answered(status, 100*time.Millisecond))
			if denied := together(100, h); denied != 100 || !isBanned(t, m) {
				t.Errorf("%d of 100 denied after that; banned: %v", denied, isBanned(t, m))
			}
		})
	}
}

// However a request ends, it is no longer under way.
func TestNothingStaysUnderWay(t *testing.T) {
	for name, end := range map[string]http.HandlerFunc{
		"401":          func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		"nothing":      func(http.ResponseWriter, *http.Request) {},
		"a panic":      func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"101":          func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusSwitchingProtocols) },
		"settled to 1": func(_ http.ResponseWriter, r *http.Request) { _ = ratelimit.Settle(r.Context(), "login", 1) },
	} {
		r := failures(2)
		r.Ban = algorithms.Ban{After: 3, For: time.Hour}
		m := inMemory(t, r)
		h := m.Handler(end)
		for range 5 {
			func() {
				defer func() { _ = recover() }()
				serve(h, "POST /")
			}()
		}
		if !isBanned(t, m) {
			t.Errorf("%s: the third denial has not banned", name)
		}
	}
	r := failures(2)
	r.Ban = algorithms.Ban{After: 3, For: time.Hour}
	m := inMemory(t, r)
	for range 5 { // what is no HTTP request is settled at once
		if _, err := m.Take(request("POST /")); err != nil {
			t.Fatal(err)
		}
	}
	if !isBanned(t, m) {
		t.Error("Take: the third denial has not banned")
	}
}

// While the first status is not written, the request is under way: a handler that
// goes on after it is not.
func TestUnderWayUntilTheStatus(t *testing.T) {
	r := failures(1)
	r.Ban = algorithms.Ban{After: 1, For: time.Hour}
	m := inMemory(t, r)
	before, after := make(chan struct{}), make(chan struct{})
	h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		before <- struct{}{}
		<-before
		w.WriteHeader(http.StatusUnauthorized)
		after <- struct{}{}
		<-after
	}))
	var done sync.WaitGroup
	done.Go(func() { serve(h, "POST /") })
	<-before
	if serve(h, "POST /").Code != http.StatusTooManyRequests || isBanned(t, m) {
		t.Error("banned while the charge could be given back")
	}
	before <- struct{}{}
	<-after
	if serve(h, "POST /").Code != http.StatusTooManyRequests || !isBanned(t, m) {
		t.Error("not banned once it was not")
	}
	after <- struct{}{}
	done.Wait()
}

// A limiter that takes its time keeps nobody waiting for longer than a decision may
// take, and whoever has waited in vain is spared.
func TestNobodyWaitsLongForHisTurnToBeDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowly{Memory: new(algorithms.Memory), takes: 10 * time.Second}
		r := failures(1)
		r.Ban = algorithms.Ban{After: 2, For: time.Hour}
		m := mustNew(t, ratelimit.Config{Limiter: slow, Rules: []ratelimit.Rule{r}})
		begin := time.Now()
		together(10, m.Handler(answered(http.StatusUnauthorized, 0)))
		if took := time.Since(begin); took > 10*time.Second+50*time.Millisecond {
			t.Errorf("took %s", took)
		}
		if isBanned(t, m) {
			t.Error("banned by denials of who came together")
		}
	})
}

// slowly is a Memory that needs its time.
type slowly struct {
	*algorithms.Memory
	takes time.Duration
}

func (s *slowly) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	time.Sleep(s.takes)
	return s.Memory.Take(ctx, checks...)
}

// Two rules of a request never wait for each other.
func TestTwoRulesThatSpare(t *testing.T) {
	byUser, byIP := failures(1000), failures(1000)
	byUser.Name, byUser.Key = "a-user", keyfunc.Header("User")
	byIP.Name = "b-ip"
	for _, r := range []*ratelimit.Rule{&byUser, &byIP} {
		r.Ban = algorithms.Ban{After: 1, For: time.Hour}
	}
	m := inMemory(t, byIP, byUser)
	other := inMemory(t, byUser, byIP)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for range 200 {
				for _, m := range []*ratelimit.Middleware{m, other} {
					serve(m.Handler(ok), "POST /", "User", fmt.Sprint(i%3))
				}
			}
		})
	}
	all.Wait()
}

// A client that is banned has its body not read, as one that is over.
func TestBodiesOfTheBannedAreNotRead(t *testing.T) {
	guard := &failmode.Guard{Limiter: new(algorithms.Memory), Instances: 1}
	t.Cleanup(func() { _ = guard.Close() })
	byIP := banning(100)
	account := ratelimit.Rule{Name: "account", Key: keyfunc.BodyJSON("email", 1<<10), Limit: algorithms.PerHour(1000)}
	m := mustNew(t, ratelimit.Config{Limiter: guard, Rules: []ratelimit.Rule{byIP, account}})
	checks, err := m.Checks("login", "192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	if err := guard.Ban(t.Context(), time.Hour, checks...); err != nil {
		t.Fatal(err)
	}
	body := &countingBody{Reader: strings.NewReader(`{"email":"a@example.org"}`)}
	r := request("POST /")
	r.Body = body
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	if m.Handler(ok).ServeHTTP(w, r); w.Code != http.StatusTooManyRequests || body.reads > 0 {
		t.Errorf("%d, and %d reads", w.Code, body.reads)
	}
}

type countingBody struct {
	io.Reader
	reads int
}

func (b *countingBody) Read(p []byte) (int, error) {
	b.reads++
	return b.Reader.Read(p)
}

func (*countingBody) Close() error { return nil }

package rulefile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/metrics"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

// rate is a document whose rule has a rate.
func rate(rate int) string {
	return fmt.Sprintf("version: 1\nrules:\n  - name: r\n    key: ip\n    limit: %d/1h\n", rate)
}

// A watched is a Middleware, and what happens to it.
type watched struct {
	*ratelimit.Middleware
	t        *testing.T
	log      lockedBuffer
	registry *prometheus.Registry
}

// newWatched returns a Middleware with the rule of rate(1).
func newWatched(t *testing.T, limiter algorithms.Limiter) *watched {
	w := &watched{t: t, registry: prometheus.NewRegistry()}
	var err error
	w.Middleware, err = ratelimit.New(ratelimit.Config{
		Limiter: limiter, Logger: slog.New(slog.NewTextHandler(&w.log, nil)),
		Rules: []ratelimit.Rule{{Name: "r", Key: keyfunc.IP, Limit: algorithms.PerHour(1)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := metrics.Register(w.registry, w.Middleware); err != nil {
		t.Fatal(err)
	}
	return w
}

// watch begins to watch a source, until the test ends or the caller ends it.
func (w *watched) watch(source rulefile.Source) (end func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.loader(source).Watch(ctx, w.Middleware)
	}()
	end = func() { cancel(); <-done }
	w.t.Cleanup(end)
	return end
}

// watchFile watches a file that says so, and waits until that is in force.
func watchFile(t *testing.T, text string) (w *watched, path string) {
	path = filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, text)
	w = newWatched(t, new(algorithms.Memory))
	w.watch(rulefile.File(path))
	soon()
	return w, path
}

func (w *watched) loader(source rulefile.Source) *rulefile.Loader {
	return &rulefile.Loader{Source: source, Logger: slog.New(slog.NewTextHandler(&w.log, nil))}
}

// soon is longer than a change takes to come into force.
func soon() {
	time.Sleep(2500 * time.Millisecond) // of a bubble
	synctest.Wait()
}

// long is many times longer.
func long() {
	time.Sleep(50 * time.Second) // of a bubble
	synctest.Wait()
}

// soon is want, when a change has come into force; long, when nothing has come of it for long.
func (w *watched) soon(step string, rate int64, replaced, failed int) {
	w.t.Helper()
	soon()
	w.want(step, rate, replaced, failed)
}

func (w *watched) long(step string, rate int64, replaced, failed int) {
	w.t.Helper()
	long()
	w.want(step, rate, replaced, failed)
}

// failing checks whether the last document that was read is in force.
func (w *watched) failing(want float64) {
	w.t.Helper()
	if got := w.metric("ratelimit_rules_failing"); got != want {
		w.t.Errorf("failing: %v, want %v", got, want)
	}
}

// want checks the rate in force, and how often rules were replaced and failed.
func (w *watched) want(step string, rate int64, replaced, failed int) {
	w.t.Helper()
	if got := w.Rules()[0].Limit.Rate; got != rate {
		w.t.Errorf("%s: rate %d is in force, want %d", step, got, rate)
	}
	log := w.log.String()
	if got := strings.Count(log, `msg="ratelimit: rules replaced"`) + strings.Count(log, `msg="ratelimit: rules set again"`); got != replaced {
		w.t.Errorf("%s: replaced %d times, want %d\n%s", step, got, replaced, log)
	}
	if got := strings.Count(log, `msg="ratelimit: rules not replaced"`); got != failed {
		w.t.Errorf("%s: %d failures in the log, want %d\n%s", step, got, failed, log)
	}
	if got := w.metric("ratelimit_rules_errors_total"); got != float64(failed) {
		w.t.Errorf("%s: %v failures counted, want %d", step, got, failed)
	}
}

func (w *watched) metric(name string) float64 {
	w.t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetCounter().GetValue() + family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	w.t.Fatalf("no metric %s", name)
	return 0
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// rename replaces a file at once.
func rename(t *testing.T, path, text string) {
	t.Helper()
	write(t, path+".new", text)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func TestWatchSetsWhatTheFileSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, path := watchFile(t, rate(2))
		w.want("at first", 2, 1, 0)
		w.long("unchanged", 2, 1, 0)

		write(t, path, rate(3))
		w.soon("written in place", 3, 2, 0)
		rename(t, path, rate(4))
		w.soon("renamed", 4, 3, 0)
		rename(t, path, rate(4)+"# a comment\n")
		w.soon("a comment", 4, 4, 0)
	})
}

func TestWatchKeepsTheRulesOfABadFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, path := watchFile(t, rate(2))
		bad := strings.ReplaceAll(rate(9), "/1h", " per hour")
		write(t, path, bad)
		w.long("bad for long", 2, 1, 1)
		w.failing(1)
		if !strings.Contains(w.log.String(), path+`:5:12: rules[0].limit: limit \"9 per hour\": no period`) {
			t.Error(w.log.String())
		}
		write(t, path, strings.ReplaceAll(bad, "9", "8"))
		w.soon("bad in another way", 2, 1, 2)
		write(t, path, rate(3))
		w.soon("mended", 3, 2, 2)
		w.failing(0)
		for range 3 { // it flips
			write(t, path, bad)
			soon()
			write(t, path, rate(3))
			soon()
		}
		w.want("flips", 3, 5, 5)
	})
}

// A half-written file is good YAML as often as not, with half of the rules.
func TestWatchWaitsForTheSecondHalf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, path := watchFile(t, rate(2))
		whole := rate(3) + "  - name: login\n    key: ip\n    limit: 5/1m\n"
		for begin := range 25 { // wherever in its round the loader is
			write(t, path, rate(2))
			soon()
			time.Sleep(time.Duration(begin)*100*time.Millisecond + 7*time.Millisecond) // never as it reads
			for end := 0; end <= len(whole); end += 4 {
				write(t, path, whole[:end])
				if got := w.Rules(); got[0].Limit.Rate == 3 && len(got) == 1 {
					t.Fatalf("after %d bytes only %q is limited", end, got[0].Name)
				}
				time.Sleep(20 * time.Millisecond)
			}
			write(t, path, whole)
			soon()
			if got := len(w.Rules()); got != 2 {
				t.Fatalf("%d rules", got)
			}
		}
		if got := w.metric("ratelimit_rules_errors_total"); got != 0 {
			t.Errorf("%v errors, for files that were being written", got)
		}
	})
}

func TestWatchOfAFileThatGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "rules.yaml")
		w := newWatched(t, new(algorithms.Memory))
		w.watch(rulefile.File(path))
		w.long("not there yet", 1, 0, 1)
		write(t, path, rate(2))
		w.soon("there", 2, 1, 1)

		// Some editors remove a file before they write it again.
		remove(t, path)
		time.Sleep(100 * time.Millisecond)
		write(t, path, rate(3))
		w.soon("replaced slowly", 3, 2, 1)

		remove(t, path)
		w.long("removed", 3, 2, 2)
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		w.long("a folder", 3, 2, 3)
		remove(t, path)
		write(t, path, rate(3))
		w.soon("there again, as it was", 3, 3, 3)
		w.failing(0)
	})
}

// A fickle source says what it is told to.
type fickle struct {
	text  atomic.Pointer[string]
	err   atomic.Pointer[error]
	reads atomic.Int64
	hangs atomic.Bool
	after int64 // hangs after so many reads, if it is not 0
}

func (f *fickle) Read(ctx context.Context) ([]byte, error) {
	n := f.reads.Add(1)
	if f.hangs.Load() || f.after > 0 && n > f.after {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err := f.err.Load(); err != nil {
		return nil, fmt.Errorf("dial from port %d: %w", 40000+n, *err)
	}
	return []byte(*f.text.Load()), nil
}

func (f *fickle) say(text string) { f.text.Store(&text); f.err.Store(nil) }
func (f *fickle) fail(err error)  { f.err.Store(&err) }

func TestWatchOfASourceThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := new(fickle)
		source.say(rate(2))
		w := newWatched(t, new(algorithms.Memory))
		w.watch(source)
		soon()
		source.fail(errors.New("connection refused"))
		w.long("away, with another text each time", 2, 1, 1)
		source.fail(fs.ErrPermission)
		w.long("not permitted", 2, 1, 2)
		source.say(rate(3))
		w.soon("back", 3, 2, 2)

		source.hangs.Store(true)
		w.long("hangs", 3, 2, 3)
		source.hangs.Store(false)
		w.long("back", 3, 3, 3)
	})
}

func TestWatchEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, source := range map[string]*fickle{"while it waits": {}, "while it settles": {}, "while it reads": {}, "while it reads again": {after: 1}} {
			source.say(rate(2))
			w := newWatched(t, new(algorithms.Memory))
			ctx, cancel := context.WithCancel(t.Context())
			source.hangs.Store(name == "while it reads")
			if name == "while it reads again" {
				source.fail(errors.New("connection refused"))
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				(&rulefile.Loader{Source: source, Every: time.Hour}).Watch(ctx, w.Middleware)
			}()
			switch name {
			case "while it waits":
				time.Sleep(time.Minute)
			case "while it reads again":
				time.Sleep(time.Second)
			}
			synctest.Wait()
			begun := time.Now()
			cancel()
			<-done
			if took := time.Since(begun); took != 0 {
				t.Errorf("%s: took %s", name, took)
			}
			if strings.Contains(w.log.String(), "not replaced") {
				t.Errorf("%s: the end is reported as a failure: %s", name, &w.log)
			}
		}
	})
}

func TestWatchLooksEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for every, want := range map[time.Duration]int64{0: 31, time.Second: 61, time.Minute: 2} {
			source := new(fickle)
			source.say(rate(1))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute+500*time.Millisecond)
			(&rulefile.Loader{Source: source, Every: every}).Watch(ctx, newWatched(t, new(algorithms.Memory)).Middleware)
			cancel()
			if got := source.reads.Load(); got != want+1 { // a change is read twice
				t.Errorf("every %s: %d reads, want %d", every, got, want+1)
			}
		}
	})
}

// A unit that was forgotten is reported by whatever reads the source, which nothing reads.
func TestEveryNeedsItsUnit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, every := range []time.Duration{2, -1, 9_999_999} {
			source, w := new(fickle), newWatched(t, new(algorithms.Memory))
			l := &rulefile.Loader{Source: source, Every: every}
			want := "rulefile: Loader.Every: " + every.String() + " is below 10ms; a number without a unit is in nanoseconds: write 10*time.Second, in text 10s"
			if _, err := l.Load(t.Context()); err == nil || err.Error() != want {
				t.Errorf("Load: %v, want %s", err, want)
			}
			if err := l.Reload(t.Context(), w.Middleware); err == nil || err.Error() != want {
				t.Errorf("Reload: %v, want %s", err, want)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			l.Watch(ctx, w.Middleware)
			cancel()
			if n := strings.Count(w.log.String(), want); n != 1 || source.reads.Load() != 0 {
				t.Errorf("said %d times, %d reads\n%s", n, source.reads.Load(), &w.log)
			}
		}
	})
}

func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "rules.yaml")
		l := &rulefile.Loader{Source: rulefile.File(path)}
		w := newWatched(t, new(algorithms.Memory))
		if err := l.Reload(t.Context(), w.Middleware); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		w.want("no file", 1, 0, 1)
		write(t, path, rate(2))
		if err := l.Reload(t.Context(), w.Middleware); err != nil {
			t.Error(err)
		}
		w.want("a file", 2, 1, 1)
		write(t, path, "version: 2\n")
		if err := l.Reload(t.Context(), w.Middleware); err == nil || !strings.Contains(err.Error(), "this program reads version 1") {
			t.Error(err)
		}
		w.want("a bad file", 2, 1, 2)
		hanging := new(fickle)
		hanging.hangs.Store(true)
		if err := w.loader(hanging).Reload(t.Context(), w.Middleware); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		w.want("a source that hangs", 2, 1, 3)
	})
}

// Whatever else sets the rules of a Middleware that is watched, it ends with those
// that the file has, and with none that failed.
func TestTheFileDecides(t *testing.T) {
	const halves = "  - name: login\n    key: ip\n    limit: 5/1m\n"
	for name, meddle := range map[string]func(t *testing.T, w *watched, path string, reload func()){
		"a reload while the file is rewritten": func(t *testing.T, _ *watched, path string, reload func()) {
			write(t, path, rate(2))
			reload()
			write(t, path, rate(2)+halves)
		},
		"an edit that is reverted": func(t *testing.T, _ *watched, path string, reload func()) {
			write(t, path, rate(3))
			reload()
			write(t, path, rate(2)+halves)
		},
		"a file that is away for a moment": func(t *testing.T, _ *watched, path string, reload func()) {
			rename(t, path+".away", rate(2)+halves)
			remove(t, path)
			reload()
			write(t, path, rate(2)+halves)
		},
		"another loader": func(t *testing.T, w *watched, _ string, _ func()) {
			other := new(fickle)
			other.say(rate(4))
			if err := w.loader(other).Reload(t.Context(), w.Middleware); err != nil {
				t.Error(err)
			}
		},
		"the program": func(t *testing.T, w *watched, _ string, _ func()) {
			if err := w.SetRules(w.Rules()[:1]); err != nil {
				t.Error(err)
			}
		},
		"a mistake of the program": func(t *testing.T, w *watched, _ string, _ func()) {
			if err := w.SetRules(nil); err == nil {
				t.Error("accepted")
			}
		},
		"another loader's failure": func(_ *testing.T, w *watched, _ string, _ func()) { w.RulesFailed(errors.New("away")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, path := watchFile(t, rate(2)+halves)
				before := w.RulesRevision()
				meddle(t, w, path, func() { _ = w.loader(rulefile.File(path)).Reload(t.Context(), w.Middleware) })
				if w.RulesRevision() == before {
					t.Error("nothing was set, and nothing failed")
				}
				soon()
				if got := w.Rules(); len(got) != 2 || got[0].Limit.Rate != 2 || w.metric("ratelimit_rules_failing") != 0 {
					t.Errorf("%d rules, the first with rate %d; failing: %v\n%s", len(got), got[0].Limit.Rate, w.metric("ratelimit_rules_failing"), &w.log)
				}
				if !strings.Contains(w.log.String(), "the rules of the document are set again") {
					t.Errorf("it is not said why rules are set again\n%s", &w.log)
				}
				settled := w.RulesRevision()
				long()
				if got := w.RulesRevision(); got != settled {
					t.Errorf("%d more attempts to set rules, and nothing happened", got-settled)
				}
			})
		})
	}
}

// Of two watches of one Middleware the second waits for the first. They would take
// turns for ever.
func TestTwoWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := new(fickle), new(fickle)
		first.say(rate(2))
		second.say(rate(3))
		w := newWatched(t, new(algorithms.Memory))
		end := w.watch(first)
		soon()
		endSecond := w.watch(second)
		w.long("the second waits", 2, 1, 0)
		if got := strings.Count(w.log.String(), `level=ERROR msg="ratelimit: rules not watched: the Middleware follows another Watch`); got != 1 {
			t.Errorf("said %d times\n%s", got, &w.log)
		}
		end()
		w.soon("the first has ended", 3, 2, 0)
		end = w.watch(first)
		synctest.Wait()
		end() // while it waits
		endSecond()
		w.watch(first)
		w.soon("both have ended", 2, 3, 0)
	})
}

// A document that is another one with each look is never taken, which is said.
func TestADocumentThatNeverSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := new(fickle)
		source.say(rate(2))
		w := newWatched(t, new(algorithms.Memory))
		w.watch(source)
		soon()
		for i := range 500 {
			source.say(rate(100 + i))
			time.Sleep(60 * time.Millisecond)
		}
		w.want("another one each time", 2, 1, 1)
		if !strings.Contains(w.log.String(), "*rulefile_test.fickle is another document each time it is read") {
			t.Error(w.log.String())
		}
		if err := w.loader(source).Reload(t.Context(), w.Middleware); err != nil {
			t.Error(err)
		}
		soon()
		if got := w.Rules()[0].Limit.Rate; got != 599 || w.metric("ratelimit_rules_failing") != 0 {
			t.Errorf("rate %d, failing: %v", got, w.metric("ratelimit_rules_failing"))
		}
	})
}

// A slow source answers with what it had when it was asked. Of two reloads the one
// that asked first sets its rules last, and asks again.
func TestAnOlderTextThatComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &slow{answers: make(chan time.Duration, 100)}
		source.say(rate(2))
		w := newWatched(t, new(algorithms.Memory))
		for _, takes := range []time.Duration{0, 4 * time.Second} { // the second read, for sure, before the change
			source.answers <- takes
		}
		var late sync.WaitGroup
		late.Go(func() {
			if err := w.loader(source).Reload(t.Context(), w.Middleware); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Second)
		source.say(rate(3))
		if err := w.loader(source).Reload(t.Context(), w.Middleware); err != nil {
			t.Error(err)
		}
		w.want("the later one, at once", 3, 1, 0)
		late.Wait()
		w.want("both", 3, 3, 0)
	})
}

// A slow source takes so long for an answer, or no time.
type slow struct {
	fickle
	answers chan time.Duration
}

func (s *slow) Read(ctx context.Context) ([]byte, error) {
	text, err := s.fickle.Read(ctx)
	select {
	case takes := <-s.answers:
		time.Sleep(takes)
	default:
	}
	return text, err
}

// crowd has eight clients send so many requests each. want waits for them, and wants
// so many admitted, and all others denied.
func crowd(t *testing.T, requests int, pause time.Duration, apps ...*watched) (want func(admitted int)) {
	var clients sync.WaitGroup
	var mu sync.Mutex
	statuses := make(map[int]int)
	for c := range 8 {
		app := apps[c%len(apps)].Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		clients.Go(func() {
			for range requests {
				rec := httptest.NewRecorder()
				app.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil))
				mu.Lock()
				statuses[rec.Code]++
				mu.Unlock()
				time.Sleep(pause)
			}
		})
	}
	return func(admitted int) {
		t.Helper()
		clients.Wait()
		all := map[int]int{http.StatusOK: admitted, http.StatusTooManyRequests: 8*requests - admitted}
		if !maps.Equal(statuses, all) {
			t.Errorf("answers by status: %v, want %v", statuses, all)
		}
	}
}

// A document that is as bad as before is not said to be set again.
func TestReloadOfABadDocument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, path := watchFile(t, rate(2))
		write(t, path, "version: 2\n")
		soon()
		if err := w.loader(rulefile.File(path)).Reload(t.Context(), w.Middleware); err == nil {
			t.Error("accepted")
		}
		soon()
		if log := w.log.String(); strings.Contains(log, "are set again") || strings.Count(log, "rules not replaced") != 1 {
			t.Errorf("the log:\n%s", log)
		}
	})
}

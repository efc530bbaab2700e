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

// watch begins to watch a source, until the test ends.
func (w *watched) watch(source rulefile.Source) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		(&rulefile.Loader{Source: source}).Watch(ctx, w.Middleware)
	}()
	w.t.Cleanup(func() { cancel(); <-done })
}

// soon is longer than a change takes to come into force.
func soon() {
	time.Sleep(2500 * time.Millisecond) // of a bubble
	synctest.Wait()
}

// want checks the rate in force, and how often rules were replaced and failed.
func (w *watched) want(step string, rate int64, replaced, failed int) {
	w.t.Helper()
	if got := w.Rules()[0].Limit.Rate; got != rate {
		w.t.Errorf("%s: rate %d is in force, want %d", step, got, rate)
	}
	log := w.log.String()
	if got := strings.Count(log, `msg="ratelimit: rules replaced"`); got != replaced {
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

func TestWatchSetsWhatTheFileSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "rules.yaml")
		write(t, path, rate(2))
		w := newWatched(t, new(algorithms.Memory))
		w.watch(rulefile.File(path))
		time.Sleep(time.Second)
		w.want("at first", 2, 1, 0)
		for range 20 {
			soon()
		}
		w.want("unchanged", 2, 1, 0)

		write(t, path, rate(3))
		soon()
		w.want("written in place", 3, 2, 0)
		rename(t, path, rate(4))
		soon()
		w.want("renamed", 4, 3, 0)
		rename(t, path, rate(4)+"# a comment\n")
		soon()
		w.want("a comment", 4, 4, 0)
	})
}

func TestWatchKeepsTheRulesOfABadFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "rules.yaml")
		write(t, path, rate(2))
		w := newWatched(t, new(algorithms.Memory))
		w.watch(rulefile.File(path))
		soon()
		bad := strings.ReplaceAll(rate(9), "/1h", " per hour")
		write(t, path, bad)
		for range 20 {
			soon()
		}
		w.want("bad for long", 2, 1, 1)
		if got := w.metric("ratelimit_rules_failing"); got != 1 {
			t.Errorf("failing: %v", got)
		}
		if !strings.Contains(w.log.String(), path+`:5:12: rules[0].limit: limit \"9 per hour\": no period`) {
			t.Error(w.log.String())
		}
		write(t, path, strings.ReplaceAll(bad, "9", "8"))
		soon()
		w.want("bad in another way", 2, 1, 2)
		write(t, path, rate(3))
		soon()
		w.want("mended", 3, 2, 2)
		if got := w.metric("ratelimit_rules_failing"); got != 0 {
			t.Errorf("failing: %v", got)
		}
		for range 3 { // it flips
			write(t, path, bad)
			soon()
			write(t, path, rate(3))
			soon()
		}
		w.want("flips", 3, 5, 5)
		for name, text := range files(t, "bad") {
			write(t, path, string(text))
			soon()
			if got := w.Rules()[0].Limit.Rate; got != 3 || w.metric("ratelimit_rules_failing") != 1 {
				t.Errorf("%s: rate %d is in force", name, got)
			}
		}
	})
}

// A half-written file is good YAML as often as not, with half of the rules.
func TestWatchWaitsForTheSecondHalf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "rules.yaml")
		write(t, path, rate(2))
		w := newWatched(t, new(algorithms.Memory))
		w.watch(rulefile.File(path))
		soon()
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

// Kubernetes mounts a ConfigMap as links: rules.yaml -> ..data/rules.yaml, and
// ..data -> a folder that is replaced.
func TestWatchFollowsAConfigMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		mount := func(version int) {
			folder := fmt.Sprintf("..2026_%d", version)
			if err := errors.Join(
				os.Mkdir(filepath.Join(dir, folder), 0o755),
				os.WriteFile(filepath.Join(dir, folder, "rules.yaml"), []byte(rate(version)), 0o600),
				os.Symlink(folder, filepath.Join(dir, "..data_tmp")),
				os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")),
			); err != nil {
				t.Fatal(err)
			}
			if version > 2 {
				if err := os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..2026_%d", version-1))); err != nil {
					t.Fatal(err)
				}
			}
		}
		mount(2)
		if err := os.Symlink("..data/rules.yaml", filepath.Join(dir, "rules.yaml")); err != nil {
			t.Fatal(err)
		}
		w := newWatched(t, new(algorithms.Memory))
		w.watch(rulefile.File(filepath.Join(dir, "rules.yaml")))
		soon()
		for version := 3; version < 6; version++ {
			mount(version)
			soon()
			w.want("mounted anew", int64(version), version-1, 0)
		}
	})
}

func TestWatchOfAFileThatGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "rules.yaml")
		w := newWatched(t, new(algorithms.Memory))
		w.watch(rulefile.File(path))
		for range 5 {
			soon()
		}
		w.want("not there yet", 1, 0, 1)
		write(t, path, rate(2))
		soon()
		w.want("there", 2, 1, 1)

		// Some editors remove a file before they write it again.
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		write(t, path, rate(3))
		soon()
		w.want("replaced slowly", 3, 2, 1)

		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			soon()
		}
		w.want("removed", 3, 2, 2)
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			soon()
		}
		w.want("a folder", 3, 2, 3)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		write(t, path, rate(3))
		soon()
		w.want("there again, as it was", 3, 3, 3)
		if got := w.metric("ratelimit_rules_failing"); got != 0 {
			t.Errorf("failing: %v", got)
		}
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
		for range 20 {
			soon()
		}
		w.want("away, with another text each time", 2, 1, 1)
		source.fail(fs.ErrPermission)
		for range 20 {
			soon()
		}
		w.want("not permitted", 2, 1, 2)
		source.say(rate(3))
		soon()
		w.want("back", 3, 2, 2)

		source.hangs.Store(true)
		for range 20 {
			soon()
		}
		w.want("hangs", 3, 2, 3)
		source.hangs.Store(false)
		for range 4 {
			soon()
		}
		w.want("back", 3, 3, 3)
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
		for every, want := range map[time.Duration]int64{0: 31, -1: 31, time.Second: 61, time.Minute: 2} {
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

func TestReload(t *testing.T) {
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
}

// A change binds at once, also keys that have been counted, fails no request, and
// keeps the counts.
func TestChangesUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := new(fickle)
		source.say(rate(100))
		w := newWatched(t, new(algorithms.Memory))
		w.watch(source)
		soon()
		want := crowd(t, 1500, 10*time.Millisecond, w)
		for _, limit := range []int{200, 300, 150, 400, 500} {
			time.Sleep(2 * time.Second)
			source.say(rate(limit))
		}
		want(500)
	})
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

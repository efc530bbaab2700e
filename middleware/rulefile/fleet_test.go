package rulefile_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/middleware/admin"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

// by is a document that alice publishes.
func by(text string) rulefile.Document {
	return rulefile.Document{By: "alice", Note: "tighter: login", Text: []byte(text)}
}

func publish(t *testing.T, fleet rulefile.Fleet, text string, old int64) {
	t.Helper()
	if _, err := fleet.Publish(t.Context(), by(text), old); err != nil {
		t.Fatal(err)
	}
}

// versionOf is 0 if nothing is published.
func versionOf(ctx context.Context, fleet rulefile.Fleet) (int64, error) {
	d, err := fleet.Document(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return d.Version, err
}

func TestFleet(t *testing.T) {
	t.Run("miniredis", func(t *testing.T) { testFleet(t, limitertest.Redis(t)) })
	t.Run("redis", func(t *testing.T) { testFleet(t, redistest.Start(t).Client(t)) })
	t.Run("cluster", func(t *testing.T) {
		if testing.Short() {
			t.Skip("starts a cluster")
		}
		testFleet(t, redistest.StartCluster(t).Client(t))
	})
}

// A client that reads from replicas, which may be late, reads the document from its master.
func TestFleetReadsWhereItWrites(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster")
	}
	cluster := redistest.StartCluster(t)
	for name, o := range map[string]redis.ClusterOptions{"ReadOnly": {ReadOnly: true}, "RouteByLatency": {RouteByLatency: true}, "RouteRandomly": {RouteRandomly: true}} {
		o.Addrs = cluster.Addrs
		client := redis.NewClusterClient(&o)
		defer client.Close()
		fleet := rulefile.Fleet{Client: client, Namespace: name}
		publish(t, fleet, rate(1), 0)
		for range 20 {
			_, errRead := fleet.Document(t.Context())
			_, errPast := fleet.History(t.Context())
			if errRead != nil || errPast != nil {
				t.Errorf("%s: %v, %v", name, errRead, errPast)
			}
		}
	}
	for _, replica := range cluster.Replicas {
		stats, err := replica.Client(t).Info(t.Context(), "commandstats").Result()
		if err != nil || strings.Contains(stats, "cmdstat_getrange") || strings.Contains(stats, "cmdstat_lrange") {
			t.Errorf("a replica was asked: %v\n%s", err, stats)
		}
	}
}

func testFleet(t *testing.T, client redis.UniversalClient) {
	ctx := t.Context()
	start := time.Now()
	fleet := rulefile.Fleet{Client: client, Namespace: "shop"}
	want := func(step string, version int64, text string) {
		t.Helper()
		got, err := versionOf(ctx, fleet)
		if err != nil || got != version {
			t.Errorf("%s: version %d, %v; want %d", step, got, err, version)
		}
		read, err := fleet.Read(ctx)
		if version == 0 && !errors.Is(err, fs.ErrNotExist) || version > 0 && (err != nil || string(read) != text) {
			t.Errorf("%s: %q, %v; want %q", step, read, err, text)
		}
	}
	publish := func(text string, old, version int64, conflict bool) {
		t.Helper()
		got, err := fleet.Publish(ctx, by(text), old)
		if errors.Is(err, rulefile.ErrConflict) != conflict || !conflict && (err != nil || got != version) || conflict && got != 0 {
			t.Errorf("publish in place of %d: version %d, %v", old, got, err)
		}
	}

	want("at first", 0, "")
	publish(rate(1), 1, 0, true)
	want("a version that there is not", 0, "")
	publish(rate(1), 0, 1, false)
	want("published", 1, rate(1))
	publish(rate(2), 0, 0, true)
	publish(rate(2), 2, 0, true)
	want("conflicts", 1, rate(1))
	publish(rate(2), 1, 2, false)
	want("published again", 2, rate(2))
	publish(rate(2), 1, 2, false) // repeated, because the answer was lost
	want("repeated", 2, rate(2))
	publish(rate(3), 1, 0, true)
	want("a conflict", 2, rate(2))
	odd := "\ufeff# ratelimit rules, version 9, sha256 " + strings.Repeat("0", 64) + "\r\n\x00" + strings.Repeat("ü", 1000)
	publish(odd, 2, 3, false)
	want("any text", 3, odd)
	large := strings.Repeat("x", 1<<20)
	publish(large, 3, 4, false)
	want("a large text", 4, large)

	past, err := fleet.History(ctx)
	if err != nil || len(past) != 3 {
		t.Fatalf("%d versions were replaced, %v; want 3", len(past), err)
	}
	for i, text := range []string{odd, rate(2), rate(1)} {
		d := past[i]
		if d.Version != int64(3-i) || string(d.Text) != text || d.By != "alice" || d.Note != "tighter: login" || d.At.Before(start.Truncate(time.Second)) || d.At.After(time.Now()) {
			t.Errorf("replaced: %+v; want %q", d, text)
		}
	}
	for want, d := range map[string]rulefile.Document{
		"has a colon": {Text: []byte("a"), By: "a: b"}, "has a line break": {Text: []byte("a"), By: "a", Note: "b\nc"}, "invisible": {Text: []byte("a"), Note: "a\u202eb"},
		"65 bytes": {Text: []byte("a"), By: strings.Repeat("a", 65)}, "the note 201": {Text: []byte("a"), Note: strings.Repeat("a", 201)},
	} {
		if version, err := fleet.Publish(ctx, d, 4); err == nil || !strings.Contains(err.Error(), want) || version != 0 {
			t.Errorf("%+v: %d, %v; want %s", d, version, err, want)
		}
	}
	for text, old := range map[string]int64{"": 4, large + "x": 4, "a": -2, "b": math.MaxInt64} {
		if version, err := fleet.Publish(ctx, by(text), old); err == nil || errors.Is(err, rulefile.ErrConflict) || version != 0 {
			t.Errorf("%d bytes in place of %d: %d, %v", len(text), old, version, err)
		}
	}
	want("mistakes", 4, large)

	other := rulefile.Fleet{Client: client, Namespace: "blog"}
	if version, err := versionOf(ctx, other); err != nil || version != 0 {
		t.Errorf("another namespace: version %d, %v", version, err)
	}
	if got := client.TTL(ctx, "shop:rules").Val(); got != -1 {
		t.Errorf("the document expires in %s", got)
	}

	// Nothing is lost to publishers that read the same version: each text that was
	// published is read once.
	fleet.Namespace = "race"
	var won sync.Map
	var publishers sync.WaitGroup
	for p := range 8 {
		publishers.Go(func() {
			for n := 0; n < 5; {
				old, err := versionOf(ctx, fleet)
				if err != nil {
					t.Error(err)
					return
				}
				text := fmt.Sprintf("publisher %d, text %d", p, n)
				switch version, err := fleet.Publish(ctx, by(text), old); {
				case err == nil:
					if other, taken := won.LoadOrStore(version, text); taken {
						t.Errorf("version %d is %q and %q", version, other, text)
					}
					n++
				case !errors.Is(err, rulefile.ErrConflict):
					t.Error(err)
					return
				}
			}
		})
	}
	publishers.Wait()
	last, _ := won.Load(int64(40))
	want("eight publishers", 40, fmt.Sprint(last))
	if past, err = fleet.History(ctx); err != nil || len(past) != 20 {
		t.Fatalf("%d versions are kept, %v; want 20", len(past), err)
	}
	for i, d := range past {
		if text, _ := won.Load(d.Version); d.Version != int64(39-i) || string(d.Text) != text {
			t.Errorf("version %d was %q, want %q", d.Version, d.Text, text)
		}
	}
}

// Whatever is written to the key by hand, or deleted, publishers go on from the history,
// and no number is given to two documents.
func TestNumbersGoOn(t *testing.T) {
	t.Run("miniredis", func(t *testing.T) { testNumbersGoOn(t, limitertest.Redis(t)) })
	t.Run("redis", func(t *testing.T) { testNumbersGoOn(t, redistest.Start(t).Client(t)) })
}

func testNumbersGoOn(t *testing.T, client redis.UniversalClient) {
	ctx := t.Context()
	fleet := rulefile.Fleet{Client: client, Namespace: "shop"}
	publish := func(old, want int64) {
		t.Helper()
		if version, err := fleet.Publish(ctx, by(rate(int(want))), old); err != nil || version != want {
			t.Errorf("in place of %d: version %d, %v; want %d", old, version, err, want)
		}
		if version, err := fleet.Publish(ctx, by("another"), old); !errors.Is(err, rulefile.ErrConflict) {
			t.Errorf("a second one in place of %d: version %d, %v", old, version, err)
		}
	}
	past := func(want ...int64) {
		t.Helper()
		all, err := fleet.History(ctx)
		var got []int64
		for _, d := range all {
			got = append(got, d.Version)
		}
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("history %v, %v; want %v", got, err, want)
		}
	}
	client.Set(ctx, "shop:rules", rate(1), 0)
	publish(-1, 2) // 1 may have been in force
	publish(2, 3)
	publish(3, 4)
	past(3, 2)

	client.Set(ctx, "shop:rules", rate(9), 0)
	for _, old := range []int64{0, 3, 4} {
		if version, err := fleet.Publish(ctx, by("a"), old); !errors.Is(err, rulefile.ErrConflict) {
			t.Errorf("by hand, in place of %d: version %d, %v", old, version, err)
		}
	}
	past(3, 2)
	publish(-1, 5)
	publish(5, 6)
	past(5, 3, 2)

	client.Del(ctx, "shop:rules")
	if version, err := fleet.Publish(ctx, by("a"), -1); !errors.Is(err, rulefile.ErrConflict) {
		t.Errorf("deleted: version %d, %v", version, err)
	}
	publish(0, 7)
	past(5, 3, 2)

	// A first line that has lost all but the number is one that was changed.
	client.Set(ctx, "shop:rules", "# ratelimit rules, version 7, by hand\n"+rate(9), 0)
	if d, err := fleet.Document(ctx); d.Version != 7 || err == nil {
		t.Errorf("%+v, %v", d, err)
	}
	publish(7, 8)
	past(5, 3, 2)
}

// What is at the key and was not published is no document, and is not overwritten unless
// the publisher knows it.
func TestFleetOfAnotherKind(t *testing.T) {
	client := limitertest.Redis(t)
	fleet := rulefile.Fleet{Client: client, Namespace: "shop"}
	ctx := t.Context()
	refused := func(step, want string, read, publish error) {
		t.Helper()
		for _, err := range []error{read, publish} {
			if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, rulefile.ErrConflict) {
				t.Errorf("%s: %v", step, err)
			}
		}
	}
	for step, text := range map[string]string{
		"by hand": rate(1), "another head": "# ratelimit rules, version x, sha256 y\n", "version 0": "# ratelimit rules, version 0, sha256 " + strings.Repeat("0", 64) + "\n",
		"a huge version": "# ratelimit rules, version 9999999999999999999, sha256 " + strings.Repeat("0", 64) + "\n",
	} {
		client.Set(ctx, "shop:rules", text, 0)
		_, err := fleet.Document(ctx)
		_, readErr := fleet.Read(ctx)
		refused(step, "shop:rules was not written by Fleet.Publish: publish the rules", err, readErr)
		if _, err := fleet.Publish(ctx, by(rate(2)), 0); err == nil || client.Get(ctx, "shop:rules").Val() != text {
			t.Errorf("%s: %v, and now there is %q", step, err, client.Get(ctx, "shop:rules").Val())
		}
		d, _ := fleet.Document(ctx)
		if version, err := fleet.Publish(ctx, by(rate(2)), d.Version); err != nil || d.Version != -1 || version != 2 {
			t.Errorf("%s: in place of %d: version %d, %v", step, d.Version, version, err)
		}
	}
	client.Del(ctx, "shop:rules")
	client.HSet(ctx, "shop:rules", "a", "b")
	_, err := fleet.Document(ctx)
	_, publishErr := fleet.Publish(ctx, by(rate(2)), 0)
	refused("a hash", "WRONGTYPE", err, publishErr)

	client.Del(ctx, "shop:rules")
	publish(t, fleet, rate(1), 0)
	client.Append(ctx, "shop:rules", "# edited by hand\n")
	if _, err := fleet.Read(ctx); err == nil || !strings.Contains(err.Error(), "version 1 is not as it was published") {
		t.Error(err)
	}
	if d, _ := fleet.Document(ctx); d.Version != 1 || d.Text != nil {
		t.Errorf("changed by hand: %+v", d)
	}
	if version, err := fleet.Publish(ctx, by(rate(2)), 1); err != nil || version != 2 {
		t.Errorf("mended: %d, %v", version, err)
	}
	if past, err := fleet.History(ctx); err != nil || len(past) != 0 {
		t.Errorf("what was changed by hand is kept: %+v, %v", past, err)
	}
	client.Append(ctx, "shop:rules", strings.Repeat("x", 3<<20)) // nobody reads all of it
	if _, err := fleet.Read(ctx); err == nil || !strings.Contains(err.Error(), "version 2 is not as it was published") {
		t.Error(err)
	}
}

func TestFleetMistakes(t *testing.T) {
	for want, fleet := range map[string]rulefile.Fleet{
		"client: required":    {Namespace: "shop"},
		"namespace: required": {Client: limitertest.Redis(t)},
		"namespace":           {Client: limitertest.Redis(t), Namespace: "a b"},
		"got nil":             {Client: (*redis.Client)(nil), Namespace: "shop"},
	} {
		_, err := fleet.History(t.Context())
		_, readErr := fleet.Read(t.Context())
		_, publishErr := fleet.Publish(t.Context(), by("a"), 0)
		for _, err := range []error{err, readErr, publishErr} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v; want %s", err, want)
			}
		}
	}
}

func TestFleetWhileRedisIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := limitertest.RedisServer(t)
		fleet := rulefile.Fleet{Client: client, Namespace: "shop"}
		l := &rulefile.Loader{Source: fleet}
		server.SetError("LOADING Redis is loading the dataset in memory")
		if rules, err := l.Load(t.Context()); err == nil || rules != nil || errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), "rulefile: shop:rules: LOADING") {
			t.Error(rules, err)
		}
		if d, err := fleet.History(t.Context()); err == nil || d != nil {
			t.Error(d, err)
		}
		if _, err := fleet.Publish(t.Context(), by("a"), 0); err == nil || errors.Is(err, rulefile.ErrConflict) {
			t.Error(err)
		}
		w := newWatched(t, new(algorithms.Memory))
		w.watch(fleet)
		w.long("away", 1, 0, 1)
		server.SetError("")
		w.long("nothing is published", 1, 0, 2)
		publish(t, fleet, rate(2), 0)
		w.soon("published", 2, 1, 2)
		server.SetError("LOADING Redis is loading the dataset in memory")
		w.long("away again", 2, 1, 3)
		server.SetError("")
		w.soon("back", 2, 2, 3)

		// A document of a newer release.
		publish(t, fleet, "version: 2\npolicies: {r: 9}\n", 1)
		w.long("not understood", 2, 2, 4)
		if !strings.Contains(w.log.String(), "shop:rules:1:10: version: this program reads version 1") {
			t.Error(w.log.String())
		}

		// Why there is no document is said anew where something else is to be done.
		failed := 4
		for _, c := range []struct {
			step string
			do   func()
		}{
			{"away once more", func() { server.SetError("LOADING Redis is loading the dataset in memory") }},
			{"not permitted", func() { server.SetError("NOPERM this user has no permissions to run the 'getrange' command") }},
			{"changed by hand", func() { server.SetError(""); client.Append(t.Context(), "shop:rules", "# by hand\n") }},
			{"foreign", func() { client.Set(t.Context(), "shop:rules", rate(9), 0) }},
			{"no string", func() { client.Del(t.Context(), "shop:rules"); client.HSet(t.Context(), "shop:rules", "a", "b") }},
			{"deleted", func() { client.Del(t.Context(), "shop:rules") }},
		} {
			c.do()
			long()
			failed++
			w.want(c.step, 2, 2, failed)
		}
	})
}

// A failover that loses the last publication brings back the one before. It is put
// in force, as everywhere, and said.
func TestAnOlderVersionThatComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := limitertest.Redis(t)
		fleet := rulefile.Fleet{Client: client, Namespace: "shop"}
		w := newWatched(t, new(algorithms.Memory))
		w.watch(fleet)
		var kept string // by the replica
		for version := range int64(3) {
			kept = client.Get(t.Context(), "shop:rules").Val()
			publish(t, fleet, rate(10+int(version)), version)
			w.soon("published", 10+version, 1+int(version), 0)
		}
		const warning = `level=WARN msg="ratelimit: Redis has lost versions of the rules: publish again if those in force are too old" source=shop:rules version=2 lost=3`
		if strings.Contains(w.log.String(), "lost versions") {
			t.Error(w.log.String())
		}
		client.Set(t.Context(), "shop:rules", kept, 0)
		w.long("an older version is back", 11, 4, 0)
		if got := strings.Count(w.log.String(), warning); got != 1 {
			t.Errorf("said %d times\n%s", got, &w.log)
		}
	})
}

// The version in force is in the log, in a metric and on the operators' page, also where
// it has the rules of the one before.
func TestTheVersionIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := limitertest.Redis(t)
		fleet := rulefile.Fleet{Client: client, Namespace: "shop"}
		w := newWatched(t, new(algorithms.Memory))
		w.watch(fleet)
		want := func(version int64, line string) {
			t.Helper()
			soon()
			r := httptest.NewRequest(http.MethodGet, "http://localhost/", nil)
			page := httptest.NewRecorder()
			admin.Handler(w.Middleware).ServeHTTP(page, r)
			if got := w.metric("ratelimit_rules_version"); got != float64(version) || !strings.Contains(w.log.String(), line) ||
				strings.Contains(page.Body.String(), fmt.Sprintf(`"version": %d,`, version)) != (version > 0) {
				t.Errorf("the metric has %v, want %d and %s\n%s\n%s", got, version, line, page.Body, &w.log)
			}
		}
		want(0, "nothing is published yet: publish a document first")
		for version, text := range []string{rate(1), rate(2), rate(2)} {
			publish(t, fleet, text, int64(version))
			want(int64(version+1), []string{
				`msg="ratelimit: rules set again" rules=1 generation=2 version=1`,
				`msg="ratelimit: rules replaced" rules=1 generation=3 version=2 added=[] removed=[] changed=[r]`,
				`msg="ratelimit: rules set again" rules=1 generation=4 version=3`,
			}[version])
		}
		if err := w.SetRules(w.Rules()); err != nil {
			t.Fatal(err)
		}
		want(3, "the rules of the document are set again") // which is not that of the code in between
	})
}

// Two instances that count in one Redis follow one file, or the fleet's document,
// within 3 s, under load, and no request fails. What was counted stays.
func TestTwoInstancesUnderLoad(t *testing.T) {
	t.Run("a file", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "rules.yaml")
			underLoad(t, limitertest.Redis(t), rulefile.File(path), func(text string) { write(t, path, text) })
		})
	})
	t.Run("the fleet's document", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			client := limitertest.Redis(t)
			fleet := rulefile.Fleet{Client: client, Namespace: "shop"}
			version := int64(0)
			underLoad(t, client, fleet, func(text string) {
				publish(t, fleet, text, version)
				version++
			})
		})
	})
}

func underLoad(t *testing.T, client *redis.Client, source rulefile.Source, publish func(text string)) {
	publish(rate(100))
	apps := []*watched{newInstance(t, client, source), newInstance(t, client, source)}
	want := crowd(t, 400, 50*time.Millisecond, apps...)
	for _, limit := range []int{200, 300, 150, 400} {
		publish(rate(limit))
		time.Sleep(3 * time.Second)
		for i, app := range apps {
			if got := app.Rules()[0].Limit.Rate; got != int64(limit) {
				t.Errorf("instance %d has %d after 3 s, want %d", i, got, limit)
			}
		}
	}
	want(400)
}

func newInstance(t *testing.T, client *redis.Client, source rulefile.Source) *watched {
	guard := &failmode.Guard{Limiter: &algorithms.Redis{Client: client, Namespace: "shop"}, Logger: slog.New(slog.DiscardHandler)}
	t.Cleanup(func() { _ = guard.Close() })
	w := newWatched(t, guard)
	w.watch(source)
	return w
}

// A lost answer is asked for again, and the publisher is not told that somebody
// else was first.
func TestPublishWhoseAnswerIsLost(t *testing.T) {
	client := limitertest.Redis(t)
	fleet := rulefile.Fleet{Client: repeating{client}, Namespace: "shop"}
	if version, err := fleet.Publish(t.Context(), by(rate(1)), 0); err != nil || version != 1 {
		t.Errorf("%d, %v", version, err)
	}
}

// repeating sends each command twice, as go-redis does after a timeout.
type repeating struct{ *redis.Client }

func (r repeating) Process(ctx context.Context, cmd redis.Cmder) error {
	_ = r.Client.Process(ctx, cmd)
	cmd.SetErr(nil)
	return r.Client.Process(ctx, cmd)
}

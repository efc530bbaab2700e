package algorithms

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/internal/script"
	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// logins are denied after one in a day, and banned at the second denial.
func logins(key string) Check {
	return Check{Rule: "login", Key: key, Limit: perDay(1), Ban: Ban{After: 2, Within: time.Hour, For: 15 * time.Minute}}
}

func mustTake(t *testing.T, l Limiter, checks ...Check) []Result {
	t.Helper()
	d, err := l.Take(t.Context(), checks...)
	if err != nil {
		t.Fatal(err)
	}
	return d.Results
}

// A denial costs one command, whether it counts or is by a ban.
func TestBansTakeOneCommand(t *testing.T) {
	client := redistest.Start(t).Client(t)
	r := &Redis{Client: client, Namespace: "test", Budget: roomy}
	if err := storeOf(r).Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	var rec redistest.Recorder
	client.AddHook(&rec)
	for i, banned := range []bool{false, false, true, true} {
		got := mustTake(t, r, append(three("192.0.2.1", "alice"), Check{Rule: "other", Limit: perDay(100)}, logins("k"))...)
		if got[4].BannedFor > 0 != banned || got[4].HasRoom != (i == 0) {
			t.Errorf("request %d: %+v", i, got[4])
		}
		if names := rec.Take(); !slices.Equal(names, []string{"evalsha"}) {
			t.Errorf("request %d sent %q", i, names)
		}
	}
}

// Where keys are sharded, a ban is one call more in the flush that decides, and a
// denial that counts is one in a second flush.
func TestBansOnAShardedRedis(t *testing.T) {
	client := redistest.Start(t).Client(t)
	r := &Redis{Client: client, Namespace: "test", Budget: roomy, Sharded: true}
	if err := storeOf(r).Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	var calls []int // in each flush
	client.AddHook(flushHook(func(cmds []redis.Cmder, send func([]redis.Cmder) error) error {
		if cmds[0].Name() == "evalsha" {
			calls = append(calls, len(cmds))
		}
		return send(cmds)
	}))
	wide := Check{Rule: "wide", Key: "w", Limit: perDay(100)}
	for i, want := range []struct {
		banned bool
		calls  []int // in each flush
	}{
		{false, []int{3}},    // two checks and a ban
		{false, []int{3, 2}}, // the charge given back, and the denial
		{true, []int{3, 2}},
		{true, []int{3, 1}}, // of a ban no denial is counted
	} {
		d, err := r.Take(t.Context(), wide, logins("k"))
		if err != nil {
			t.Fatal(err)
		}
		got := d.Results
		if got[1].BannedFor > 0 != want.banned || got[0].Charged != 0 && i > 0 || got[0].Remaining != 99 {
			t.Errorf("request %d: %+v", i, got)
		}
		if !slices.Equal(calls, want.calls) {
			t.Errorf("request %d: %d calls in its flushes, want %d", i, calls, want.calls)
		}
		calls = nil
	}
	// The ban is of the key, so also of requests whose Guard has seen no denial.
	fresh := &Redis{Client: client, Namespace: "test", Budget: roomy, Sharded: true}
	if got := mustTake(t, fresh, wide, logins("k")); got[1].BannedFor == 0 || got[0].Charged != 0 || got[0].Remaining != 99 {
		t.Errorf("another process: %+v", got)
	}
}

// Whoever cannot tell whether a key is banned has not decided. What was charged all
// the same is known, and can be given back.
func TestABanThatGetsNoAnswer(t *testing.T) {
	client := redistest.Start(t).Client(t)
	lost := errors.New("lost")
	client.AddHook(failScript(script.Bans.SHA(), lost))
	r := &Redis{Client: client, Namespace: "test", Budget: roomy, Sharded: true}
	d, err := r.Take(t.Context(), Check{Rule: "wide", Key: "w", Limit: perDay(100)}, logins("k"))
	if err != nil || d.Allowed || !errors.Is(d.Results[1].Err, lost) || d.Results[0].Charged != 1 || d.Results[1].Charged != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	if err := Refund(t.Context(), r, d); err != nil {
		t.Fatal(err)
	}
	whole := &Redis{Client: client, Namespace: "test", Budget: roomy}
	if got := mustTake(t, whole, Check{Rule: "wide", Key: "w", Limit: perDay(100)}, logins("k")); got[0].Remaining != 99 || got[1].Remaining != 0 {
		t.Errorf("after it was given back: %+v", got)
	}
	alone := logins("alone")
	if d, err := r.Take(t.Context(), alone); err != nil || d.Allowed || d.Results[0].Charged != 1 || Refund(t.Context(), r, d) != nil {
		t.Errorf("%+v, %v", d, err)
	}
	if got := mustTake(t, whole, alone); !got[0].HasRoom {
		t.Errorf("after it was given back: %+v", got)
	}
	// Another check denies: the request gets all back at once.
	none := Check{Rule: "wide", Key: "w", Limit: perDay(100), Cost: 1000}
	other := logins("other")
	if d, err := r.Take(t.Context(), none, other); err != nil || d.Results[1].Charged != 0 || !errors.Is(d.Results[1].Err, lost) {
		t.Errorf("%+v, %v", d, err)
	}
	if got := mustTake(t, whole, other); !got[0].HasRoom {
		t.Errorf("after a request that another check denied: %+v", got)
	}
}

// failScript fails the calls of a script in pipelines.
func failScript(sha string, err error) flushHook {
	return func(cmds []redis.Cmder, send func([]redis.Cmder) error) error {
		runs := func(cmd redis.Cmder) bool { return slices.Contains(cmd.Args(), any(sha)) }
		sendErr := send(slices.DeleteFunc(slices.Clone(cmds), runs))
		for _, cmd := range cmds {
			if runs(cmd) {
				cmd.SetErr(err)
				sendErr = err
			}
		}
		return sendErr
	}
}

// A ban that was written up to Within ahead is believed. One of a clock that was further
// ahead, such as a year, bans as if it had begun now: it neither lasts a year nor frees the
// key. Peek writes nothing of that.
func TestAClockErrorBansForNoYear(t *testing.T) {
	sharded := realBackend(t)
	sharded.limiter.(*Redis).Sharded = true
	for name, b := range map[string]backend{"memory": memoryBackend(t), "redis": realBackend(t), "sharded": sharded} {
		const within = 3_600_000_000
		for ahead, want := range map[int64]time.Duration{within: 75 * time.Minute, within + 1: 15 * time.Minute, year: 15 * time.Minute} {
			b.flush()
			b.setTime(someTime + ahead)
			for range 3 {
				mustTake(t, b.limiter, logins("k"))
			}
			b.setTime(someTime)
			if r := mustTake(t, b.limiter, logins("k"))[0]; r.BannedFor != want {
				t.Errorf("%s, %dµs ahead: %+v", name, ahead, r)
			}
		}
		b.flush()
		b.setTime(someTime + year)
		for range 3 {
			mustTake(t, b.limiter, logins("k"))
		}
		b.setTime(someTime)
		for range 2 {
			d, err := b.limiter.Peek(t.Context(), logins("k"))
			if r := d.Results[0]; err != nil || r.BannedFor == 0 || r.BannedFor != 15*time.Minute {
				t.Errorf("%s: %+v, %v", name, r, err)
			}
			b.setTime(someTime + 60_000_000) // Peek has written nothing, so that it begins now
		}
		if r := mustTake(t, b.limiter, logins("k"))[0]; r.BannedFor != 15*time.Minute {
			t.Errorf("%s: %+v", name, r)
		}
		b.setTime(someTime + 2*60_000_000)
		if r := mustTake(t, b.limiter, logins("k"))[0]; r.BannedFor != 14*time.Minute {
			t.Errorf("%s: a minute after a Take: %+v", name, r)
		}
	}
}

// Who is not denied leaves no more in a memory than without a ban.
func TestBansOfKeysThatAreNotDenied(t *testing.T) {
	var m Memory
	for range 3 {
		check := logins("k")
		check.Limit = perDay(10)
		mustTake(t, &m, check)
		if _, err := m.Peek(t.Context(), check); err != nil {
			t.Fatal(err)
		}
	}
	if s := m.ready().Stats(); s.Keys != 1 {
		t.Errorf("%+v", s)
	}
}

// A ban is written by denials that count, and by nothing else.
func TestBansAreOnlyWrittenByDenialsThatCount(t *testing.T) {
	client := redistest.Start(t).Client(t)
	r := &Redis{Client: client, Namespace: "test", Budget: roomy}
	writes := func() string {
		info := client.Info(t.Context(), "commandstats").Val()
		_, calls, _ := strings.Cut(info, "cmdstat_psetex:calls=")
		calls, _, _ = strings.Cut(calls, ",")
		return calls
	}
	wide := logins("wide")
	wide.Limit = perDay(10)
	mustTake(t, r, wide)
	before := writes()
	mustTake(t, r, wide) // its count keeps its deadline, so that nothing needs one
	if after := writes(); after != before || client.Exists(t.Context(), string(appendBanKey(nil, "test", &wide))).Val() > 0 {
		t.Errorf("a key that was not denied has a ban's: PSETEX was called %s times before and %s after", before, after)
	}
	check := logins("k")
	mustTake(t, r, check)
	for i, written := range []bool{true, true, false, false} {
		before := writes()
		mustTake(t, r, check)
		if after := writes(); (after != before) != written {
			t.Errorf("denial %d: PSETEX was called %s times before and %s after", i, before, after)
		}
	}
}

// What counts denials and bans is bounded, and a flood lifts no ban.
func TestBansInAMemoryThatIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Memory{MaxKeys: 1280} // 20 in each shard: the abusers find room, wherever they are
		for i := range 50 {
			for range 3 {
				mustTake(t, m, logins(fmt.Sprint("abuser-", i)))
			}
		}
		for i := range 20_000 {
			for range 3 {
				mustTake(t, m, logins(fmt.Sprint("flood-", i)))
			}
		}
		if s := m.ready().Stats(); s.Keys > m.MaxKeys {
			t.Errorf("%+v", s)
		}
		for i := range 50 {
			if r := mustTake(t, m, logins(fmt.Sprint("abuser-", i)))[0]; r.BannedFor == 0 {
				t.Errorf("abuser %d: %+v", i, r)
			}
		}
		if err := m.Ban(t.Context(), time.Hour, logins("by hand")); err != nil {
			t.Fatal(err)
		}
		if r := mustTake(t, m, logins("by hand"))[0]; r.BannedFor == 0 {
			t.Errorf("banned by hand: %+v", r)
		}
		time.Sleep(48 * time.Hour)
		if r := mustTake(t, m, logins("abuser-0"))[0]; !r.HasRoom {
			t.Errorf("two days later: %+v", r)
		}
	})
}

// Bans by hand find room where keys do not, and are bounded even so. One that finds
// none is an error.
func TestBansByHandAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Memory{MaxKeys: 640}
		for i := range 20_000 {
			mustTake(t, m, logins(fmt.Sprint("flood-", i)))
		}
		errs := 0
		for i := range 20_000 {
			check := logins(fmt.Sprint("by hand-", i))
			err := m.Ban(t.Context(), time.Hour, check)
			if r := mustTake(t, m, check)[0]; r.BannedFor > 0 != (err == nil) {
				t.Fatalf("ban %d: %+v, %v", i, r, err)
			}
			if err != nil {
				errs++
			} else if err := m.Ban(t.Context(), 2*time.Hour, check); err != nil {
				t.Fatalf("ban %d made longer: %v", i, err)
			}
			if s := m.ready().Stats(); s.Keys > 2*640 {
				t.Fatalf("after %d bans: %+v", i+1, s)
			}
		}
		if errs < 19_000 || errs > 20_000-640 {
			t.Errorf("%d of 20000 bans found no room", errs)
		}
		time.Sleep(48 * time.Hour)
		if err := m.Ban(t.Context(), time.Hour, logins("later")); err != nil {
			t.Errorf("two days later: %v", err)
		}
	})
}

func TestBanKeys(t *testing.T) {
	check := logins("203.0.113.9")
	if got := string(appendBanKey(nil, "shop", &check)); got != "shop:{203.0.113.9}:login:ban1" {
		t.Error(got)
	}
	if got := string(appendKey(nil, "shop", &check, check.Limit.row())) + keptSuffix; got != "shop:{203.0.113.9}:login:sw1:24h:kept" {
		t.Error(got)
	}
}

// A ban by hand holds for checks that do not read bans. They are the only ones
// that take a second command, and leave nothing behind.
func TestABanByHandIsMetWithoutReadingBans(t *testing.T) {
	server, clock := redistest.StartWithClock(t)
	client := server.Client(t)
	var rec redistest.Recorder
	client.AddHook(&rec)
	for _, sharded := range []bool{false, true} {
		eachAlgorithm(t, func(t *testing.T, l Limit) {
			clock.Set(time.UnixMicro(someTime))
			r := &Redis{Client: client, Namespace: "test", Budget: roomy, Sharded: sharded}
			if err := storeOf(r).Warm(t.Context()); err != nil {
				t.Fatal(err)
			}
			client.FlushAll(t.Context())
			check := Check{Rule: "r", Key: "k", Limit: l, Cost: 2}
			commands := func(want int) Result {
				t.Helper()
				rec.Take()
				got := mustTake(t, r, check)[0]
				if names := rec.Take(); len(names) != want {
					t.Errorf("sent %q, want %d commands", names, want)
				}
				return got
			}
			before := commands(1)
			if err := r.Ban(t.Context(), time.Second, check); err != nil {
				t.Fatal(err)
			}
			if got := commands(2); got.BannedFor == 0 || got.RetryAfter != time.Second {
				t.Errorf("%+v", got)
			}
			clock.Advance(time.Second)
			if got := commands(2); got.BannedFor > 0 || !got.HasRoom || got.Remaining > before.Remaining {
				t.Errorf("after it: %+v, before: %+v", got, before)
			}
			commands(1)
			if err := r.Ban(t.Context(), time.Hour, check); err != nil {
				t.Fatal(err)
			}
			if err := r.Reset(t.Context(), check); err != nil {
				t.Fatal(err)
			}
			if keys := client.Keys(t.Context(), "*").Val(); len(keys) > 0 {
				t.Errorf("after Reset there are %q", keys)
			}
		})
	}
}

// Another check of the rule and key may have lifted the ban, or reset it: that
// of this one must not last, nor be an error.
func TestABanByHandThatAnotherCheckLifts(t *testing.T) {
	client := redistest.Start(t).Client(t)
	minute, day := Check{Rule: "r", Key: "k", Limit: PerMinute(5)}, Check{Rule: "r", Key: "k", Limit: perDay(5)}
	for name, l := range map[string]Limiter{
		"memory":  new(Memory),
		"redis":   &Redis{Client: client, Namespace: "one", Budget: roomy},
		"sharded": &Redis{Client: client, Namespace: "sharded", Budget: roomy, Sharded: true},
	} {
		for what, lift := range map[string]func() error{
			"lift":  func() error { return l.Ban(t.Context(), 0, day) },
			"reset": func() error { return l.Reset(t.Context(), day) },
		} {
			if err := l.Ban(t.Context(), time.Hour, minute, day); err != nil {
				t.Fatal(err)
			}
			if got := mustTake(t, l, minute, day); got[0].BannedFor == 0 || got[1].BannedFor == 0 {
				t.Errorf("%s: %+v", name, got)
			}
			if err := lift(); err != nil {
				t.Fatal(err)
			}
			if got := mustTake(t, l, minute, day); !got[0].HasRoom || !got[1].HasRoom {
				t.Errorf("%s, %s: %+v", name, what, got)
			}
		}
	}
}

// What somebody else keeps at a ban's key is an error, and stays.
func TestWhatIsNoBan(t *testing.T) {
	client := redistest.Start(t).Client(t)
	check := logins("k")
	key := string(appendBanKey(nil, "test", &check))
	for _, sharded := range []bool{false, true} {
		r := &Redis{Client: client, Namespace: "test", Budget: roomy, Sharded: sharded}
		for _, value := range []string{"word", strings.Repeat("1", 34), strings.Repeat("1", 51), strings.Repeat("x", 1<<20), "a sentence as long as a ban is, or so"} {
			if err := client.Set(t.Context(), key, value, 0).Err(); err != nil {
				t.Fatal(err)
			}
			d, err := r.Take(t.Context(), check)
			if err == nil {
				err = d.Results[0].Err
			}
			if transport.ClassOf(err) != transport.ClassAnswer {
				t.Errorf("%.40q: %+v, %v", value, d, err)
			}
			if client.Get(t.Context(), key).Val() != value {
				t.Errorf("%.40q was written", value)
			}
		}
	}
}

// Replies about bans that no script gives are errors.
func TestRepliesAboutBans(t *testing.T) {
	checks := []Check{logins("k")}
	ps := []step.Params{paramsOf(&checks[0], checks[0].Limit.row())}
	for _, reply := range [][]int64{
		{someTime, 1, someTime, 0, 0, 0, 0},
		{someTime, 1, someTime, 0, -1, 0},
		{someTime, 1, someTime, 0, 0, -step.MaxExact},
		{someTime, 1, someTime, 0, 0, step.MaxExact},
	} {
		if d, err := answers(checks, ps, reply, true); !errors.Is(err, transport.ErrReply) {
			t.Errorf("%v: %+v, %v", reply, d, err)
		}
	}
	for _, numbers := range [][]int64{nil, {someTime}, {-1, 0}, {someTime, -step.MaxExact}, {someTime, 1, 2}} {
		if until, err := banned(&transport.Response{Numbers: numbers}); !errors.Is(err, transport.ErrReply) {
			t.Errorf("%v: %d, %v", numbers, until, err)
		}
	}
}

// A ban by hand binds all limits, but in a Redis only those without a Ban that it was given.
func TestABanByHandAndOtherLimits(t *testing.T) {
	redis := realBackend(t).limiter
	for name, limiter := range map[string]Limiter{"Memory": new(Memory), "Redis": redis} {
		given := Check{Rule: "r", Key: "k", Limit: PerMinute(10)}
		if err := limiter.Ban(t.Context(), time.Hour, given); err != nil {
			t.Fatal(err)
		}
		other, bans := given, given
		other.Limit, bans.Limit, bans.Ban = PerHour(10), PerHour(10), Ban{After: 5, For: time.Minute}
		for _, c := range []struct {
			check Check
			want  bool
		}{{given, false}, {other, name == "Redis"}, {bans, false}} {
			d, err := limiter.Take(t.Context(), c.check)
			if err != nil || d.Allowed != c.want {
				t.Errorf("%s: %+v, %v; want allowed: %v", name, d, err, c.want)
			}
		}
	}
}

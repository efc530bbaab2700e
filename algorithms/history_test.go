package algorithms_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"pgregory.net/rapid"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/naming"
	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/internal/transport"
)

const (
	second   = int64(time.Second / time.Microsecond)
	day      = 86_400 * second
	year     = 365 * day
	someTime = int64(1_795_000_000) * second
	digit    = int64(1_000_000_000) * second // from then on a time has 16 digits

	// lastTime is a year before 2^52 µs, in 2112. Beyond that, numbers in Lua lose fractions.
	lastTime = 1<<52 - year
)

// A history is what happens to a limiter. It is drawn before anything is run, so that each
// limiter meets the same.
type history struct {
	start, earliest int64 // µs
	ahead           int64 // the process's clock, of the store's, in µs
	most            int64 // that the clock moves in a step; 0: any
	ops             []op
}

// An op is one step of a history.
type op struct {
	what   string // take, peek, settle, reset, batch, log, foreign or invalid
	move   int64  // µs that the clock moves before it
	edge   bool   // move counts from the end of what the last decision waits for
	ended  bool   // the caller's context has ended
	checks []algorithms.Check
	units  int64                // what the charges cost from now on; how many entries the log gets
	charge int                  // settle: which, counted from the last
	batch  [][]algorithms.Check // like checks, but for the keys
	value  string               // foreign: what somebody else writes at the first check's key
}

// A kind is what the histories of a level have.
type kind struct {
	forward bool  // the clock does not step back
	steady  bool  // a limit does not change
	rated   bool  // no in_flight
	octal   bool  // as miniredis reads a number with a zero in front
	looks   bool  // some checks of buckets look
	most    int64 // that the clock moves in a step, in µs; 0: any
}

// history draws one: up to forty steps of up to five rules, each with two keys.
func (k kind) history(t *rapid.T) history {
	h := history{earliest: second, most: k.most, start: rapid.OneOf(
		rapid.Int64Range(someTime, someTime+day),
		rapid.SampledFrom([]int64{30 * second, digit - 5, digit}),
	).Draw(t, "start")}
	if k.octal {
		h.earliest = digit
	}
	limits := make([][2]algorithms.Limit, rapid.IntRange(1, 5).Draw(t, "rules"))                      // more than the script has room for at first
	h.ahead = rapid.SampledFrom([]int64{0, 22 * 3600 * second, -22 * 3600 * second}).Draw(t, "ahead") // less than the shortest day
	for i := range limits {
		limits[i] = k.limits(t)
		switch {
		case limits[i][0].Algorithm == algorithms.InFlight:
			h.most = year / 10 // no lease ends
		case limits[i][0].Calendar != "":
			h.earliest = max(h.earliest, 3*year) // no date is before 1970
		}
	}
	keys := [2]string{"a", rapid.SampledFrom([]string{"b", "", "#", "a b", "a}:r:sw1:1m", strings.Repeat("ü", 40)}).Draw(t, "other key")}
	apart := rapid.Bool().Draw(t, "rules have other keys") // and so they are in other slots
	rules := make([]string, len(limits))                   // some have several windows
	for i := range rules {
		rules[i] = fmt.Sprint("rule-", i)
		if i > 0 && rules[i-1] == fmt.Sprint("rule-", i-1) && counting(limits[i][0]) != counting(limits[i-1][0]) && rapid.Bool().Draw(t, "windows of one rule") {
			rules[i] = rules[i-1]
		}
	}
	key := func(i int) string {
		key := keys[rapid.IntRange(0, 1).Draw(t, "key")]
		if apart {
			key += fmt.Sprint(i)
		}
		return key
	}
	check := func(i int) algorithms.Check {
		c := algorithms.Check{Rule: rules[i], Key: key(i), Limit: limits[i][0]}
		if !k.steady && rapid.IntRange(0, 4).Draw(t, "other limit") == 0 {
			c.Limit = limits[i][1]
		}
		c.Cost = rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, c.Limit.Quota()+1), atBoundary).Draw(t, "cost")
		c.Shadow = rapid.IntRange(0, 7).Draw(t, "shadow") == 0
		switch c.Limit.Algorithm {
		case algorithms.InFlight:
			c.Cost = min(c.Cost, 1)
		case algorithms.LeakyBucket:
			c.MaxDelay = drawMaxDelay(t, c.Limit)
		case algorithms.TokenBucket:
			if k.looks && rapid.IntRange(0, 3).Draw(t, "look") == 0 {
				c.Cost, c.Look = 0, true
			}
		}
		return c
	}
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		o := op{ended: rapid.IntRange(0, 19).Draw(t, "ended") == 0}
		for i := range limits {
			o.checks = append(o.checks, check(i))
		}
		switch dice := rapid.IntRange(0, 39).Draw(t, "what"); {
		case dice < 6:
			o.what = "settle"
			o.charge = rapid.IntRange(0, 9).Draw(t, "charge")
			o.units = rapid.OneOf(rapid.Just[int64](0), rapid.Int64Range(0, 5), atBoundary, debts).Draw(t, "new cost")
		case dice < 10:
			o.what = "peek"
		case dice < 12:
			o.what = "reset"
			o.checks = o.checks[:rapid.IntRange(1, len(o.checks)).Draw(t, "resets")]
		case dice < 16:
			if o.what = "foreign"; k.octal { // which says otherwise what is no number
				o.checks = o.checks[:1]
			}
			o.value = rapid.SampledFrom(foreign).Draw(t, "foreign")
		case dice < 21:
			o.what = "batch"
			for range rapid.IntRange(2, 8).Draw(t, "requests") {
				checks := slices.Clone(o.checks)
				for i := range checks {
					checks[i].Key = key(i)
				}
				o.batch = append(o.batch, checks)
			}
		case dice < 22:
			o.what = "invalid"
			o.units = rapid.Int64Range(0, 3).Draw(t, "mistake")
		case dice < 24 && o.checks[0].Limit.Algorithm == algorithms.SlidingLog:
			o.what, o.checks = "log", o.checks[:1]
			o.checks[0].Cost = 1
			o.units = rapid.SampledFrom([]int64{3, step.MaxRewritten - 1, step.MaxRewritten, 2000}).Draw(t, "entries")
		default:
			o.what = "take"
		}
		o.move, o.edge = k.move(t, o.checks[0].Limit)
		h.ops = append(h.ops, o)
	}
	return h
}

// limits draws a limit, and another one that shares its counts.
func (k kind) limits(t *rapid.T) [2]algorithms.Limit {
	switch dice := rapid.IntRange(0, 12).Draw(t, "algorithm"); {
	case dice < 2 && !k.rated: // in a lease that never ends: a Memory has none
		l := algorithms.Limit{Rate: rapid.Int64Range(1, 5).Draw(t, "at once"), Period: 17 * 365 * 24 * time.Hour, Algorithm: algorithms.InFlight}
		return [2]algorithms.Limit{l, {Rate: l.Rate + 2, Period: l.Period, Algorithm: l.Algorithm}}
	case dice < 4:
		l := algorithms.Limit{Rate: rapid.OneOf(rapid.Int64Range(1, 12), atBoundary).Draw(t, "in a window"), Calendar: rapid.SampledFrom([]string{
			"day@UTC", "day@America/Santiago", "day@Asia/Kathmandu", "week@Europe/Berlin", "month@UTC", "month:31@Pacific/Apia", "quarter@America/Havana", "year@UTC",
		}).Draw(t, "calendar")}
		return [2]algorithms.Limit{l, {Rate: 3, Calendar: l.Calendar}}
	}
	l := drawLimit(t)
	return [2]algorithms.Limit{l, changed(t, l)}
}

// move draws how far the clock moves: mostly a little, sometimes to the edges of an
// answer, now and then back, or a year to and fro.
func (k kind) move(t *rapid.T, l algorithms.Limit) (by int64, edge bool) {
	if rapid.IntRange(0, 4).Draw(t, "to the edge") == 0 {
		return rapid.Int64Range(-1, 0).Draw(t, "of it"), true
	}
	period := periodOf(l)
	by = rapid.OneOf(
		rapid.Int64Range(0, 3),
		rapid.Int64Range(0, period/4+1),
		rapid.Int64Range(0, 3*period),
		rapid.SampledFrom([]int64{period, 2*period - 1, -1, -1, -second, -period, -period - 1, year / 10, -year / 10, year, -year}),
	).Draw(t, "move")
	if by < 0 && k.forward {
		by = -by
	}
	return by, false
}

// The limits that are hardest to represent, each where Validate accepts it.
var extremes = []algorithms.Limit{
	{Rate: 1, Period: 24 * time.Hour},
	{Rate: 1, Period: 720 * time.Hour},
	{Rate: 20, Period: 57 * 365 * 24 * time.Hour},
	{Rate: 999_999, Period: 720 * time.Hour},
	{Rate: 200_003, Period: 24 * time.Hour},
	{Rate: 999_983, Period: time.Second},
	{Rate: 1_000_000, Period: time.Second},
	{Rate: 3, Period: 10 * time.Microsecond},
	{Rate: 7, Period: time.Microsecond},
	{Rate: step.MaxSquared, Period: time.Hour},
	{Rate: 1 << 40, Period: time.Hour},
	{Rate: step.MaxUnits, Period: 24 * time.Hour},
	{Rate: step.MaxUnits, Period: time.Microsecond},
}

// The numbers around which the states of windows have another form; see
// internal/script/common.lua.
var atBoundary = rapid.SampledFrom([]int64{998, 999, 1000, 1001, 999_998, 999_999, 1_000_000, 1_000_001})

// debts are larger than any limit, up to those that must be cut.
var debts = rapid.SampledFrom([]int64{1 << 30, 1 << 45, math.MaxInt64})

// foreign are values that no step writes. The last ones are made of what is stored.
var foreign = []string{
	"word", "sixteen, letters", "1234567890.12345", "-1234567890.12345", "0x12345678901234", "12345678901234567",
	"a sentence as long as a state, more or less", "list", "list of two", "hash", "spoiled", "spoiled", "longer",
}

// drawLimit draws limits from one in 30 days to a million in a second, of every algorithm
// that limits a rate.
func drawLimit(t *rapid.T) algorithms.Limit {
	row := rapid.SampledFrom(step.Table).Filter(func(r step.Row) bool { return !r.Held && !r.Calendar }).Draw(t, "of")
	l := rapid.OneOf(
		rapid.SampledFrom(extremes),
		rapid.Custom(func(t *rapid.T) algorithms.Limit {
			return algorithms.Limit{
				Rate: rapid.OneOf(rapid.Int64Range(1, 12), rapid.SampledFrom([]int64{100, 2_500, 7_919}), atBoundary).Draw(t, "rate"),
				Period: rapid.SampledFrom([]time.Duration{
					time.Millisecond, 37 * time.Microsecond, time.Second, 1234567 * time.Microsecond, time.Minute,
				}).Draw(t, "period"),
			}
		}),
	).Draw(t, "limit")
	l.Algorithm = algorithms.Algorithm(row.Number)
	if row.Bucket {
		l.Burst = rapid.OneOf(rapid.Just[int64](1), rapid.Int64Range(1, 20), rapid.Just(min(l.Rate, 1_000_000)), rapid.Just(l.Rate)).Draw(t, "burst")
	}
	return within(l)
}

// within changes a limit as little as Validate asks for.
func within(l algorithms.Limit) algorithms.Limit {
	l.Rate = min(l.Rate, step.Lookup(uint16(l.Algorithm)).MaxRate)
	for l.Burst > 1 && l.Validate() != nil {
		l.Burst /= 2
	}
	if err := l.Validate(); err != nil {
		panic(fmt.Sprint(l, ": ", err))
	}
	return l
}

// changed is another limit for the same state: raised, lowered or the burst.
func changed(t *rapid.T, l algorithms.Limit) algorithms.Limit {
	l.Rate = rapid.SampledFrom([]int64{1, max(l.Rate/2, 1), l.Rate + 1, l.Rate * 3}).Draw(t, "new rate")
	if l.Burst > 0 {
		l.Burst = rapid.SampledFrom([]int64{1, max(l.Burst/3, 1), l.Burst + 1, l.Burst * 10}).Draw(t, "new burst")
	}
	return within(l)
}

func TestLimitTextRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for _, want := range (kind{}).limits(t) {
			var got algorithms.Limit
			if err := got.UnmarshalText([]byte(want.String())); err != nil || got != want {
				t.Fatalf("%q reads as %+v, %v; want %+v", want, got, err, want)
			}
		}
	})
}

// drawMaxDelay draws how long a request can wait: mostly for ever, or a few slots.
func drawMaxDelay(t *rapid.T, l algorithms.Limit) time.Duration {
	return rapid.OneOf(
		rapid.Just[time.Duration](0),
		rapid.Just[time.Duration](1), // less than a microsecond
		rapid.Map(rapid.Int64Range(0, 3), func(slots int64) time.Duration { return time.Duration(slots) * l.Period / time.Duration(l.Rate) }),
		rapid.Map(rapid.Int64Range(0, 2*l.Period.Microseconds()), step.Micros),
	).Draw(t, "max delay")
}

// counting is what limits of one count have in common.
func counting(l algorithms.Limit) algorithms.Limit {
	return algorithms.Limit{Period: l.Period, Calendar: l.Calendar, Algorithm: l.Algorithm}
}

// periodOf is about how long a limit's windows are, in µs. That of in_flight is a lease.
func periodOf(l algorithms.Limit) int64 {
	if l.Algorithm == algorithms.InFlight {
		return second
	}
	return cmp.Or(l.Period, 24*time.Hour).Microseconds()
}

// A subject is a limiter that histories are run on, beside a Memory.
type subject struct {
	limiter algorithms.Limiter
	setTime func(us int64)
	here    *int64     // the clock of this process, in µs; nil if the limiter has none
	store   *textStore // nil if it is none
	// together takes several requests at once; nil: one after the other.
	together func(ctx context.Context, requests [][]algorithms.Check) ([]algorithms.Decision, error)
	guarded  bool // some denials are told from memory, without asking about the request's other checks

	results, denied int // compared so far
}

// A textStore is where a limiter keeps its states.
type textStore struct {
	flush func()
	ttl   func(key string) time.Duration // whole milliseconds; negative if there is none
	put   func(key, value string)        // writes what is not ours, of foreign
	dump  func(key string) string
	calm  bool // deadlines are not late
}

// A charge is as both stores returned it.
type charge struct{ got, want algorithms.Result }

// A run is one of a history on a subject and on a Memory.
type run struct {
	*subject
	memory               *algorithms.Memory
	now, earliest, ahead int64
	charges              []charge                              // the newest first
	known                map[algorithms.Check]algorithms.Check // of each count
}

// run runs a history, and says where the subject differs from a Memory.
func (s *subject) run(h history) error {
	r := run{subject: s, now: max(h.start, h.earliest), earliest: h.earliest, ahead: h.ahead, known: map[algorithms.Check]algorithms.Check{}}
	r.memory = &algorithms.Memory{Now: func() time.Time { return time.UnixMicro(r.now) }}
	if s.store != nil {
		s.store.flush()
	}
	var wait int64 // what the last decision waits for
	for i, o := range h.ops {
		if o.edge {
			o.move = max(wait+o.move, 0)
		}
		if h.most > 0 {
			o.move = min(max(o.move, -h.most), h.most)
		}
		ctx, cancel := context.WithCancel(context.Background())
		if o.ended {
			cancel()
		}
		err := r.move(o.move)
		for _, c := range slices.Concat(append(o.batch, o.checks)...) {
			r.known[algorithms.Check{Rule: c.Rule, Key: c.Key, Limit: counting(c.Limit)}] = named(c)
		}
		var d algorithms.Decision
		if err == nil {
			d, err = r.do(ctx, o)
		}
		if err == nil {
			err = r.remembers(o.checks)
		}
		cancel()
		if err != nil {
			return fmt.Errorf("step %d, %s at %d: %w", i, o.what, r.now, err)
		}
		if wait = d.RetryAfter().Microseconds(); wait > year {
			wait = 0
		}
	}
	return nil
}

// move moves the clock. If it steps back, what equals keys never seen is dropped before:
// what a store had not come round to dropping would count again.
func (r *run) move(by int64) error {
	if by < 0 {
		var drop []algorithms.Check
		for _, c := range r.known {
			d, err := r.memory.Peek(context.Background(), c)
			if err != nil {
				return err
			}
			if d.Results[0].ResetAfter == 0 && c.Limit.Algorithm != algorithms.InFlight {
				drop = append(drop, c)
			}
		}
		if err := r.both(func(l algorithms.Limiter) error { return l.Reset(context.Background(), drop...) }); err != nil {
			return err
		}
	}
	r.now = min(max(r.now+by, r.earliest), lastTime)
	r.setTime(r.now)
	if r.here != nil {
		*r.here = r.now + r.ahead
	}
	return nil
}

// waited reads the clock of a bubble, in which a limiter may wait.
func (r *run) waited() {
	if r.guarded {
		r.now = time.Now().UnixMicro()
	}
}

func (r *run) both(f func(algorithms.Limiter) error) error {
	return errors.Join(f(r.limiter), f(r.memory))
}

// do does one step on both, and returns what a decision came to.
func (r *run) do(ctx context.Context, o op) (d algorithms.Decision, err error) {
	held := func(c algorithms.Check) bool { return c.Limit.Algorithm == algorithms.InFlight }
	switch {
	case o.what == "take", o.what == "peek":
		return r.decide(ctx, o.what, o.checks)
	case o.what == "settle":
		return d, r.settle(ctx, o)
	case o.what == "reset": // but for what is in flight, which a Memory goes on counting
		checks := slices.DeleteFunc(slices.Clone(o.checks), held)
		return d, r.both(func(l algorithms.Limiter) error { return l.Reset(ctx, checks...) })
	case o.what == "batch":
		return d, r.batch(ctx, o)
	case o.what == "log":
		for d.Allowed = true; d.Allowed && o.units > 0 && err == nil; o.units-- {
			_ = r.move(1)
			d, err = r.decide(ctx, "take", o.checks)
		}
		return d, err
	case o.what == "foreign" && !held(o.checks[0]) && r.store != nil:
		return d, r.foreign(ctx, o.checks, o.value)
	case o.what == "invalid":
		return d, r.both(func(l algorithms.Limiter) error { return refuses(ctx, l, o.units, o.checks) })
	}
	return d, nil
}

func (r *run) decide(ctx context.Context, what string, checks []algorithms.Check) (algorithms.Decision, error) {
	decide := algorithms.Limiter.Take
	if what == "peek" {
		decide = algorithms.Limiter.Peek
	}
	got, err := decide(r.limiter, ctx, checks...)
	r.waited()
	if err != nil {
		return got, err
	}
	want, err := decide(r.memory, ctx, checks...)
	if err != nil {
		return want, err
	}
	return want, r.compare(got, want)
}

// batch decides several requests at once that differ in their keys: each as if it came
// alone, in its turn.
func (r *run) batch(ctx context.Context, o op) error {
	if r.together == nil {
		for _, checks := range o.batch {
			if _, err := r.decide(ctx, "take", checks); err != nil {
				return err
			}
		}
		return nil
	}
	all, err := r.together(ctx, o.batch)
	for i := 0; i < len(all) && err == nil; i++ {
		var want algorithms.Decision
		if want, err = r.memory.Take(ctx, o.batch[i]...); err == nil {
			err = r.compare(all[i], want)
		}
	}
	return err
}

// compare compares two decisions, and keeps what they have charged.
func (r *run) compare(got, want algorithms.Decision) error {
	err := r.same(got.Results, want.Results)
	if got.Allowed != want.Allowed {
		err = fmt.Errorf("allowed %v, want %v: %w", got.Allowed, want.Allowed, err)
	}
	for i := range want.Results {
		if !want.Allowed {
			r.denied++
		} else if err == nil && want.Results[i].Charged > 0 {
			r.charges = append(r.charges, charge{got.Results[i], want.Results[i]})
		}
	}
	return err
}

// settle settles up to three charges, some of them for another time.
func (r *run) settle(ctx context.Context, o op) error {
	var got, want []algorithms.Charge
	for len(got) < 3 && len(r.charges) > 0 {
		at := max(len(r.charges)-1-o.charge, 0)
		c := r.charges[at]
		r.charges = slices.Delete(r.charges, at, at+1)
		cost := o.units
		if c.want.Check.Limit.Algorithm == algorithms.InFlight {
			cost = 0
		}
		got, want = append(got, algorithms.Charge{Result: c.got, Cost: cost}), append(want, algorithms.Charge{Result: c.want, Cost: cost})
	}
	now, err := r.limiter.Settle(ctx, got...)
	r.waited()
	then, invalid := r.memory.Settle(ctx, want...)
	if err := errors.Join(err, invalid, r.same(now, then)); err != nil {
		return err
	}
	for i := range then {
		if then[i].Charged > 0 {
			r.charges = append(r.charges, charge{now[i], then[i]})
		}
	}
	return nil
}

// same says in which result two stores differ.
func (r *run) same(got, want []algorithms.Result) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d results, want %d", len(got), len(want))
	}
	for i := range got {
		if r.guarded && got[i].Source == algorithms.SourceNone && !got[i].HasRoom {
			continue // a check that another one denied
		}
		r.results++
		if got[i].Source == algorithms.SourceDenyCache && !want[i].HasRoom {
			continue // what it tells may be a second old
		}
		if g, w := seen(got[i]), seen(want[i]); g != w {
			return fmt.Errorf("result %d of %+v\n got %s\nwant %s", i, want[i].Check, g, w)
		}
	}
	return nil
}

// seen is what a caller sees of a result, whichever store decided.
func seen(r algorithms.Result) string {
	return fmt.Sprintf("%q %q %s: room %v, charged %d, %d left, retry after %s, reset after %s, delay %s, at %d, %v",
		r.Check.Rule, r.Check.Key, r.Check.Limit, r.HasRoom, r.Charged, r.Remaining, r.RetryAfter, r.ResetAfter, r.Delay, r.At.UnixMicro(), r.Err)
}

// remembers checks that a store forgets nothing that counts, and keeps it little longer.
func (r *run) remembers(checks []algorithms.Check) error {
	for _, c := range checks {
		if r.store == nil || c.Limit.Algorithm == algorithms.InFlight {
			return nil
		}
		c.Shadow = false
		d, err := r.memory.Peek(context.Background(), c)
		if err != nil {
			return err
		}
		counts := d.Results[0].ResetAfter
		if counts == 0 {
			continue
		}
		past := time.Duration(r.now%1000) * time.Microsecond // a server's milliseconds have begun
		kept := r.store.ttl(algorithms.KeyOf("test", c)) - past
		if kept < counts || r.store.calm && kept > counts+step.Micros(periodOf(c.Limit))+2*time.Minute {
			return fmt.Errorf("%+v is kept for %s, counts for %s", c, kept, counts)
		}
	}
	return nil
}

// foreign has somebody else write at the first check's key: that is an error, and stays there
// until a Reset. The other checks are decided, all or nothing, as if it were not there.
func (r *run) foreign(ctx context.Context, checks []algorithms.Check, value string) error {
	c := checks[0]
	if _, err := r.memory.Peek(ctx, c); err != nil {
		return err
	}
	key := algorithms.KeyOf("test", c)
	r.store.put(key, value)
	was := r.store.dump(key)
	for _, decide := range []func(context.Context, ...algorithms.Check) (algorithms.Decision, error){r.limiter.Peek, r.limiter.Take} {
		d, err := decide(ctx, c)
		if len(d.Results) > 0 && err == nil {
			err = d.Results[0].Err
		}
		if transport.ClassOf(err) != transport.ClassAnswer {
			return fmt.Errorf("%q at %s: %+v, %w", was, key, d, err)
		}
	}
	charged := algorithms.Result{Check: c, Source: algorithms.SourceRedis, Charged: 1, At: time.UnixMicro(r.now)}
	if _, err := r.limiter.Settle(ctx, algorithms.Charge{Result: charged, Cost: 2}); transport.ClassOf(err) != transport.ClassAnswer {
		return fmt.Errorf("settled where %q is: %w", was, err)
	}
	if others := checks[1:]; len(others) > 0 && r.together == nil {
		got, err := r.limiter.Take(ctx, checks...)
		if err != nil {
			return err
		}
		want, err := r.memory.Take(ctx, others...)
		if err != nil {
			return err
		}
		if err := r.compare(algorithms.Decision{Allowed: want.Allowed, Results: got.Results[1:]}, want); err != nil {
			return err
		}
		first := got.Results[0]
		if transport.ClassOf(first.Err) != transport.ClassAnswer || !strings.Contains(first.Err.Error(), key) || first.HasRoom || first.Charged != 0 || got.Allowed != (want.Allowed && c.Shadow) {
			return fmt.Errorf("%q at %s beside others: allowed %v, %+v", was, key, got.Allowed, first)
		}
		if buckets := slices.DeleteFunc(slices.Clone(others), func(c algorithms.Check) bool { return !naming.Limit(c.Limit).Row().Bucket }); !want.Allowed {
			// What is charged and given back at a lower rate than before loses its fraction of a microsecond.
			if err := r.both(func(l algorithms.Limiter) error { return l.Reset(ctx, buckets...) }); err != nil {
				return err
			}
		}
	}
	if now := r.store.dump(key); now != was {
		return fmt.Errorf("%q at %s was overwritten: %q", was, key, now)
	}
	return r.both(func(l algorithms.Limiter) error { return l.Reset(ctx, c) })
}

// refuses checks that a limiter refuses checks one of which is invalid.
func refuses(ctx context.Context, l algorithms.Limiter, mistake int64, checks []algorithms.Check) error {
	checks = slices.Clone(checks)
	switch last := &checks[len(checks)-1]; mistake {
	case 0:
		last.Cost = -1
	case 1:
		last.MaxDelay = -1
	case 2:
		last.Limit = algorithms.Limit{}
	case 3:
		checks = append(checks, checks[0])
		checks[len(checks)-1].Shadow = !checks[0].Shadow
	}
	taken, err := l.Take(ctx, checks...)
	peeked, errPeek := l.Peek(ctx, checks...)
	for _, err := range []error{err, errPeek, l.Reset(ctx, checks...)} {
		if !errors.Is(err, algorithms.ErrInvalidCheck) || len(taken.Results) > 0 || len(peeked.Results) > 0 {
			return fmt.Errorf("%+v is not refused: %w", checks, err)
		}
	}
	return nil
}

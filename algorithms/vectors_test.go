package algorithms

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/internal/rated"
	"github.com/seed75154129/ratelimit/internal/step"
)

var update = flag.Bool("update", false, "write the vectors from the exact models, and forms of states that are new")

// A vector is a history on one key with its answers, for the contract suite and
// for other implementations of the algorithms. The answers come from
// exact_test.go, not from the steps. limitertest reads and documents the fields.
type vector struct {
	Name  string       `json:"name"`
	Limit string       `json:"limit"`
	Steps []vectorStep `json:"steps"`
}

type vectorStep struct {
	At         int64   `json:"at"`
	Limit      string  `json:"limit,omitempty"`
	Ban        []int64 `json:"ban,omitempty"`
	Do         string  `json:"do,omitempty"`
	Length     int64   `json:"length,omitempty"`
	Settle     int     `json:"settle,omitempty"`
	Cost       int64   `json:"cost"`
	MaxDelay   int64   `json:"max_delay,omitempty"`
	Shadow     bool    `json:"shadow,omitempty"`
	Allowed    bool    `json:"allowed"`
	Banned     bool    `json:"banned,omitempty"`
	Charged    int64   `json:"charged,omitempty"`
	Remaining  int64   `json:"remaining"`
	RetryAfter int64   `json:"retry_after,omitempty"`
	ResetAfter int64   `json:"reset_after"`
	Delay      int64   `json:"delay,omitempty"`
}

// histories are what the vectors are about. Limits are separated by commas; each
// algorithm that has such a limit gets it, or only the one it names. The steps are
//
//	+10ms    wait
//	@250ms   wait for the next window and this much of it, or less than all of it (@-1us)
//	3        take 3 units
//	3*5      do so five times
//	3~1ms    take 3 units with this MaxDelay
//	2-5      take what is left of 5 units, and at least 2
//	%3, ^3   take 3 units in shadow; Peek for 3 units
//	3!       take 3 units; if they are denied, do so again one µs before RetryAfter is over, and then
//	a:3      take 3 units that are called a
//	a=1      settle a to 1 unit
//	?        ask for more than the limit ever has: this shows what is left
//	full     wait for ResetAfter; ask one µs earlier and then
//	5/1s     change the limit; _ is a space
//	ban:3,1m,1h  the checks have a Ban from now on: After, Within, For
//	hand:1h  ban by hand; hand:0s lifts the ban
//	reset    forget the count and the ban
var histories = []struct{ name, limits, steps string }{
	{"up to the limit and over it", "3/1m", "1 1 +1us 1 +1us 1 1 +59.99999s 1 +8us 1 +1m 1"},
	{"up to the limit and over it", "5/1s", "@250ms 1*5 1 1"},
	{"any period, at any phase of it", "2/37us, 2/1s, 2/7s, 2/36h", "@0s 1*3 @1us 1*3 @12us 1*3 @-1us 1*3"},
	{"around the boundary of a window", "4/100ms", "+99.999ms 4 +1us 4 +1us 1 +49.999ms 2 +49.999ms 1 +1us 1 +100ms 4"},
	{"around the boundary of a window", "5/1s", "@-1us 1*6 +1us 1*6 +200ms 1 1 +200ms 1 1 +200ms 1 1 +200ms 1 1 +200ms 1"},
	{"the window before counts by its share in view", "10/10s", "@2.5s 8 +10s ? 1*4 1 +1us ? +1.249998s ? +1us ?"},
	{"what was used is forgotten", "10/1s", "@0s 10 +1.999999s ? +1us 10 +1h 10"},
	{"one in 30 days", "1/720h", "1 +1us 1 +719h59m59.999998s 1 +1us 1 +1440h 1"},
	{"awkward and fast", "7919/1234567us", "7919 +155us 1 +1us 1 +77777us 499 +1us 1 +1234567us 7000"},
	{"terabytes", "999999999999999/1h", "@0s 999999999999998 2 1 1"},
	{"terabytes", "1000000000000/1000s", "999999999999 2 +1us 1001 1 +1us 1"},
	{"the largest rate", "94906265/24h", "@1us 94906264 +36h0m0.000006s ? 47453133 1!"},
	{"the largest rate", "94906264/24h", "94906263 2!"},

	{"a cost takes all of its units or none", "10/1s", "4 +10us 4 +10us 4 +10us 2 +499.999ms 1 +250ms 5 +250ms 10 +3s 10"},
	{"a cost takes all of its units or none", "10/1s", "@250ms 3*5 1 1"},
	{"a cost of 0 means 1", "3/1s", "@250ms 0*4"},
	{"a cost of the whole quota is admitted once", "10/1s", "@250ms 10 1"},
	{"a cost of the whole quota is admitted once", "2/1s burst 6", "6 1"},
	{"a cost above the quota is never admitted and charges nothing", "10/1s, 20/1s burst 6",
		"@250ms 11 7 1000000 9007199254740992 9223372036854775807 4 11 6 11"},

	{"a burst at once, then the rate", "2/1s burst 1, 2/1s burst 2, 2/1s burst 7", "1*8 1 +3.5s 1"},
	{"a burst at once, then the rate", "10/1s burst 5, 10/1s", "5 +250ms 1*3" + strings.Repeat(" +50ms 1", 20)},
	{"a burst at once, then the rate", "10/1s burst 10", "3 5 3 +50ms 2"},
	{"no more than the burst is held", "10/1s burst 5", "5 +500ms 4 1 1 +1h 4 1 1"},
	{"what comes faster than the rate goes at the rate", "10/1s burst 4", strings.Repeat("1 +30ms ", 40)},
	{"units come free one by one", "10/1s", strings.Repeat("1 +99.999ms ? +1us ", 10) + strings.Repeat("1 1 +100ms ", 10)},
	{"many units come free one by one", "150/1m sliding_log", strings.Repeat("1 +100ms ", 150) +
		"1 2 50 51 52 100 101 149 150 +54.9s 100"},
	{"denials put nothing off", "10/1s", "@250ms 10" + strings.Repeat(" +100ms 1", 18)},
	{"thirds are not lost", "3/1s", "3 +333.333ms 1 +1us 1 +333.333ms 1 +333.333ms 1 +1us 1 +1s 2 +2s 3"},
	{"nothing is lost to rounding", "3/1s, 7/1m burst 3, 999983/1s burst 3", "3" + strings.Repeat(" 1!", 14)},

	{"RetryAfter is tight", "10/1s, 10/1s burst 5", "@250ms 5 5 1! 3! +2s @-1us 4 4 3! +2s 8 3!"},
	{"RetryAfter is tight", "3/1s", "@0s 3 1! +2s 3 2!"},
	{"RetryAfter is tight", "10/10s", "@0s 8 +12.5s 4 1! 3!"},
	{"RetryAfter is tight", "10/10s", "@0s 8 +12.5s 4 3!"},
	{"RetryAfter is tight", "7/1s", "@0s 3 +1.1s 4 1!"},
	{"RetryAfter is tight", "7/1s", "@0s 4 +1.75s 6 1!"},
	{"RetryAfter is tight", "10/10s", "@2.5s 10 1!"},
	{"RetryAfter is tight", "10/10s", "@2.5s 10 4!"},
	{"RetryAfter is tight", "10/10s", "@0s 2 +15s 9 3!"},
	{"RetryAfter is tight", "10/10s", "@2.5s 1 10!"},
	{"RetryAfter is tight", "10/10s", "3 +2s 4 +3s 3 11 1! +20s 3 +2s 4 +3s 3 3! +20s 3 +2s 4 +3s 3 4! +20s 3 +2s 4 +3s 3 7! +20s 3 +2s 4 +3s 3 8!"},
	{"ResetAfter is when all units are free and not a microsecond earlier", "10/1s", "? @250ms 1 full @250ms 4 full @250ms 10 full 1 +1h ?"},
	{"ResetAfter is when all units are free and not a microsecond earlier", "3/1s", "1 full"},

	{"Peek charges nothing and decides as Take then does", "10/1s", "@250ms" + strings.Repeat(" ^1 1", 10) + " ^1 1 ^11 11 ^1 1 ^11 11 ^1!"},
	{"a shadow check is decided and charged but never enforced", "10/1s", "@250ms %1*10 %1 %1"},
	{"a shadow check shares its count with enforced ones", "10/1s", "@250ms %7 3 %1 1"},
	{"a shadow check whose cost is above the quota is never enforced", "10/1s", "@250ms %11 ? 1"},

	{"MaxDelay denies who would wait longer, in a leaky bucket only", "10/1s", "1~1us 2 1~1us 1~299.999ms 1~300ms 6~300ms 2~250ms! 1"},
	{"MaxDelay denies who would wait longer, in a leaky bucket only", "10/1s burst 5", "4 2~1h 2~300ms 2~200ms 3~300ms 6~1us"},
	{"MaxDelay denies who would wait longer, in a leaky bucket only", "3/1s", "1 1~333.333ms 1~333.334ms 1~333.334ms!"},

	{"Settle to less gives back", "10/1s", "@250ms a:4 a=0 ? b:0 3 c:6 c=0 ? b=0 ?"},
	{"Settle to less gives back", "10/1s", "@250ms a:10 a=1 1 ?"},
	{"Settle to the same changes nothing", "10/1s", "@250ms a:4 a=4 ? +10s a=4 ?"},
	{"Settle to more charges the rest", "10/1s", "@250ms a:1 a=7 b:1 b=2 1 1"},
	{"Settle to more charges the present", "10/1s", "@250ms a:1 +2s a=4 ?"},
	{"Settle goes into any debt", "10/1m", "a:4 a=7 +7us 1 +1us b:1 b=10 +1us 1 +41.999991s 1 +18s 1 +1m 10"},
	{"Settle goes into any debt", "10/1s", "@250ms a:8 a=15 1! ?"},
	{"Settle goes into any debt", "10/1s", "@250ms a:1 b:3 a=30 1 b=40 1 ? 100/1s ? 10/1s 1! full"},
	{"Settle goes into any debt", "10/1s burst 10", "a:1 b:3 a=30 1 b=40 1 ? 10/1s_burst_100 ? 10/1s_burst_10 1! full"},
	{"Settle gives back to the window that was charged, while it counts", "10/1s", "@250ms a:4 b:3 c:1 +749.999ms a=0 ? +1us b=0 ? 2 c=0 ?"},
	{"Settle gives back to the window that was charged, while it counts", "10/10s",
		"@2.5s a:4 b:3 d:1 +10s c:2 a=0 ? b=2 ? +9.999999s c=1 ? 1 b=0 d=0 ? +1h c=0 ?"},
	{"Settle gives back what is in the log", "10/10s",
		"a:4 +2s b:3 d:1 +2s c:2 b=2 ? a=0 ? c=1 ? +7.999999s ? +1us ? d=0 ? e:5 e=0 ? +2s ? f:1 +1s f=20 ? +9s ? +1s ?"},
	{"Settle gives back what was not refilled since", "10/1s", "a:5 5 a=0 ?"},
	{"Settle gives back what was not refilled since", "10/1s", "a:5 5 +300ms a=0 ?"},
	{"Settle gives back what was not refilled since", "10/1s", "a:5 5 +350ms a=0 ?"},
	{"Settle gives back what was not refilled since", "10/1s", "a:5 5 +499.999ms a=0 ?"},
	{"Settle gives back what was not refilled since", "10/1s", "a:5 5 +500ms a=0 ?"},
	{"Settle gives back what was not refilled since", "10/1s", "a:5 5 +700ms a=0 ?"},
	{"Settle gives back what was not refilled since", "10/1s", "a:5 5 +1s a=0 ?"},
	{"Settle gives back what was not refilled since", "10/1s", "a:5 5 +1h a=0 ?"},
	{"Settle gives back a part first, then less", "10/1s", "a:5 5 a=3 ?"},
	{"Settle gives back a part first, then less", "10/1s", "a:5 5 +200ms a=3 ?"},
	{"Settle gives back a part first, then less", "10/1s", "a:5 5 +300ms a=3 ?"},
	{"Settle gives back a part first, then less", "10/1s", "a:5 5 +400ms a=3 ?"},
	{"Settle gives back a part first, then less", "10/1s", "a:5 5 +450ms a=3 ?"},
	{"Settle gives back a part first, then less", "10/1s", "a:5 5 +600ms a=3 ?"},
	{"Settle gives a place back only while it is the last", "10/1s", "a:3 b:3 a=0 ? +100ms b=1 1 b=0 ?"},
	{"Settle gives a place back only while it is the last", "10/1s", "a:3 +150ms ? a=0 1"},
	{"Settle gives a place back only while it is the last", "10/1s", "a:3 +350ms 1 a=0 ?"},
	{"Settle loses nothing to rounding", "3/1s", "a:3 a=2 b:1" + strings.Repeat(" b=0 b:1", 5) + " +100ms b=0 ? 1"},
	{"Settle loses nothing to rounding", "3/1s", "a:3 a=2 b:1" + strings.Repeat(" b=0 b:1", 5) + " +666.666ms b=0 ? 1"},

	{"Settle gives nothing back of what was forgotten", "10/1s", "@250ms a:4 reset a=3 a=0 ?"},

	{"a key that is denied After times is banned", "10/1s", "@250ms ban:3,1m,1h 10 1 1 1 +1m 1 +58m59.999999s 1 +1us @250ms 10 1 1 1"},
	{"denials during a ban do not extend it", "10/1s", "@250ms ban:1,1m,10ms 10 1" + strings.Repeat(" +1ms 1", 10)},
	{"denials count towards a ban if they come Within the first", "1/1h", "@0s ban:3,10s,20s 1 1 +9.999999s 1 +1us 1 +5s 1 +4.999999s 1"},
	{"denials count towards a ban if they come Within the first", "1/1h", "@0s ban:2,1us,1m 1 1 +1us 1 1"},
	{"a ban's Within is the limit's period if it is 0", "1/1h burst 1", "@0s ban:2,0s,3h 1 1 +1h 1 1 +59m59.999999s 1"},
	{"Peek counts no denial and sees a ban", "10/1s", "@250ms ban:2,0s,1h 10 1 ^1 ^1 ^1 1 ^1 +59m59.999999s ^1 +1us ^1"},
	{"a shadow check is not banned and counts no denial", "10/1s", "@250ms ban:2,0s,1h 10 %1 %1 %1 1 1 %1"},
	{"denials for MaxDelay alone do not count towards a ban", "1/1s burst 3 leaky_bucket", "@0s ban:2,1m,1h 1 1 1~1s 1~1s 1~1s 2~1s 4~1s"},
	{"a denial for ever counts towards a ban", "10/1s", "@250ms ban:2,0s,1h 11 11 1"},
	// Those of two instances during a roll-out. Neither begins a ban that it does not
	// say, and what one has begun holds for the other, too.
	{"two bans on one key obey each other", "1/24h", "@0s ban:2,1m,1m 1 ban:4,1h,10h 1 +1m ban:2,1m,1m 1 ban:4,1h,10h 1 +1m 1 1 ban:2,1m,1m 1 " +
		"+10h ban:4,1h,10h 1 ban:2,1m,1m 1 ban:4,1h,10h 1"},
	{"Ban bans by hand, and never for less than before", "10/1s", "@250ms ban:3,0s,1m 1 hand:1h hand:1s 1 hand:2h 1 +1h 1"},
	{"Ban bans by hand, and never for less than before", "10/1s", "@250ms ban:3,0s,1m hand:1h 1 +1h 1"},
	{"Ban bans a check without a Ban", "10/1s", "@250ms 4 hand:1h 1 ^1 ban:1,0s,1m 1 ban:0,0s,0s hand:0s 1 " +
		"hand:1h +59m59.999999s 1 +1us ^1 @250ms 1 hand:100ms +100ms ? hand:1h reset ?"},
	{"Ban does nothing to a shadow check", "10/1s", "@250ms 4 hand:1h %1 ban:1,0s,1m %1 ban:0,0s,0s 1 hand:0s 1"},
	{"Ban with 0 lifts a ban and forgets denials, and counts stay", "10/1s", "@250ms ban:2,0s,1h 10 1 hand:0s 1 1 hand:0s 1 1"},
	{"Reset forgets what was used", "10/1s", "@250ms 10 reset ? 10 1"},
	{"Reset forgets a count whatever its rate and cost are now", "10/1s", "@250ms 1 %11 1000/1s reset 10/1s ?"},
	{"Reset lifts a ban and forgets denials", "10/1s", "@250ms ban:2,0s,1h 10 1 reset 10 1 reset 10 1 1 ban:0,0s,0s reset 1"},

	{"a limit that changes keeps its count", "10/1s", "@250ms 4 3/1s 1 6/1s 1 20/1s 1 14 10/1s 11 100/1s 80"},
	{"a limit that changes keeps its count", "10/10s", "@0s 8 +12.5s 4/10s 1 7/10s 1 20/10s 1"},
	{"a limit that changes keeps its count", "10/1s burst 10", "4 10/1s_burst_3 1 10/1s_burst_6 1 10/1s_burst_20 1"},
	{"a limit that changes keeps its count", "10/1s", "10 5/1s 1 20/1s 1 +500ms 10"},
}

// limitOf is a limit of the algorithm, and its text; false if there is none.
func limitOf(a *step.Row, text string) (l Limit, _ string, ok bool) {
	text = strings.NewReplacer("_burst_", " burst ").Replace(text)
	if !strings.HasSuffix(text, " "+a.Name) {
		if rate, _, _ := strings.Cut(text, "/"); a.Queue && !strings.Contains(text, "burst") {
			text += " burst " + rate
		}
		text += " " + a.Name
	}
	l, err := ParseLimit(text)
	return l, text, err == nil
}

// A recorder writes a vector as its exact model answers.
type recorder struct {
	vector
	row     *step.Row
	limit   Limit
	model   exactModel
	now     int64
	charges int            // of the model
	called  map[string]int // a step with a name, from 1
	charge  map[string]int // the model's
	changed string         // to which limit, since the last step

	ban            Ban     // of the checks
	newBan         []int64 // since the last step
	byHand, byRule int64   // when bans end
	denials, since int64   // how many count towards a ban, and when the first came
}

func (r *recorder) run(steps string) {
	for word := range strings.FieldsSeq(steps) {
		name, cost, named := strings.Cut(word, ":")
		settled, to, settles := strings.Cut(word, "=")
		switch {
		case word[0] == '+':
			r.now += micros(word[1:])
		case word[0] == '@':
			period, phase := r.limit.Period.Microseconds(), micros(word[1:])
			r.now += period - r.now%period + (phase+period)%period
		case word == "?":
			r.take(vectorStep{Cost: r.limit.Quota() + 1})
		case word == "full":
			r.now += r.Steps[len(r.Steps)-1].ResetAfter - 1
			r.run("? +1us ?")
		case named && name == "ban":
			parts := strings.Split(cost, ",")
			r.ban = Ban{After: units(parts[0]), Within: step.Micros(micros(parts[1])), For: step.Micros(micros(parts[2]))}
			r.newBan = []int64{r.ban.After, micros(parts[1]), micros(parts[2])}
		case named && name == "hand":
			r.banByHand(micros(cost))
		case word == "reset":
			r.model, r.byHand, r.byRule, r.denials = exactOf(r.limit), 0, 0, 0
			r.charges, r.charge = 0, map[string]int{}
			r.answer(vectorStep{Do: "reset"})
		case settles:
			r.settle(settled, units(to))
		case named:
			if r.takes(cost); r.chargedBy(len(r.Steps)) == 0 {
				panic(fmt.Sprintf("%s of %s: there is no %s to settle", r.Name, r.Limit, word))
			}
			r.called[name], r.charge[name] = len(r.Steps), r.charges-1
		case strings.Contains(word, "/"):
			l, text, _ := limitOf(r.row, word)
			r.limit, r.changed = l, text
			r.model.change(r.now, l.Rate, l.Quota())
		default:
			r.takes(word)
		}
	}
}

func (r *recorder) takes(word string) {
	var s vectorStep
	word, tight := strings.CutSuffix(word, "!")
	word, times, _ := strings.Cut(word, "*")
	word, delay, waits := strings.Cut(word, "~")
	if waits {
		s.MaxDelay = micros(delay)
	}
	if word, s.Shadow = strings.CutPrefix(word, "%"); word[0] == '^' {
		word, s.Do = word[1:], "peek"
	}
	s.Cost = units(word)
	for range max(units("0"+times), 1) {
		r.take(s)
	}
	if retry := r.Steps[len(r.Steps)-1].RetryAfter; tight && retry > 0 {
		r.now += retry - 1
		r.take(s)
		r.now++
		r.take(s)
	}
}

// first finds the first time from now on at which it is so.
func (r *recorder) first(so func(now int64) bool) int64 {
	most := int64(1)
	for !so(r.now + most) {
		most *= 2
	}
	least := int64(0)
	for least < most {
		if mid := (least + most) / 2; so(r.now + mid) {
			most = mid
		} else {
			least = mid + 1
		}
	}
	return least
}

func (r *recorder) take(s vectorStep) {
	cost, least := max(s.Cost, 1), max(s.Cost, 1)
	queue, _ := r.model.(delayer)
	admits := func(now int64) bool {
		return admits(r.model, now, least) && (queue == nil || s.MaxDelay == 0 || queue.delay(now) <= s.MaxDelay)
	}
	s.Allowed = admits(r.now)
	if s.Allowed && queue != nil {
		s.Delay = queue.delay(r.now)
	}
	banned := r.bannedUntil(s.Shadow) > r.now
	if s.Do == "" && !banned && s.Allowed {
		grant := cost
		if grant != cost || !s.Allowed {
			s.Charged = grant
		}
		r.model.charge(r.now, grant)
		r.charges++
	}
	if !s.Allowed {
		if s.RetryAfter = -1; least <= r.limit.Quota() {
			s.RetryAfter = r.first(admits)
		}
		if s.Do == "" && !banned && !s.Shadow && r.left() < least { // not for MaxDelay alone
			r.denied()
		}
	}
	r.answer(s)
	if rest := r.bannedUntil(s.Shadow) - r.now; rest > 0 {
		last := &r.Steps[len(r.Steps)-1]
		last.Allowed, last.Banned, last.Delay, last.Remaining = false, true, 0, min(last.Remaining, 0)
		if last.ResetAfter = max(last.ResetAfter, rest); last.RetryAfter >= 0 {
			last.RetryAfter = max(last.RetryAfter, rest)
		}
	}
}

// left is how many whole units are left; negative is a debt.
func (r *recorder) left() int64 {
	left := r.model.left(r.now)
	return new(big.Int).Div(left.Num(), left.Denom()).Int64() // rounds down
}

// chargedBy is what a step was charged.
func (r *recorder) chargedBy(step int) int64 {
	s := r.Steps[step-1]
	if s.Charged == 0 && s.Allowed {
		return max(s.Cost, 1)
	}
	return s.Charged
}

// bannedUntil is when the bans end that a check obeys.
func (r *recorder) bannedUntil(shadow bool) int64 {
	switch {
	case shadow:
		return 0
	case r.ban == (Ban{}):
		return r.byHand
	}
	return max(r.byHand, r.byRule)
}

// denied counts a denial towards the ban.
func (r *recorder) denied() {
	if within := cmp.Or(r.ban.Within, r.limit.Period).Microseconds(); r.denials == 0 || r.now-r.since >= within {
		r.denials, r.since = 0, r.now
	}
	if r.denials++; r.ban.After > 0 && r.denials >= r.ban.After {
		r.byRule, r.denials = r.now+r.ban.For.Microseconds(), 0
	}
}

func (r *recorder) banByHand(length int64) {
	if r.byHand = max(r.byHand, r.now+length); length == 0 {
		r.byHand, r.byRule, r.denials = 0, 0, 0
	}
	r.answer(vectorStep{Do: "ban", Length: length})
}

// settle gives back a part of what was charged, or charges more now.
func (r *recorder) settle(name string, cost int64) {
	step := r.called[name]
	was := r.chargedBy(step)
	for _, s := range r.Steps {
		if s.Settle == step {
			was = s.Cost
		}
	}
	if cost > was {
		r.model.charge(r.now, cost-was)
		r.charges++
	} else if cost < was {
		if n, counted := r.charge[name]; counted { // and was not forgotten
			r.model.giveBack(r.now, n, was-cost)
		}
	}
	r.answer(vectorStep{Settle: step, Cost: cost, Allowed: true})
}

// answer writes a step and what is left after it.
func (r *recorder) answer(s vectorStep) {
	s.At, s.Limit, s.Ban, r.changed, r.newBan = r.now, r.changed, r.newBan, "", nil
	s.Remaining = r.left()
	s.ResetAfter = r.first(func(now int64) bool { return admits(r.model, now, r.limit.Quota()) })
	r.Steps = append(r.Steps, s)
}

func micros(text string) int64 {
	d, err := time.ParseDuration(text)
	if err != nil || d.Abs() == math.MaxInt64 {
		panic(fmt.Sprint(text, ": ", err))
	}
	return d.Microseconds()
}

func units(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// TestVectors wants the vectors of the contract suite to be what the exact models
// answer. The suite itself replays them on each store; those of token_bucket are
// also those of gcra.
func TestVectors(t *testing.T) {
	for i := range rated.Rows {
		row := &rated.Rows[i]
		if row.Name == string(GCRA) {
			continue
		}
		t.Run(row.Name, func(t *testing.T) {
			path := filepath.Join("limitertest", "vectors", row.Name+".json")
			want := vectorsOf(t, row)
			if *update {
				if err := os.WriteFile(path, want, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got, err := os.ReadFile(path)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s is not what the exact models answer (%v): run the test with -update", path, err)
			}
		})
	}
}

// vectorsOf writes an algorithm's vectors, a line for each step.
func vectorsOf(t *testing.T, row *step.Row) []byte {
	t.Helper()
	text := []byte("[")
	line := func(indent string, value any) {
		data, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(text, "\n"+indent...), data...)
	}
	for _, h := range histories {
		for limit := range strings.SplitSeq(h.limits, ", ") {
			l, full, ok := limitOf(row, limit)
			if !ok {
				continue
			}
			r := recorder{
				vector: vector{Name: h.name, Limit: full}, row: row, limit: l, model: exactOf(l), now: someTime,
				called: map[string]int{}, charge: map[string]int{},
			}
			r.run(h.steps)
			line("", vector{Name: r.Name, Limit: r.Limit, Steps: []vectorStep{}})
			text = text[:len(text)-len("]}")]
			for _, s := range r.Steps {
				line("  ", s)
				text = append(text, ',')
			}
			text = append(text[:len(text)-1], "]},"...)
		}
	}
	return append(text[:len(text)-1], "\n]\n"...)
}

package limitertest

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

var keyCases = []testCase{
	{name: "two algorithms are counted apart", run: algorithmsApart},
	{name: "two periods are counted apart", run: periodsApart},
	{name: "keys that look alike are counted apart", run: lookalikesApart},
	{name: "Reset forgets only the checks named", run: resetOnlyNamed},
	{name: "no algorithm means sliding window", run: defaultAlgorithm},
}

func algorithmsApart(c *trial) {
	all := c.allSamples()
	var first, second []expectation
	for i := range all {
		all[i].Rule, all[i].Key = "the same rule", "the same key"
		units := int64(i + 1)
		first = append(first, expectation{costing(all[i].Check, units), all[i].charged(units, units)})
		second = append(second, expectation{all[i].Check, all[i].charged(1, units+1)})
	}
	c.takeAll(first...)
	c.takeAll(second...)
	for i, s := range all {
		c.take(s.Check, s.charged(1, second[i].charged+first[i].charged+1))
	}
}

func periodsApart(c *trial) {
	c.eachSample(func(s sample) {
		other := s.Check
		other.Limit.Period = time.Minute
		c.take(costing(s.Check, 9), s.charged(9, 9))
		for n := range int64(2) {
			d, err := c.limiter.Take(c.Context(), other)
			if err != nil || !d.Allowed || d.Results[0].Remaining != 9-n {
				c.Errorf("%s of another period: %+v, %v; want %d left", name(other), d, err, 9-n)
			}
		}
		c.take(s.Check, s.charged(1, 10))
		c.take(s.Check, s.exhausted())
	})
}

// lookalikes are rules and keys that a limiter might take for one another: by
// joining them, by what has a meaning in a store's keys, by length, by letting
// an encoding repair them, or by storing a hash instead.
func lookalikes() [][2]string {
	long := strings.Repeat("a", 200)
	sum := sha256.Sum256([]byte(long))
	all := [][2]string{
		{"a", "b:c"}, {"a:b", "c"}, {"a:b:c", ""}, {"", "a:b:c"}, {"b:c", "a"}, {"c", "a:b"},
		{"a", "b}:c"}, {"a", "{b"}, {"a", "b}"}, {"a", "{b}"}, {"{a}", "b"}, {"a", "{}"}, {"{}", "a"},
		{"c:fw1:1s", "b"}, {"c", "b:fw1:1s"}, {"a", "b}:a:fw1:1s"}, {"a", "b}:a"},
		{"a/b", "c"}, {"a", "b/c"}, {"a|b", "c"}, {"a", "b|c"}, {"a\x00b", "c"}, {"a", "b\x00c"},
		{"a,b", "c"}, {"a", "b,c"}, {"a b", "c"}, {"a", "b c"}, {"ab", "c"}, {"a", "bc"},
		{"\"a\"", "b"}, {"a", "\"b\""}, {"a", "%62"}, {"a", "b%00"}, {"a", "*"}, {"a", "?"}, {"a", "[b]"},
	}
	for _, key := range []string{
		"", " ", "0", "#", "##", "-", "_", "a", "A", "b", "b ", " b", "b\n", "b\r\n", "b\t", "b\x00", "\x00", "\n", "\r\n",
		"\xff", "\xfe", "\xff\xff", "\xc3", "\ufffd", "\ufffd\ufffd", "e\u0301", "\u00e9", "\xe9", "\u200b", "b\u200b", "$-1", "*1", "nil",
		"#" + base64.RawURLEncoding.EncodeToString(sum[:]), "#" + base64.RawURLEncoding.EncodeToString(sum[:16]),
		string(sum[:]), string(sum[:16]), long, long + "a", long + "b", long[1:] + "b", long[:64], long[:65], long[:63] + "b",
		strings.Repeat("a", 1<<16), strings.Repeat("a", 1<<16) + "b", strings.Repeat("\xff", 64), strings.Repeat("\xff", 65),
	} {
		all = append(all, [2]string{"a", key}, [2]string{key, "a"})
	}
	slices.SortFunc(all, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(all)
}

func lookalikesApart(c *trial) {
	l := limit("1/1m burst 1")
	for _, names := range lookalikes() {
		c.take(check(names[0], names[1], l), charged(1, 0, time.Minute))
	}
	for _, names := range lookalikes() {
		c.take(check(names[0], names[1], l), denied(0, time.Minute, time.Minute))
	}
}

func resetOnlyNamed(c *trial) {
	c.eachSample(func(s sample) {
		otherRule, otherKey := s.under("another").Check, s.Check
		otherKey.Key += " of another"
		otherPeriod := limitedTo(s.Check, fixed(10, time.Hour))
		c.take(s.Check, s.charged(1, 1))
		c.take(otherRule, s.charged(1, 1))
		c.take(otherKey, s.charged(1, 1))
		c.take(otherPeriod, charged(1, 9, c.untilNext(time.Hour)))
		c.reset(s.Check)
		c.reset() // nothing
		c.holds(s.Check, 10, 0)
		c.holds(otherRule, 9, s.reset(1))
		c.holds(otherKey, 9, s.reset(1))
		c.holds(otherPeriod, 9, c.untilNext(time.Hour))
		c.reset(otherRule, otherKey, otherPeriod)
		c.holds(otherRule, 10, 0)
		c.holds(otherKey, 10, 0)
		c.holds(otherPeriod, 10, 0)
	})
}

func defaultAlgorithm(c *trial) {
	unnamed := of(algorithms.Limit{Rate: 2, Period: time.Second})
	named := of(sliding(2, time.Second))
	c.align(time.Second, 250*time.Millisecond)
	c.take(unnamed, charged(1, 1, 1750*time.Millisecond))
	c.take(named, charged(1, 0, 1750*time.Millisecond))
	c.take(unnamed, denied(0, 1250*time.Millisecond, 1750*time.Millisecond))
}

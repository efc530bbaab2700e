package algorithms

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/internal/table"
)

func keyOf(namespace string, c Check) string {
	a := c.Limit.row()
	return string(appendKey(nil, namespace, &c, a))
}

func TestKeys(t *testing.T) {
	minute := PerMinute(1)
	for want, c := range map[string]Check{
		"shop:{203.0.113.9}:per-ip:sw1:1m":                {Rule: "per-ip", Key: "203.0.113.9", Limit: minute},
		"shop:{2001:db8::/64}:login:fw1:24h":              {Rule: "login", Key: "2001:db8::/64", Limit: Limit{Rate: 1, Period: 24 * time.Hour, Algorithm: FixedWindow}},
		"shop:{alice}:per-user:tb1:1500ms":                {Rule: "per-user", Key: "alice", Limit: Limit{Rate: 1, Period: 1500 * time.Millisecond, Algorithm: TokenBucket}},
		"shop:{#}:per-user:sw1:1m":                        {Rule: "per-user", Limit: minute},
		"shop:{#yGh6CKpdbtIEQyj6aml6uA}:per-user:sw1:1m":  {Rule: "per-user", Key: "a b", Limit: minute},
		"shop:{#lTfF_fEgSC99WNJentWD9Q}:per-user:sw1:90s": {Rule: "per-user", Key: strings.Repeat("x", 65), Limit: Limit{Rate: 1, Period: 90 * time.Second}},
	} {
		if got := keyOf("shop", c); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Whoever chooses a part of a key must not be able to name another one's. What is one key in
// Redis is one count in the tables of a process.
func TestKeysAreInjectionFree(t *testing.T) {
	part := rapid.OneOf(
		rapid.StringMatching(`[ab:{}#|]{0,4}`),
		rapid.Just("a}:r:sw1:1m"),
		rapid.Just("#"),
		rapid.Just("#yGh6CKpdbtIEQyj6aml6uA"),
		rapid.String(),
	)
	check := rapid.Custom(func(t *rapid.T) Check {
		return Check{Rule: part.Draw(t, "rule"), Key: part.Draw(t, "key"), Limit: rapid.SampledFrom([]Limit{PerMinute(1), PerMinute(2), PerHour(1), {Rate: 1, Period: time.Minute, Burst: 2}, PerDay(1, "UTC")}).Draw(t, "limit")}
	})
	seeds := table.NewSeeds()
	rapid.Check(t, func(t *rapid.T) {
		a, b := check.Draw(t, "a"), check.Draw(t, "b")
		ka, kb := keyOf("ns", a), keyOf("ns", b)
		if _, err := prepare([]Check{a, b}, new([4]step.Params)); (ka == kb) != (err != nil) {
			t.Fatalf("%+v is %q\n%+v is %q", a, ka, b, kb)
		}
		na, nb := step.Name{Rule: a.Rule, Key: a.Key, Window: a.Limit.window()}, step.Name{Rule: b.Rule, Key: b.Key, Window: b.Limit.window()}
		ida, _ := seeds.ID(na)
		idb, _ := seeds.ID(nb)
		var p step.Params
		if a.numbers(&p); p.Window() != na.Window || (ka == kb) != (na == nb) || (ka == kb) != (ida == idb) {
			t.Fatalf("%+v is %q: %v\n%+v is %q: %v", na, ka, ida, nb, kb, idb)
		}
		if tag := ka[strings.Index(ka, "{")+1 : strings.Index(ka, "}")]; len(ka) > 200 || tag == "" || strings.Contains(tag, "{") {
			t.Fatalf("%q: tag %q", ka, tag)
		}
	})
}

func TestNamespaces(t *testing.T) {
	for _, good := range []string{"shop", "shop-eu_1.test", strings.Repeat("x", 64)} {
		if err := validateNamespace(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", "a:b", "a{b", "a}b", "a b", "#a", "ä", strings.Repeat("x", 65)} {
		if err := validateNamespace(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

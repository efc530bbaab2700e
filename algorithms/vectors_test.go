package algorithms

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"

	"github.com/seed75154129/ratelimit/internal/step"
)

var update = flag.Bool("update", false, "write the vectors from the exact models, and forms of states that are new")

// A vector is a history on one key with its answers, for whoever writes the
// algorithm again. The answers come from exact_test.go, not from the steps.
type vector struct {
	Name  string       `json:"name"`
	Limit string       `json:"limit"`
	Steps []vectorStep `json:"steps"`
}

type vectorStep struct {
	At         int64 `json:"at"` // Unix µs
	Cost       int64 `json:"cost"`
	Allowed    bool  `json:"allowed"`
	Remaining  int64 `json:"remaining"`
	RetryAfter int64 `json:"retry_after,omitempty"` // µs
	ResetAfter int64 `json:"reset_after"`           // µs
	Delay      int64 `json:"delay,omitempty"`       // µs
	More       int64 `json:"more,omitempty"`        // units that Settle charges then, beside the cost
}

// histories are what the vectors are about: µs since the last step, a cost, and
// what Settle charges beside it if it was admitted.
var histories = []struct {
	name  string
	limit string // without the algorithm
	steps [][3]int64
}{
	{"up to the limit and over it", "3/1m", [][3]int64{{0, 1, 0}, {0, 1, 0}, {1, 1, 0}, {1, 1, 0}, {0, 1, 0}, {59_999_990, 1, 0}, {8, 1, 0}, {60_000_000, 1, 0}}},
	{"costs", "10/1s", [][3]int64{{0, 4, 0}, {10, 4, 0}, {10, 4, 0}, {10, 2, 0}, {499_999, 1, 0}, {250_000, 5, 0}, {250_000, 10, 0}, {3_000_000, 10, 0}}},
	{"thirds are not lost", "3/1s", [][3]int64{{0, 3, 0}, {333_333, 1, 0}, {1, 1, 0}, {333_333, 1, 0}, {333_333, 1, 0}, {1, 1, 0}, {1_000_000, 2, 0}, {2_000_000, 3, 0}}},
	{"around a boundary", "4/100ms", [][3]int64{{99_999, 4, 0}, {1, 4, 0}, {1, 1, 0}, {49_999, 2, 0}, {49_999, 1, 0}, {1, 1, 0}, {100_000, 4, 0}}},
	{"one in 30 days", "1/720h", [][3]int64{{0, 1, 0}, {1, 1, 0}, {2_591_999_999_998, 1, 0}, {1, 1, 0}, {5_184_000_000_000, 1, 0}}},
	{"awkward and fast", "7919/1234567us", [][3]int64{{0, 7919, 0}, {155, 1, 0}, {1, 1, 0}, {77_777, 499, 0}, {1, 1, 0}, {1_234_567, 7000, 0}}},
	{"into debt and out of it", "10/1m", [][3]int64{{0, 4, 3}, {7, 1, 0}, {1, 1, 9}, {1, 1, 0}, {41_999_991, 1, 0}, {18_000_000, 1, 0}, {60_000_000, 10, 0}}},
}

func (v *vector) exact(a *step.Row, steps [][3]int64) {
	l := v.limit(a)
	model, quota := exactOf(l), l.Quota()
	first := func(admits func(us int64) bool, least int64) int64 {
		most := int64(1)
		for !admits(most) {
			most *= 2
		}
		for least < most {
			if mid := (least + most) / 2; admits(mid) {
				most = mid
			} else {
				least = mid + 1
			}
		}
		return least
	}
	now := someTime
	for _, s := range steps {
		now += s[0]
		step := vectorStep{At: now, Cost: min(s[1], quota)}
		if step.Allowed = admits(model, now, step.Cost); step.Allowed {
			if d, ok := model.(delayer); ok {
				step.Delay = d.delay(now)
			}
			model.charge(now, step.Cost)
			step.More = s[2]
		} else {
			step.RetryAfter = first(func(us int64) bool { return admits(model, now+us, step.Cost) }, 1)
		}
		left := model.left(now)
		step.Remaining = new(big.Int).Div(left.Num(), left.Denom()).Int64() // rounds down
		step.ResetAfter = first(func(us int64) bool { return admits(model, now+us, quota) }, 0)
		v.Steps = append(v.Steps, step)
		model.charge(now, step.More)
	}
}

func (v *vector) limit(a *step.Row) Limit {
	l, err := ParseLimit(v.Limit)
	if err != nil {
		panic(err)
	}
	if string(l.Algorithm) != a.Name {
		panic(fmt.Sprint(v.Limit, " is not of ", a.Name))
	}
	return l
}

func TestVectors(t *testing.T) {
	redis := realBackend(t)
	for i := range step.Table {
		a := &step.Table[i]
		t.Run(string(a.Name), func(t *testing.T) {
			path := filepath.Join("..", "testdata", "vectors", string(a.Name)+".json")
			if *update {
				writeVectors(t, path, a)
			}
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var vectors []vector
			if err := json.Unmarshal(data, &vectors); err != nil {
				t.Fatal(err)
			}
			if len(vectors) < len(histories) {
				t.Fatalf("%d vectors, want %d: run the test with -update", len(vectors), len(histories))
			}
			for _, v := range vectors {
				var m Memory
				redis.flush()
				for n, want := range v.Steps {
					check := Check{Rule: "r", Limit: v.limit(a), Cost: want.Cost}
					inGo := modelAt(&m, want.At, true, []Check{check}).Results[0]
					redis.setTime(want.At)
					d, err := redis.limiter.Take(t.Context(), check)
					if err != nil {
						t.Fatal(err)
					}
					for where, r := range map[string]Result{"Go": inGo, "Redis": d.Results[0]} {
						got := vectorStep{r.At.UnixMicro(), r.Check.Cost, r.Allowed, r.Remaining, r.RetryAfter.Microseconds(), r.ResetAfter.Microseconds(), r.Delay.Microseconds(), want.More}
						if got != want {
							t.Errorf("%s, step %d in %s:\n got %+v\nwant %+v", v.Name, n, where, got, want)
						}
					}
					settleModelAt(&m, want.At, want.Cost+want.More, []Result{inGo})
					if err := settleAll(t.Context(), redis.limiter, want.Cost+want.More, d.Results...); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

func writeVectors(t *testing.T, path string, a *step.Row) {
	t.Helper()
	vectors := make([]vector, len(histories))
	for i, h := range histories {
		vectors[i] = vector{Name: h.name, Limit: h.limit + " " + string(a.Name)}
		if a.Queue {
			l, _ := ParseLimit(h.limit)
			vectors[i].Limit = fmt.Sprintf("%s burst %d %s", h.limit, l.Rate, a.Name)
		}
		vectors[i].exact(a, h.steps)
	}
	data, err := json.MarshalIndent(vectors, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = os.WriteFile(path, append(data, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

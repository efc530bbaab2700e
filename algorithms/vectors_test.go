package algorithms

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the vectors from the exact models")

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
}

// histories are what the vectors are about: pairs of µs since the last step and
// a cost.
var histories = []struct {
	name  string
	limit string // without the algorithm
	steps [][2]int64
}{
	{"up to the limit and over it", "3/1m", [][2]int64{{0, 1}, {0, 1}, {1, 1}, {1, 1}, {0, 1}, {59_999_990, 1}, {8, 1}, {60_000_000, 1}}},
	{"costs", "10/1s", [][2]int64{{0, 4}, {10, 4}, {10, 4}, {10, 2}, {499_999, 1}, {250_000, 5}, {250_000, 10}, {3_000_000, 10}}},
	{"thirds are not lost", "3/1s", [][2]int64{{0, 3}, {333_333, 1}, {1, 1}, {333_333, 1}, {333_333, 1}, {1, 1}, {1_000_000, 2}, {2_000_000, 3}}},
	{"around a boundary", "4/100ms", [][2]int64{{99_999, 4}, {1, 4}, {1, 1}, {49_999, 2}, {49_999, 1}, {1, 1}, {100_000, 4}}},
	{"one in 30 days", "1/720h", [][2]int64{{0, 1}, {1, 1}, {2_591_999_999_998, 1}, {1, 1}, {5_184_000_000_000, 1}}},
	{"awkward and fast", "7919/1234567us", [][2]int64{{0, 7919}, {155, 1}, {1, 1}, {77_777, 499}, {1, 1}, {1_234_567, 7000}}},
}

func (v *vector) exact(a *algorithm, steps [][2]int64) {
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
		step := vectorStep{At: now, Cost: min(s[1], quota), Remaining: quota}
		if step.Allowed = model.admits(now, step.Cost); step.Allowed {
			if d, ok := model.(delayer); ok {
				step.Delay = d.delay(now)
			}
			model.charge(now, step.Cost)
		} else {
			step.RetryAfter = first(func(us int64) bool { return model.admits(now+us, step.Cost) }, 1)
		}
		for step.Remaining > 0 && !model.admits(now, step.Remaining) {
			step.Remaining--
		}
		step.ResetAfter = first(func(us int64) bool { return model.admits(now+us, quota) }, 0)
		v.Steps = append(v.Steps, step)
	}
}

func (v *vector) limit(a *algorithm) Limit {
	l, err := ParseLimit(v.Limit)
	if err != nil {
		panic(err)
	}
	if l.Algorithm != a.name {
		panic(fmt.Sprint(v.Limit, " is not of ", a.name))
	}
	return l
}

func TestVectors(t *testing.T) {
	redis := realBackend(t)
	for i := range table {
		a := &table[i]
		t.Run(string(a.name), func(t *testing.T) {
			path := filepath.Join("..", "testdata", "vectors", string(a.name)+".json")
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
						got := vectorStep{r.At.UnixMicro(), r.Check.Cost, r.Allowed, r.Remaining, r.RetryAfter.Microseconds(), r.ResetAfter.Microseconds(), r.Delay.Microseconds()}
						if got != want {
							t.Errorf("%s, step %d in %s:\n got %+v\nwant %+v", v.Name, n, where, got, want)
						}
					}
				}
			}
		})
	}
}

func writeVectors(t *testing.T, path string, a *algorithm) {
	t.Helper()
	vectors := make([]vector, len(histories))
	for i, h := range histories {
		vectors[i] = vector{Name: h.name, Limit: h.limit + " " + string(a.name)}
		if a.queue {
			l, _ := ParseLimit(h.limit)
			vectors[i].Limit = fmt.Sprintf("%s burst %d %s", h.limit, l.Rate, a.name)
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

package failmode

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/internal/redistest"
)

// A call is one operation of a history on one key: "take", "peek", "give back" or
// "reset".
type call struct {
	what  string
	units int64
}

// A return is what the caller was told. Where the store's answer is unknown, what
// local counting said instead is left out.
type told struct {
	allowed   bool
	remaining int64 // -1 if it is an estimate
	unknown   bool
	cached    bool // by the cache of denials
}

// after is what a call makes of the units used of a limit, and what it has to come to.
func (c call) after(used, limit int64) (int64, told) {
	switch c.what {
	case "take", "peek":
		out := told{allowed: used+c.units <= limit}
		if c.what == "take" && out.allowed {
			used += c.units
		}
		out.remaining = limit - used
		return used, out
	case "give back":
		return max(used-c.units, 0), told{}
	case "reset":
		return 0, told{}
	}
	panic(c.what)
}

// counter is the model of a limiter that counts: what it says depends on the units
// used, and on nothing else.
func counter(limit int64) porcupine.Model {
	return model(func(used int64, c call, out told) []int64 {
		after, want := c.after(used, limit)
		if want.cached = out.cached; out.remaining < 0 {
			want.remaining = out.remaining
		}
		switch {
		case out.unknown:
			return []int64{used, after}
		case out == want:
			return []int64{after}
		}
		return nil
	})
}

func model(step func(used int64, c call, out told) []int64) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{int64(0)} },
		Step: func(state, input, output any) (states []any) {
			for _, used := range step(state.(int64), input.(call), output.(told)) {
				states = append(states, used)
			}
			return states
		},
		Hash: func(state any) uint64 { return uint64(state.(int64)) },
	}
	return m.ToModel()
}

// A callHistory is what was asked of one key, and told.
type callHistory struct {
	time atomic.Int64 // counts calls and returns; clocks may stand still
	mu   sync.Mutex
	ops  []porcupine.Operation
}

func (h *callHistory) do(client int, c call, f func() told) {
	begun := h.time.Add(1)
	out := f()
	ended := h.time.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: c, Call: begun, Output: out, Return: ended})
}

func (h *callHistory) check(t *testing.T, what any, m porcupine.Model, want porcupine.CheckResult) {
	t.Helper()
	if got := porcupine.CheckOperationsTimeout(m, h.ops, 30*time.Second); got != want {
		var b strings.Builder
		slices.SortFunc(h.ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
		for _, op := range h.ops {
			fmt.Fprintf(&b, "client %d, from %d to %d: %+v: %+v\n", op.ClientId, op.Call, op.Return, op.Input, op.Output)
		}
		t.Fatalf("%s: %s, want %s\n%s", what, got, want, &b)
	}
}

// A lossy limiter loses one command in sixteen, or its answer.
type lossy struct {
	algorithms.Limiter
	store
}

func (l *lossy) Unwrap() algorithms.Limiter { return l.Limiter }

// lost is the key of an *atomic.Bool in a context: the answer to it was lost.
type lost struct{}

// lose calls f, and returns an error if the caller is not to know.
func lose(ctx context.Context, f func() error) error {
	dice := rand.IntN(32)
	if is, ok := ctx.Value(lost{}).(*atomic.Bool); ok && dice < 2 {
		is.Store(true)
	}
	if dice == 0 {
		return os.ErrDeadlineExceeded
	}
	if err := f(); err != nil || dice > 1 {
		return err
	}
	return os.ErrDeadlineExceeded
}

func (l *lossy) Take(ctx context.Context, checks ...algorithms.Check) (d algorithms.Decision, err error) {
	if err := lose(ctx, func() error { d, err = l.Limiter.Take(ctx, checks...); return err }); err != nil {
		return algorithms.Decision{}, err
	}
	return d, nil
}

func (l *lossy) Settle(ctx context.Context, charges ...algorithms.Charge) (results []algorithms.Result, err error) {
	err = lose(ctx, func() (err error) { results, err = l.Limiter.Settle(ctx, charges...); return err })
	return results, err
}

func (l *lossy) Reset(ctx context.Context, checks ...algorithms.Check) error {
	return lose(ctx, func() error { return l.Limiter.Reset(ctx, checks...) })
}

// stores are those whose clocks stand still: a state is then a number of units,
// exactly, with every algorithm. Each calls f with a store for every history.
var stores = []struct {
	name      string
	histories int
	start     func(t *testing.T) func(f func(t *testing.T, l algorithms.Limiter, s store))
}{
	{"memory", 20, func(t *testing.T) func(func(*testing.T, algorithms.Limiter, store)) {
		return func(f func(*testing.T, algorithms.Limiter, store)) {
			s := &distant{there: time.Millisecond, back: time.Millisecond}
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				s.Memory.Now = func() time.Time { return start }
				f(t, s, s)
			})
		}
	}},
	{"miniredis", 2, func(t *testing.T) func(func(*testing.T, algorithms.Limiter, store)) {
		client, server := limitertest.RedisServer(t)
		server.SetTime(time.Now())
		return eachInANamespace(t, func(namespace string) *algorithms.Redis {
			return &algorithms.Redis{Client: client, Namespace: namespace, Budget: time.Minute}
		})
	}},
	{"redis", 5, func(t *testing.T) func(func(*testing.T, algorithms.Limiter, store)) {
		server, _ := redistest.StartWithClock(t)
		client := server.Client(t)
		return eachInANamespace(t, func(namespace string) *algorithms.Redis {
			return &algorithms.Redis{Client: client, Namespace: namespace, Budget: time.Minute}
		})
	}},
}

func eachInANamespace(t *testing.T, redis func(namespace string) *algorithms.Redis) func(func(*testing.T, algorithms.Limiter, store)) {
	namespaces := 0
	return func(f func(*testing.T, algorithms.Limiter, store)) {
		namespaces++
		r := redis(fmt.Sprint("history-", namespaces))
		f(t, r, r.Store())
	}
}

// guardOf is a Guard over a limiter that is lossy and whose circuits never open.
func guardOf(l *lossy, instances int) *Guard {
	return &Guard{Limiter: l, Instances: instances, Logger: slog.New(slog.DiscardHandler), store: neverOpen{store: l.store, next: new(atomic.Int64)}}
}

// take asks a Guard and notes what it said.
func (h *callHistory) take(t *testing.T, client int, g *Guard, what string, c algorithms.Check) (r algorithms.Result) {
	h.do(client, call{what, c.Cost}, func() told {
		var is atomic.Bool
		ask := g.Take
		if what == "peek" {
			ask = g.Peek
		}
		d, err := ask(context.WithValue(t.Context(), lost{}, &is), c)
		if err != nil {
			t.Error(err)
			return told{unknown: true}
		}
		r = d.Results[0]
		out := told{allowed: r.HasRoom, remaining: r.Remaining, cached: r.Source == algorithms.SourceDenyCache}
		out.unknown = r.Source == algorithms.SourceFallback || out.cached && is.Load()
		if out.cached {
			out.remaining = -1
		}
		return out
	})
	return r
}

// beforeChanges has what the cache denied begin before the give-backs and resets
// that were under way then: the cache forgets when they have returned, and others
// may have seen already what they did. A denial that another one implies, of no more
// units and at no other time, is left out: such many take long to check.
func (h *callHistory) beforeChanges() {
	all := slices.Clone(h.ops)
	for i := range h.ops {
		if op := &h.ops[i]; op.Output.(told).cached {
			for _, other := range all {
				if c := other.Input.(call); c.what != "take" && c.what != "peek" && other.Call < op.Call && op.Call < other.Return {
					op.Call = other.Call
				}
			}
		}
	}
	slices.SortFunc(h.ops, func(a, b porcupine.Operation) int { return int(a.Return - b.Return) })
	var kept []porcupine.Operation
	for _, op := range h.ops {
		implied := func(k porcupine.Operation) bool {
			return k.Output.(told).cached && !k.Output.(told).unknown && k.Call >= op.Call && k.Input.(call).units <= op.Input.(call).units
		}
		if !op.Output.(told).cached || op.Output.(told).unknown || !slices.ContainsFunc(kept, implied) {
			kept = append(kept, op)
		}
	}
	h.ops = kept
}
